"""Functions from texts to codes, sums and digits, and back."""

from __future__ import annotations

import base64
import hashlib
import zlib
from typing import Final

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions.base import Arguments, Binding, Function, plain
from kiwi_gw.query.functions.cost import FIXED, SEEKS, Cost, Makes, Work
from kiwi_gw.query.values import Value, convert, room
from kiwi_gw.query.values.types import ANY, BIGINT, BINARY, INT, NULL, STRING


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
    room(2 * len(data))  # `ahead` would have to make the bytes, too
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
_PART: Final = Cost(Makes.TEXT)
_CODE: Final = Cost(Makes.TEXT, Work.CONSTANT, factor=0, plus=2)


def _sum(digits: int) -> Cost:
    return Cost(Makes.TEXT, factor=0, plus=digits, pace=2)


FUNCTIONS: Final = (
    plain("ascii(s)", _S, INT, _ascii, "the code of the first character", cost=FIXED),
    plain("chr(code)", (BIGINT,), STRING, _chr, "the character of a code", cost=_CODE),
    plain("char(code)", (BIGINT,), STRING, _chr, "the same as chr", cost=_CODE),
    Function(
        "hex",
        (1, 1),
        "hex(x)",
        "a number or a text in hexadecimal digits",
        _bind_hex,
        cost=Cost(Makes.TEXT, factor=2, plus=16),
    ),
    plain("unhex(s)", _S, BINARY, _unhex, "the bytes of hexadecimal digits", cost=_PART),
    plain("md5(s)", (BINARY,), STRING, _md5, "the MD5 sum", cost=_sum(32)),
    plain("sha(s)", (BINARY,), STRING, _sha1, "the SHA-1 sum", cost=_sum(40)),
    plain("sha1(s)", (BINARY,), STRING, _sha1, "the SHA-1 sum", cost=_sum(40)),
    plain(
        "sha2(s, bits)",
        (BINARY, INT),
        STRING,
        _sha2,
        "the SHA-2 sum of 224, 256, 384 or 512 bits",
        cost=_sum(128),
    ),
    plain("crc32(s)", (BINARY,), BIGINT, zlib.crc32, "the CRC-32 sum", cost=SEEKS),
    plain(
        "base64(s)",
        (BINARY,),
        STRING,
        _base64,
        "in Base64",
        cost=Cost(Makes.TEXT, factor=2, plus=4, ahead=lambda data: len(data) * 4 // 3),
    ),
    plain("unbase64(s)", _S, BINARY, _unbase64, "the bytes of Base64", cost=_PART),
)
