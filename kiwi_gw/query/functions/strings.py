"""Functions on texts. A character is a code point; what would be longer than a result may be is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kiwi_gw.query.functions.base import Function, plain
from kiwi_gw.query.functions.cost import FIXED, LOOKS, SEEKS, Cost, Makes
from kiwi_gw.query.values import RecordError, Value
from kiwi_gw.query.values.types import BOOLEAN, INT, STRING

_INT_MAX: Final = (1 << 31) - 1
_FEW_SIGNS: Final = 64


def substring(text: str, position: int, length: int = _INT_MAX) -> str:
    """From 1; negative positions count from the end, and may lie before the beginning."""
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


def _pad(text: str, length: int, padding: str, *, left: bool) -> str:
    missing = length - len(text)
    if missing <= 0 or not padding:
        return text[: max(length, 0)]
    more = (padding * (missing // len(padding) + 1))[:missing]
    return more + text if left else text + more


def _padded_length(text: str, length: int, padding: str = " ") -> int:
    """The padding is made once more than is needed."""
    return length + len(padding) if padding and length > len(text) else min(len(text), max(length, 0))


def _lpad(text: str, length: int, padding: str = " ") -> str:
    return _pad(text, length, padding, left=True)


def _rpad(text: str, length: int, padding: str = " ") -> str:
    return _pad(text, length, padding, left=False)


def _repeat(text: str, count: int) -> str:
    return text * count


def _initcap(text: str) -> str:
    return " ".join(word[:1].title() + word[1:] for word in text.lower().split(" "))


def _place(text: str, part: str, count: int) -> int:
    """Where the count-th of the parts that do not overlap begins, from the left; -1: there are fewer."""
    place = -len(part)
    for _ in range(count):
        place = text.find(part, place + len(part))
        if place < 0:
            break
    return place


def _substring_index(text: str, part: str, count: int) -> str:
    if not part or count == 0:
        return ""
    if count > 0:
        place = _place(text, part, count)
        return text if place < 0 else text[:place]
    # Backwards: looking from the right takes Python longer than in proportion to the text.
    place = _place(text[::-1], part[::-1], -count)
    return text if place < 0 else text[len(text) - place :]


def _translate(text: str, old: str, new: str) -> str:
    table: dict[int, str] = {}
    for place, character in enumerate(old):
        table.setdefault(ord(character), new[place : place + 1])
    return text.translate(table)


def _split_part(text: str, part: str, number: int) -> str:
    if number == 0:
        raise RecordError("pieces are counted from 1, or from -1 at the end")
    count = text.count(part) + 1 if part else 1
    wanted = number if number > 0 else count + 1 + number
    if not 1 <= wanted <= count:
        return ""
    if not part:
        return text
    begin = 0 if wanted == 1 else _place(text, part, wanted - 1) + len(part)
    end = text.find(part, begin)
    return text[begin:] if end < 0 else text[begin:end]


def _space(count: int) -> str:
    return " " * count


def _find_in_set(text: str, listed: str) -> int:
    if "," in text:
        return 0
    place = f",{listed},".find(f",{text},")
    return listed.count(",", 0, place) + 1 if place >= 0 else 0


def _overlay(text: str, new: str, position: int, length: int = -1) -> str:
    taken = len(new) if length < 0 else length
    return f"{substring(text, 1, position - 1)}{new}{substring(text, position + taken)}"


_S = (STRING,)
_SS = (STRING, STRING)
_PART: Final = Cost(Makes.TEXT)
"""A part of a text, or all of it in another order."""


def _first(text: str, *_: Value) -> int:
    return len(text)


def _up_to_cap(ahead: Callable[..., int]) -> Cost:
    return Cost(Makes.TEXT, factor=None, ahead=ahead)


def _as_long(factor: int) -> Cost:
    """For each character of the first argument at least one, of so many bytes for one of its."""
    return Cost(Makes.TEXT, factor=factor, ahead=_first)


def _trim(usage: str, strip: Callable[..., str], summary: str) -> Function:
    """Which signs comes first, and of what second, as after `trim(` in Spark."""

    def trim(one: str, other: str | None = None) -> str:
        text, signs = (one, " ") if other is None else (other, one)
        return strip(text, _each(signs)) if signs else text

    return plain(usage, _SS, STRING, trim, summary, optional=1, cost=_PART)


def _each(signs: str) -> str:
    """Each sign once: `strip` looks at all of them for every character.

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
    """The same under another name."""
    usage = name + function.usage[len(function.name) :]
    return Function(
        name,
        function.arguments,
        usage,
        f"the same as {function.name}",
        function.bind,
        function.wants,
        function.result,
        cost=function.cost,
    )


