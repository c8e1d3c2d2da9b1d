"""Functions on JSON: its text, arrays and objects."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import Arguments, Binding, Function, plain
from kiwi_gw.query.functions.cost import FIXED, Cost, Makes
from kiwi_gw.query.limits import MAX_JSON, MAX_STEPS, MAX_TEXT
from kiwi_gw.query.values import RecordError, Value, compare, convert, items, room
from kiwi_gw.query.values.types import ANY, ARRAY, BIGINT, BOOLEAN, INT, NULL, STRING, Type, common

_STEP: Final = re.compile(r"\.([^.\[*]+)|\[(\d{1,9})\]|\['([^'?]+)'\]|(\.\*|\[\*\]|\['\*'\])")
_ALL: Final = -1
_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


@lru_cache(maxsize=32)
def _steps(path: str) -> tuple[str | int, ...] | None:
    """`$.a[0]['b'][*]`; None: it is no such path."""
    if not path.startswith("$"):
        return None
    found: list[str | int] = []
    place = 1
    while place < len(path):
        step = _STEP.match(path, place)
        if step is None or len(found) == MAX_STEPS:
            return None
        member = step[1] or step[3]
        found.append(member if member is not None else int(step[2]) if step[2] else _ALL)
        place = step.end()
    return tuple(found)


def _decoded(text: str) -> Value:
    """None for what is no JSON.

    Raises:
        RecordError: the text is too long to be read: what it says may be some thirty times as large.
    """
    if len(text) > MAX_JSON:
        raise RecordError(f"a JSON text of more than {MAX_JSON} characters")
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _get_json_object(text: str, path: str) -> str | None:
    # Only a record has a longer one, and that is not kept: it may be as long as an event.
    steps = _steps(path) if len(path) <= MAX_TEXT else _steps.__wrapped__(path)
    if steps is None:
        return None
    found = [_decoded(text)]
    several = False
    for step in steps:
        if step == _ALL:
            several = True
            found = [item for each in found if isinstance(each, list) for item in each]
        elif isinstance(step, str):
            found = [each[step] for each in found if isinstance(each, dict) and step in each]
        else:
            found = [each[step] for each in found if isinstance(each, list) and step < len(each)]
        if not found:
            return None
    if several and len(found) > 1:
        return _encode(found).decode()
    (value,) = found[:1]
    if several and isinstance(value, str):
        return _encode(value).decode()
    if value is None:
        # Only as a member of an object null is NULL.
        return "null" if (steps and isinstance(steps[-1], int)) or (not steps and _is_null(text)) else None
    return _text(value)


def _is_null(text: str) -> bool:
    return text.strip(" \t\r\n") == "null"


def _text(value: Value) -> str | None:
    return _encode(value).decode() if isinstance(value, list | dict) else convert.to_string(value)


def _json_array_length(text: str) -> int | None:
    found = _decoded(text)
    return len(found) if isinstance(found, list) else None


def _json_object_keys(text: str) -> list[str] | None:
    found = _decoded(text)
    if not isinstance(found, dict):
        return None
    items(len(found))
    return list(found)


def _size(value: Value) -> int | None:
    """-1 for NULL, as it has always been."""
    if value is None:
        return -1
    return len(value) if isinstance(value, list | dict) else None


def _collection(name: str, argument: Type, position: int, *kinds: str) -> None:
    if argument.kind not in {*kinds, "ANY", "NULL"}:
        raise QueryError(f"{name} takes {' or '.join(kinds)}, and this is {argument}", position)


def _array_and_item(name: str, arguments: Arguments) -> None:
    """Refuse what can never be an item of the array, as Spark does."""
    array, wanted = arguments
    _collection(name, array.type, array.position, "ARRAY")
    item = array.type.item or ANY
    if common((item, wanted.type), promote=False) is None:
        message = f"{name} looks for {item} in {array.type}, and this is {wanted.type}"
        raise QueryError(message, wanted.position)


def _bind_size(name: str, arguments: Arguments) -> Binding:
    _collection(name, arguments[0].type, arguments[0].position, "ARRAY", "MAP")
    return Binding(INT, _size, (None,), strict=False)


def _bind_contains(arguments: Arguments) -> Binding:
    _array_and_item("array_contains", arguments)

    def call(items: Value, wanted: Value) -> bool | None:
        if not isinstance(items, list):
            return None
        if any(
            item is not None and type(item) is type(wanted) and compare.eq(item, wanted) for item in items
        ):
            return True
        if any(item is not None and _numbers(item, wanted) and compare.eq(item, wanted) for item in items):
            return True
        if any(item is not None and _kind(item) is not _kind(wanted) for item in items):
            return None
        return None if None in items else False

    return Binding(BOOLEAN, call, (None, None))


def _kind(value: Value) -> type:
    """Numbers are of one."""
    return int if type(value) is float else type(value)


def _numbers(*values: Value) -> bool:
    return all(type(value) is int or type(value) is float for value in values)


def _bind_position(arguments: Arguments) -> Binding:
    _array_and_item("array_position", arguments)

    def call(items: Value, wanted: Value) -> int | None:
        if not isinstance(items, list):
            return None
        if any(item is not None and _kind(item) is not _kind(wanted) for item in items):
            return None
        same = (type(item) is type(wanted) or _numbers(item, wanted) for item in items)
        return next(
            (
                n
                for n, (item, fits) in enumerate(zip(items, same, strict=True), 1)
                if fits and compare.eq(item, wanted)
            ),
            0,
        )

    return Binding(INT, call, (None, None))


def _bind_element(arguments: Arguments) -> Binding:
    holder, at = arguments
    _collection("element_at", holder.type, holder.position, "ARRAY", "MAP")
    result = holder.type.item or ANY

    def call(value: Value, key: Value) -> Value:
        if isinstance(value, list) and type(key) is int:
            return value[key - 1 if key > 0 else key] if 0 < abs(key) <= len(value) else None
        return value.get(key) if isinstance(value, dict) and isinstance(key, str) else None

    if at.constant == 0 and at.type == INT:
        raise QueryError("items are counted from 1, or from -1 at the end", at.position)
    return Binding(result, call, (None, None))


def _bind_get(arguments: Arguments) -> Binding:
    items, at = arguments
    _collection("get", items.type, items.position, "ARRAY")

    def call(value: Value, index: Value) -> Value:
        if isinstance(value, list) and type(index) is int:
            return value[index] if 0 <= index < len(value) else None
        return None

    return Binding(
        items.type.item or ANY, call, (None, None if at.type in (INT, BIGINT, ANY, NULL) else BIGINT)
    )


def _bind_keys(name: str, arguments: Arguments) -> Binding:
    _collection(name, arguments[0].type, arguments[0].position, "MAP")

    def call(value: Value) -> list[Value] | None:
        if not isinstance(value, dict):
            return None
        items(len(value))
        return list(value) if name == "map_keys" else list(value.values())

    return Binding(Type("ARRAY", STRING) if name == "map_keys" else ARRAY, call, (None,))


def _array_join(array: list[Value], separator: str, null: str | None = None) -> str:
    found: list[str] = []
    size = 0
    for item in array:
        text = null if item is None else convert.to_string(item)
        if text is not None:
            found.append(text)
            size += len(text) + len(separator)
            room(max(size - len(separator), len(found)))
    return separator.join(found)


def _bind_to_json(arguments: Arguments) -> Binding:
    """Members that are null stay where there is no schema: they are what the JSON was."""
    kind = arguments[0].type

    def call(value: Value) -> str | None:
        if not isinstance(value, list | dict):
            return None
        return _encode(_without_nulls(value, kind)).decode()

    return Binding(STRING, call, (None,))


def _without_nulls(value: Value, kind: Type) -> Value:
    """As to_json of Spark: members of an object that are NULL are left out, those of a map are not."""
    if isinstance(value, dict) and kind.kind == "OBJECT":
        fields = dict(kind.fields)
        members = ((name, each, fields.get(name, ANY)) for name, each in value.items() if each is not None)
        return {name: _without_nulls(each, field) for name, each, field in members}
    if kind.item in (None, ANY):
        return value
    if isinstance(value, dict):
        return {name: _without_nulls(each, kind.item) for name, each in value.items()}
    return [_without_nulls(each, kind.item) for each in value] if isinstance(value, list) else value


# A control character is six in JSON.
_JSON: Final = Cost(Makes.TEXT, factor=6, plus=64, pace=4)
# A microsecond for each item.
_COMPARES: Final = Cost(pace=32)
_MEMBERS: Final = Cost(Makes.ITEMS)

FUNCTIONS: Final = (
    plain(
        "get_json_object(s, path)",
        (STRING, STRING),
        STRING,
        _get_json_object,
        "what is at a path like $.a[0].b in a JSON text",
        cost=_JSON,
    ),
    plain(
        "json_array_length(s)",
        (STRING,),
        INT,
        _json_array_length,
        "the number of items of an array in JSON text",
        cost=Cost(pace=4),
    ),
    plain(
        "json_object_keys(s)",
        (STRING,),
        Type("ARRAY", STRING),
        _json_object_keys,
        "the names of the members of an object in JSON text",
        cost=_MEMBERS,
    ),
    Function("to_json", (1, 1), "to_json(x)", "an array or object as JSON text", _bind_to_json, cost=_JSON),
    Function(
        "size",
        (1, 1),
        "size(x)",
        "the number of items or members; -1 for NULL",
        lambda a: _bind_size("size", a),
        cost=FIXED,
    ),
    Function(
        "cardinality",
        (1, 1),
        "cardinality(x)",
        "the same as size",
        lambda a: _bind_size("cardinality", a),
        cost=FIXED,
    ),
    plain("array_size(array)", (ARRAY,), INT, len, "the number of items", cost=FIXED),
    Function(
        "array_contains",
        (2, 2),
        "array_contains(array, x)",
        "whether x is an item",
        _bind_contains,
        cost=_COMPARES,
    ),
    Function(
        "array_position",
        (2, 2),
        "array_position(array, x)",
        "the place of x, from 1; 0: it is not there",
        _bind_position,
        cost=_COMPARES,
    ),
    Function(
        "element_at",
        (2, 2),
        "element_at(x, at)",
        "an item, from 1 or from -1 at the end, or a member",
        _bind_element,
        cost=FIXED,
    ),
    Function("get", (2, 2), "get(array, at)", "an item, from 0; as array[at]", _bind_get, cost=FIXED),
    Function(
        "map_keys",
        (1, 1),
        "map_keys(x)",
        "the names of the members",
        lambda a: _bind_keys("map_keys", a),
        cost=_MEMBERS,
    ),
    Function(
        "map_values",
        (1, 1),
        "map_values(x)",
        "the values of the members",
        lambda a: _bind_keys("map_values", a),
        cost=_MEMBERS,
    ),
    plain(
        "array_join(array, separator[, null])",
        (ARRAY, STRING, STRING),
        STRING,
        _array_join,
        "the items one after the other",
        optional=1,
        cost=Cost(Makes.TEXT, factor=None),
    ),
)
