"""Functions on texts. A character is a code point; what would be longer than a result may be is an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import Arguments, Binding, Function, typed
from kiwi_gw.query.functions.cost import FIXED, SEEKS, FunctionCost, ResultKind
from kiwi_gw.query.values import RecordError, Value
from kiwi_gw.query.values.implicit_casts import conversion
from kiwi_gw.query.values.types import ANY, ARRAY, BOOLEAN, INT, NULL, STRING, common

_INT_MAX: Final = (1 << 31) - 1
_FEW_SIGNS: Final = 64


def substring(text: str, position: int, length: int = _INT_MAX) -> str:
    """Cut out; positions are from 1, negative ones from the end, and may lie before the beginning."""
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    end = min(start + length, _INT_MAX)
    return text[max(start, 0) : end] if end > max(start, 0) else ""


def _replaced_length(text: str, search: str, new: str = "") -> int:
    return len(text) + text.count(search) * (len(new) - len(search)) if search else len(text)


def _replace(text: str, search: str, new: str = "") -> str:
    return text.replace(search, new) if search else text


def _instr(text: str, part: str) -> int:
    return text.find(part) + 1


def _locate(part: Value, text: Value, start: Value = 1) -> int | None:
    if start is None:
        return 0
    if not (isinstance(part, str) and isinstance(text, str) and isinstance(start, int)):
        return None
    if start < 1:
        return 0
    if not part:
        return 1
    return text.find(part, start - 1) + 1 if start <= len(text) + 1 else 0


def _repeat(text: str, count: int) -> str:
    return text * count


def _left(text: str, count: int) -> str:
    return text[: max(count, 0)]


def _right(text: str, count: int) -> str:
    return text[-count:] if count > 0 else ""


_S = (STRING,)
_SS = (STRING, STRING)
_SI = (STRING, INT)
_PART: Final = FunctionCost(ResultKind.TEXT)
"""A part of a text."""
_REPLACED: Final = FunctionCost(ResultKind.TEXT, factor=None, ahead=_replaced_length)
_REPEATED: Final = FunctionCost(
    ResultKind.TEXT, factor=None, ahead=lambda text, count: len(text) * max(count, 0)
)


def _as_long(factor: int) -> FunctionCost:
    """Declare a cost: at least one character for each, of so many bytes for one of its."""
    return FunctionCost(ResultKind.TEXT, factor=factor, ahead=len)


def _trim(usage: str, strip: Callable[..., str], summary: str) -> Function:
    """Make a trim. The characters to remove come first, the text second, as after `trim(` in Spark."""

    def trim(one: str, other: str | None = None) -> str:
        text, signs = (one, " ") if other is None else (other, one)
        return strip(text, _each(signs)) if signs else text

    return typed(usage, _SS, STRING, trim, summary, optional=1, cost=_PART)


def _each(signs: str) -> str:
    """Return each character once: `strip` looks at all of them for every character of the text.

    Raises:
        RecordError: they are too many for that.
    """
    if len(signs) <= _FEW_SIGNS:
        return signs
    found = "".join(set(signs))
    if len(found) > _FEW_SIGNS:
        raise RecordError(f"more than {_FEW_SIGNS} signs to be trimmed")
    return found


def _alias(name: str, function: Function) -> Function:
    """Make the same function under another name."""
    usage = name + function.usage[len(function.name) :]
    return replace(function, name=name, usage=usage, summary=f"the same as {function.name}")


_PLACE: Final = "the place of the part in s, from 1; 0: it is not there"
_LENGTH = typed("length(s)", _S, INT, len, "the number of characters", cost=FIXED)
_SUBSTRING = typed(
    "substring(s, start[, count])", (STRING, INT, INT), STRING, substring,
    "count characters from start, which is from 1, or from -1 at the end", optional=1, cost=_PART,
)  # fmt: skip
_LOCATE = typed(
    "locate(part, s[, start])", (*_SS, INT), INT, _locate, _PLACE, optional=1, strict=False, cost=SEEKS
)
_REPLACE = typed(
    "replace(s, old[, new])", (*_SS, STRING), STRING, _replace, "every old by new", optional=1, cost=_REPLACED
)
_UPPER = typed("upper(s)", _S, STRING, str.upper, "in capitals", cost=_as_long(3))
_LOWER = typed("lower(s)", _S, STRING, str.lower, "in small letters", cost=_as_long(2))


def _lengths(*values: Value) -> int:
    try:
        return sum(map(len, values))  # type: ignore[arg-type]
    except TypeError:  # numbers, which are short
        return sum(len(value) for value in values if isinstance(value, str | list))


def _concat(*texts: str) -> str:
    return "".join(texts)


def _concat_any(*values: Value) -> Value:
    """Join values of a record: arrays if all are arrays, else texts."""
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


_CONCAT: Final = Function(
    "concat",
    (1, None),
    "concat(s, ...)",
    "one after the other, texts or arrays",
    _bind_concat,
    cost=FunctionCost(ResultKind.EITHER, factor=4, plus=26, ahead=_lengths),
)

FUNCTIONS: Final = (
    _CONCAT,
    _UPPER,
    _alias("ucase", _UPPER),
    _LOWER,
    _alias("lcase", _LOWER),
    _trim("trim([signs, ]s)", str.strip, "without blanks (or these signs) at both ends"),
    _trim("ltrim([signs, ]s)", str.lstrip, "without them at the beginning"),
    _trim("rtrim([signs, ]s)", str.rstrip, "without them at the end"),
    _LENGTH,
    _alias("len", _LENGTH),
    _alias("char_length", _LENGTH),
    _alias("character_length", _LENGTH),
    _SUBSTRING,
    _alias("substr", _SUBSTRING),
    typed("left(s, count)", _SI, STRING, _left, "the first characters", cost=_PART),
    typed("right(s, count)", _SI, STRING, _right, "the last characters", cost=_PART),
    _REPLACE,
    typed("instr(s, part)", _SS, INT, _instr, _PLACE, cost=SEEKS),
    _LOCATE,
    _alias("position", _LOCATE),
    typed("startswith(s, part)", _SS, BOOLEAN, str.startswith, "whether s begins so", cost=FIXED),
    typed("endswith(s, part)", _SS, BOOLEAN, str.endswith, "whether s ends so", cost=FIXED),
    typed("contains(s, part)", _SS, BOOLEAN, str.__contains__, "whether the part is in s", cost=SEEKS),
    typed("repeat(s, count)", _SI, STRING, _repeat, "so many times", cost=_REPEATED),
)
