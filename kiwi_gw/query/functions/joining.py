"""Functions that put texts and arrays together."""

from __future__ import annotations

from typing import Final

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import Arguments, Binding, Function, plain
from kiwi_gw.query.functions.cost import Cost, Makes
from kiwi_gw.query.values import Value, convert, room
from kiwi_gw.query.values.implicit import conversion
from kiwi_gw.query.values.types import ANY, ARRAY, NULL, STRING, common


def _lengths(*values: Value) -> int:
    return sum(len(value) for value in values if isinstance(value, str | list))


def _concat(*texts: str) -> str:
    return "".join(texts)


def _concat_any(*values: Value) -> Value:
    """Values of a record: arrays if all are arrays, else texts."""
    if all(isinstance(value, list) for value in values):
        return [item for value in values if isinstance(value, list) for item in value]
    texts = [text for value in values if isinstance(text := _text(value), str)]
    return "".join(texts) if len(texts) == len(values) else None


_text: Final = conversion(ANY, STRING)


def _bind_concat(arguments: Arguments) -> Binding:
    types = [argument.type for argument in arguments]
    if any(type_.kind == "ARRAY" for type_ in types):
        met = common(tuple(types))
        if met is None:
            raise QueryError("concat of arrays and other values is not possible", arguments[0].position)
        return Binding(ARRAY if met == ANY else met, _concat_any, (None,) * len(types))
    for argument in arguments:
        if not (argument.type.atomic or argument.type in (ANY, NULL)):
            raise QueryError(f"concat of {argument.type} is not possible", argument.position)
    if ANY in types:
        return Binding(
            ANY if all(type_ in (ANY, NULL) for type_ in types) else STRING, _concat_any, (None,) * len(types)
        )
    return Binding(STRING, _concat, tuple(None if type_ == STRING else STRING for type_ in types))


def _concat_ws(separator: Value, *values: Value) -> str | None:
    """NULLs are left out; the items of an array are as many arguments."""
    if separator is None:
        return None
    between = convert.to_string(separator) or ""
    pieces: list[str] = []
    size = 0
    for value in values:
        if isinstance(value, dict):
            return None
        for item in value if isinstance(value, list) else [value]:
            text = None if item is None else convert.to_string(item)
            if text is not None:
                pieces.append(text)
                size += len(text) + len(between)
                room(max(size - len(between), len(pieces)))
    return between.join(pieces)


FUNCTIONS: Final = (
    Function(
        "concat",
        (1, None),
        "concat(s, ...)",
        "one after the other, texts or arrays",
        _bind_concat,
        cost=Cost(Makes.EITHER, factor=4, plus=26, ahead=_lengths),
    ),
    plain(
        "concat_ws(separator, s, ...)",
        (STRING, ANY),
        STRING,
        _concat_ws,
        "one after the other with a separator; NULLs are left out, arrays are their items",
        optional=1,
        repeated=True,
        strict=False,
        cost=Cost(Makes.TEXT, factor=None),
    ),
)