_LENGTH = plain("length(s)", _S, INT, len, "the number of characters", cost=FIXED)
_SUBSTRING = plain(
    "substring(s, start[, count])", (STRING, INT, INT), STRING, substring,
    "count characters from start, which is from 1, or from -1 at the end", optional=1, cost=_PART,
)  # fmt: skip
_LOCATE = plain(
    "locate(part, s[, start])", (STRING, STRING, INT), INT, _locate,
    "the place of the part in s, from 1; 0: it is not there", optional=1, strict=False, cost=SEEKS,
)  # fmt: skip
_LEFT = plain(
    "left(s, count)",
    (STRING, INT),
    STRING,
    lambda text, n: text[: max(n, 0)],
    "the first characters",
    cost=_PART,
)
_RIGHT = plain(
    "right(s, count)",
    (STRING, INT),
    STRING,
    lambda text, n: text[-n:] if n > 0 else "",
    "the last characters",
    cost=_PART,
)
_UPPER = plain("upper(s)", _S, STRING, str.upper, "in capitals", cost=_as_long(3))
_LOWER = plain("lower(s)", _S, STRING, str.lower, "in small letters", cost=_as_long(2))

FUNCTIONS: Final = (
    _UPPER,
    _alias("ucase", _UPPER),
    _LOWER,
    _alias("lcase", _LOWER),
    plain(
        "initcap(s)",
        _S,
        STRING,
        _initcap,
        "the first letter of each word in capitals, the others small",
        cost=_as_long(3),
    ),
    _trim("trim([signs, ]s)", str.strip, "without blanks (or these signs) at both ends"),
    _trim("ltrim([signs, ]s)", str.lstrip, "without them at the beginning"),
    _trim("rtrim([signs, ]s)", str.rstrip, "without them at the end"),
    plain(
        "btrim(s[, signs])",
        _SS,
        STRING,
        lambda text, signs=" ": text.strip(_each(signs)) if signs else text,
        "the same as trim, with the text first",
        optional=1,
        cost=_PART,
    ),
    _LENGTH,
    _alias("len", _LENGTH),
    _alias("char_length", _LENGTH),
    _alias("character_length", _LENGTH),
    plain(
        "octet_length(s)",
        _S,
        INT,
        lambda text: len(text.encode("utf-8", "replace")),
        "its bytes in UTF-8",
        cost=LOOKS,
    ),
    plain(
        "bit_length(s)",
        _S,
        INT,
        lambda text: 8 * len(text.encode("utf-8", "replace")),
        "its bits in UTF-8",
        cost=LOOKS,
    ),
    _SUBSTRING,
    _alias("substr", _SUBSTRING),
    _LEFT,
    _RIGHT,
    plain(
        "replace(s, old[, new])",
        (STRING, STRING, STRING),
        STRING,
        _replace,
        "every old by new",
        optional=1,
        cost=_up_to_cap(_replaced_length),
    ),
    plain(
        "instr(s, part)",
        _SS,
        INT,
        _instr,
        "the place of the part in s, from 1; 0: it is not there",
        cost=SEEKS,
    ),
    _LOCATE,
    _alias("position", _LOCATE),
    plain("startswith(s, part)", _SS, BOOLEAN, str.startswith, "whether s begins so", cost=FIXED),
    plain("endswith(s, part)", _SS, BOOLEAN, str.endswith, "whether s ends so", cost=FIXED),
    plain("contains(s, part)", _SS, BOOLEAN, str.__contains__, "whether the part is in s", cost=SEEKS),
    plain(
        "lpad(s, length[, padding])",
        (STRING, INT, STRING),
        STRING,
        _lpad,
        "made so long by padding on the left, or cut",
        optional=1,
        cost=_up_to_cap(_padded_length),
    ),
    plain(
        "rpad(s, length[, padding])",
        (STRING, INT, STRING),
        STRING,
        _rpad,
        "made so long by padding on the right, or cut",
        optional=1,
        cost=_up_to_cap(_padded_length),
    ),
    plain(
        "repeat(s, count)",
        (STRING, INT),
        STRING,
        _repeat,
        "so many times",
        cost=_up_to_cap(lambda text, count: len(text) * max(count, 0)),
    ),
    plain("reverse(s)", _S, STRING, lambda text: text[::-1], "backwards", cost=_as_long(1)),
    plain(
        "substring_index(s, part, count)",
        (STRING, STRING, INT),
        STRING,
        _substring_index,
        "what is before the count-th part, or after it counted from the end",
        cost=_PART,
    ),
    plain(
        "translate(s, old, new)",
        (STRING, STRING, STRING),
        STRING,
        _translate,
        "each sign of old by that of new",
        cost=Cost(Makes.TEXT, factor=4),
    ),
    plain(
        "overlay(s, new, start[, count])",
        (STRING, STRING, INT, INT),
        STRING,
        _overlay,
        "new instead of count characters from start",
        optional=1,
        cost=_PART,
    ),
    plain(
        "split_part(s, part, n)",
        (STRING, STRING, INT),
        STRING,
        _split_part,
        "the n-th piece between the parts",
        cost=_PART,
    ),
    plain(
        "find_in_set(s, list)",
        _SS,
        INT,
        _find_in_set,
        "the place of s in a list with commas; 0: it is not there",
        cost=LOOKS,
    ),
    plain("space(count)", (INT,), STRING, _space, "so many blanks", cost=_up_to_cap(lambda count: count)),
)
