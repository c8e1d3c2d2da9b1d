"""Functions on texts. A character is a code point; what would be longer than a result may be is an error."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable
from typing import Final

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import Arguments, Binding, Function, plain
from kiwi_gw.query.values import RecordError, Value, bounded, convert, room
from kiwi_gw.query.values.implicit import conversion
from kiwi_gw.query.values.types import ANY, ARRAY, BIGINT, BINARY, BOOLEAN, INT, NULL, STRING, common

_INT_MAX: Final = (1 << 31) - 1


def substring(text: str, position: int, length: int = _INT_MAX) -> str:
    """From 1; negative positions count from the end, and may lie before the beginning."""
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    end = min(start + length, _INT_MAX)
    return text[max(start, 0) : end] if end > max(start, 0) else ""


def _concat(*texts: str) -> str:
    room(sum(map(len, texts)))
    return bounded("".join(texts))


def _concat_any(*values: Value) -> Value:
    """Values of a record: arrays if all are arrays, else texts."""
    if all(isinstance(value, list) for value in values):
        return [item for value in values if isinstance(value, list) for item in value]
    texts = [text for value in values if isinstance(text := _text(value), str)]
    return _concat(*texts) if len(texts) == len(values) else None


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
    for value in values:
        if isinstance(value, dict):
            return None
        each = value if isinstance(value, list) else [value]
        pieces += [
            text for item in each if item is not None and (text := convert.to_string(item)) is not None
        ]
    room(sum(map(len, pieces)) + len(between) * max(len(pieces) - 1, 0))
    return bounded(between.join(pieces))


def _replace(text: str, search: str, new: str = "") -> str:
    if not search:
        return text
    room(len(text) + text.count(search) * (len(new) - len(search)))
    return bounded(text.replace(search, new))


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
    room(length)
    more = (padding * (missing // len(padding) + 1))[:missing]
    return bounded(more + text if left else text + more)


def _lpad(text: str, length: int, padding: str = " ") -> str:
    return _pad(text, length, padding, left=True)


def _rpad(text: str, length: int, padding: str = " ") -> str:
    return _pad(text, length, padding, left=False)


def _repeat(text: str, count: int) -> str:
    room(len(text) * max(count, 0))
    return bounded(text * count)


def _initcap(text: str) -> str:
    return bounded(" ".join(word[:1].title() + word[1:] for word in text.lower().split(" ")))


def _substring_index(text: str, part: str, count: int) -> str:
    if not part or count == 0:
        return ""
    pieces = text.split(part) if count > 0 else text.rsplit(part)
    return part.join(pieces[:count] if count > 0 else pieces[count:])


def _translate(text: str, old: str, new: str) -> str:
    table: dict[int, str] = {}
    for place, character in enumerate(old):
        table.setdefault(ord(character), new[place : place + 1])
    return bounded(text.translate(table))


def _split_part(text: str, part: str, number: int) -> str:
    if number == 0:
        raise RecordError("pieces are counted from 1, or from -1 at the end")
    pieces = text.split(part) if part else [text]
    return pieces[number - 1 if number > 0 else number] if abs(number) <= len(pieces) else ""


def _space(count: int) -> str:
    room(count)
    return " " * count


def _find_in_set(text: str, listed: str) -> int:
    pieces = listed.split(",")
    return pieces.index(text) + 1 if text in pieces else 0


def _overlay(text: str, new: str, position: int, length: int = -1) -> str:
    taken = len(new) if length < 0 else length
    return _concat(substring(text, 1, position - 1), new, substring(text, position + taken))


def _chr(code: int) -> str:
    return "" if code < 0 else chr(code & 0xFF)


def _ascii(text: str) -> int:
    return ord(text[0]) if text else 0


def _hex(value: Value) -> str | None:
    if isinstance(value, float):
        value = convert.to_bigint(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value & ((1 << 64) - 1):X}"
    data = convert.to_binary(value)
    if data is None:
        return None
    room(2 * len(data))
    return data.hex().upper()


def _bind_hex(arguments: Arguments) -> Binding:
    (argument,) = arguments
    if not (argument.type.numeric or argument.type in (STRING, BINARY, ANY, NULL)):
        raise QueryError(f"hex of {argument.type} is not possible", argument.position)
    return Binding(STRING, _hex, (None,))


def _unhex(text: str) -> bytes | None:
    try:
        return bytes.fromhex("0" * (len(text) % 2) + text) if " " not in text and text.isascii() else None
    except ValueError:
        return None


def _sha2(data: bytes, bits: int) -> str | None:
    name = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}.get(bits)
    return None if name is None else hashlib.new(name, data).hexdigest()


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _sha1(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def _base64(data: bytes) -> str:
    room(len(data) * 4 // 3)
    return base64.b64encode(data).decode("ascii")


_NO_DIGITS: Final = bytes(
    set(range(256)) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
)


def _unbase64(text: str) -> bytes | None:
    """As Java's decoder for MIME: what is no digit does not count, the padding may be missing, but what there
    is of it must be whole and the end. NULL where that raises."""
    data = text.encode("utf-8", "replace")
    before, padding, behind = data.partition(b"=")
    digits = before.translate(None, _NO_DIGITS)
    over = len(digits) % 4
    if padding:
        if over == 0 or (over == 2 and not behind.startswith(b"=")):
            return None
        if behind.translate(None, _NO_DIGITS):
            return None
    return None if over == 1 else base64.b64decode(digits + b"=" * (-over % 4))


_S = (STRING,)
_SS = (STRING, STRING)


def _trim(usage: str, strip: Callable[..., str], summary: str) -> Function:
    """Which signs comes first, and of what second, as after `trim(` in Spark."""

    def trim(one: str, other: str | None = None) -> str:
        text, signs = (one, " ") if other is None else (other, one)
        return strip(text, signs) if signs else text

    return plain(usage, _SS, STRING, trim, summary, optional=1)


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
    )


_LENGTH = plain("length(s)", _S, INT, len, "the number of characters")
_SUBSTRING = plain(
    "substring(s, start[, count])", (STRING, INT, INT), STRING, substring,
    "count characters from start, which is from 1, or from -1 at the end", optional=1,
)  # fmt: skip
_LOCATE = plain(
    "locate(part, s[, start])", (STRING, STRING, INT), INT, _locate,
    "the place of the part in s, from 1; 0: it is not there", optional=1, strict=False,
)  # fmt: skip
_LEFT = plain(
    "left(s, count)", (STRING, INT), STRING, lambda text, n: text[: max(n, 0)], "the first characters"
)
_RIGHT = plain(
    "right(s, count)",
    (STRING, INT),
    STRING,
    lambda text, n: text[-n:] if n > 0 else "",
    "the last characters",
)
_UPPER = plain("upper(s)", _S, STRING, str.upper, "in capitals")
_LOWER = plain("lower(s)", _S, STRING, str.lower, "in small letters")

FUNCTIONS: Final = (
    _UPPER,
    _alias("ucase", _UPPER),
    _LOWER,
    _alias("lcase", _LOWER),
    plain("initcap(s)", _S, STRING, _initcap, "the first letter of each word in capitals, the others small"),
    _trim("trim([signs, ]s)", str.strip, "without blanks (or these signs) at both ends"),
    _trim("ltrim([signs, ]s)", str.lstrip, "without them at the beginning"),
    _trim("rtrim([signs, ]s)", str.rstrip, "without them at the end"),
    plain(
        "btrim(s[, signs])",
        _SS,
        STRING,
        lambda text, signs=" ": text.strip(signs) if signs else text,
        "the same as trim, with the text first",
        optional=1,
    ),
    _LENGTH,
    _alias("len", _LENGTH),
    _alias("char_length", _LENGTH),
    _alias("character_length", _LENGTH),
    plain(
        "octet_length(s)", _S, INT, lambda text: len(text.encode("utf-8", "replace")), "its bytes in UTF-8"
    ),
    plain(
        "bit_length(s)", _S, INT, lambda text: 8 * len(text.encode("utf-8", "replace")), "its bits in UTF-8"
    ),
    _SUBSTRING,
    _alias("substr", _SUBSTRING),
    _LEFT,
    _RIGHT,
    Function("concat", (1, None), "concat(s, ...)", "one after the other, texts or arrays", _bind_concat),
    plain(
        "concat_ws(separator, s, ...)",
        (STRING, ANY),
        STRING,
        _concat_ws,
        "one after the other with a separator; NULLs are left out, arrays are their items",
        optional=1,
        repeated=True,
        strict=False,
    ),
    plain(
        "replace(s, old[, new])", (STRING, STRING, STRING), STRING, _replace, "every old by new", optional=1
    ),
    plain("instr(s, part)", _SS, INT, _instr, "the place of the part in s, from 1; 0: it is not there"),
    _LOCATE,
    _alias("position", _LOCATE),
    plain("startswith(s, part)", _SS, BOOLEAN, str.startswith, "whether s begins so"),
    plain("endswith(s, part)", _SS, BOOLEAN, str.endswith, "whether s ends so"),
    plain("contains(s, part)", _SS, BOOLEAN, str.__contains__, "whether the part is in s"),
    plain(
        "lpad(s, length[, padding])",
        (STRING, INT, STRING),
        STRING,
        _lpad,
        "made so long by padding on the left, or cut",
        optional=1,
    ),
    plain(
        "rpad(s, length[, padding])",
        (STRING, INT, STRING),
        STRING,
        _rpad,
        "made so long by padding on the right, or cut",
        optional=1,
    ),
    plain("repeat(s, count)", (STRING, INT), STRING, _repeat, "so many times"),
    plain("reverse(s)", _S, STRING, lambda text: text[::-1], "backwards"),
    plain(
        "substring_index(s, part, count)",
        (STRING, STRING, INT),
        STRING,
        _substring_index,
        "what is before the count-th part, or after it counted from the end",
    ),
    plain(
        "translate(s, old, new)",
        (STRING, STRING, STRING),
        STRING,
        _translate,
        "each sign of old by that of new",
    ),
    plain(
        "overlay(s, new, start[, count])",
        (STRING, STRING, INT, INT),
        STRING,
        _overlay,
        "new instead of count characters from start",
        optional=1,
    ),
    plain(
        "split_part(s, part, n)",
        (STRING, STRING, INT),
        STRING,
        _split_part,
        "the n-th piece between the parts",
    ),
    plain(
        "find_in_set(s, list)",
        _SS,
        INT,
        _find_in_set,
        "the place of s in a list with commas; 0: it is not there",
    ),
    plain("space(count)", (INT,), STRING, _space, "so many blanks"),
    plain("ascii(s)", _S, INT, _ascii, "the code of the first character"),
    plain("chr(code)", (BIGINT,), STRING, _chr, "the character of a code"),
    plain("char(code)", (BIGINT,), STRING, _chr, "the same as chr"),
    Function("hex", (1, 1), "hex(x)", "a number or a text in hexadecimal digits", _bind_hex),
    plain("unhex(s)", _S, BINARY, _unhex, "the bytes of hexadecimal digits"),
    plain("md5(s)", (BINARY,), STRING, _md5, "the MD5 sum"),
    plain("sha(s)", (BINARY,), STRING, _sha1, "the SHA-1 sum"),
    plain("sha1(s)", (BINARY,), STRING, _sha1, "the SHA-1 sum"),
    plain("sha2(s, bits)", (BINARY, INT), STRING, _sha2, "the SHA-2 sum of 224, 256, 384 or 512 bits"),
    plain("crc32(s)", (BINARY,), BIGINT, zlib.crc32, "the CRC-32 sum"),
    plain("base64(s)", (BINARY,), STRING, _base64, "in Base64"),
    plain("unbase64(s)", _S, BINARY, _unbase64, "the bytes of Base64"),
)
