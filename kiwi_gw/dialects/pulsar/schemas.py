"""What the schemas of Pulsar make of values: bytes as Kafka's own serializers write them.

Values come as JSON (`schema_type` of the REST interface) or, in the form of Pulsar's brokers, as text.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from kiwi_gw.dialects.pulsar.errors import PulsarCode, PulsarError
from kiwi_gw.query.avro_writer import datum_writer, schema_text

Encode = Callable[[bytes], bytes | None]
"""Makes bytes of a value as JSON; None of null. Raises ValueError, with words for the client."""

KEY_VALUE: Final = "key_value"

_INTEGERS: Final[Mapping[str, str]] = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q"}
_FLOATS: Final[Mapping[str, str]] = {"float": ">f", "double": ">d"}
_NULL: Final = b"null"
_MOST_WORDS: Final = 300

DEEPEST: Final = 60
"""Of a value, in levels: with what stands around it a body has 64 at most."""

# To have msgspec make one of a type takes longer than to read a message.
_ANY, _TEXT, _FLAG, _WHOLE, _NUMBER = (
    msgspec.json.Decoder(kind) for kind in (Any, str | None, bool | None, int | None, float | None)
)
_TEXTS: Final = msgspec.json.Decoder(list[str | None])
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"')
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_DEEPER: Final = [1 if byte in b"[{" else -1 for byte in range(256)]


class SchemaInfo(Struct, frozen=True):
    """Say what values are. schema: a definition, in Avro's language; as an object, as text or in base64."""

    type: str
    schema: Any = None
    properties: dict[str, str] | None = None


def value_encoder(kind: str) -> Encode | None:
    """Return how values of a type become bytes, whatever the case of its name. None: there is no such type
    here."""
    kind = kind.lower()
    if kind in _INTEGERS:
        return _integer(kind)
    if kind in _FLOATS:
        return _float(kind)
    return _OTHERS.get(kind)


def schema_info(given: Raw, code: PulsarCode) -> SchemaInfo:
    """Read a SchemaInfo, or JSON text that holds one. Raises PulsarError with this code."""
    try:
        text = bytes(given)
        if text[:1] == b'"':
            text = msgspec.json.decode(text, type=str).encode()
        return msgspec.json.decode(text, type=SchemaInfo)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise PulsarError(code, "the schema must be an object with type, schema and properties") from None


def encoder_of(info: SchemaInfo, code: PulsarCode) -> Encode:
    """Return how values of a schema become bytes. Raises PulsarError with this code, or NOT_IN_KAFKA."""
    kind, defined = info.type.lower(), info.schema not in (None, "", {})
    if defined and kind in ("avro", "json"):
        return avro_encoder(info.schema, code) if kind == "avro" else _checked_json(info.schema, code)
    encode = value_encoder(kind)
    if encode is None:
        raise unknown_type(info.type, code)
    if defined:
        raise PulsarError(code, f"the type {kind} has no definition")
    return encode


def avro_encoder(schema: object, code: PulsarCode, references: tuple[str, ...] = ()) -> Encode:
    """Return how values become one datum of a definition, without a head. references: as `SchemaVersion` has
    them. Raises PulsarError with this code."""
    write = _writer(schema, code, references)

    def encode(text: bytes) -> bytes | None:
        return None if _json(text) is None else write(_decoded(text, _ANY, "must be JSON"))

    return encode


def _checked_json(schema: object, code: PulsarCode) -> Encode:
    """Return what leaves values as the JSON that they are, and refuses those that a definition does."""
    write = _writer(schema, code)

    def encode(text: bytes) -> bytes | None:
        checked = _json(text)
        if checked is not None:
            write(_decoded(text, _ANY, "must be JSON"))
        return checked

    return encode


def _writer(schema: object, code: PulsarCode, references: tuple[str, ...] = ()) -> Callable[[Any], bytes]:
    try:
        return datum_writer(schema_text(schema), references)
    except ModuleNotFoundError:
        raise PulsarError(code, "this gateway cannot read Avro: pip install 'kiwi-gw[avro]'") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise PulsarError(code, str(error)[:_MOST_WORDS]) from None


def unknown_type(kind: str, code: PulsarCode) -> PulsarError:
    """Say why a type is not taken."""
    if kind.lower() == "avro":
        return PulsarError(code, "avro needs a definition: the schema of its SchemaInfo")
    return PulsarError(PulsarCode.NOT_IN_KAFKA, f"there is no schema type {kind[:40]!r} here")


def _decoded(text: bytes, decoder: msgspec.json.Decoder[Any], words: str) -> Any:
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise ValueError(words) from None


def _none(text: bytes) -> bytes | None:
    """A string is its UTF-8, anything else its JSON, as with PUBLISH of Lenses."""
    return encode_string(text) if text[:1] == b'"' else _json(text)


def encode_string(text: bytes) -> bytes | None:
    """Make bytes of a string, as `Encode`. One without escapes is what stands between its quotes: the text is
    valid JSON, and UTF-8."""
    if text[:1] == b'"' and b"\\" not in text:
        return text[1:-1]
    found = _decoded(text, _TEXT, "must be a string")
    try:
        return None if found is None else found.encode()
    except UnicodeEncodeError:
        raise ValueError("must be text: a surrogate stands alone in it") from None


def encode_strings(texts: Sequence[Raw], encode: Encode) -> Sequence[bytes | None] | None:
    """Do as `encode`, sooner, with all texts together. None: it encodes something else than strings, or some
    cannot be used."""
    if encode not in (encode_string, _none):
        return None
    try:
        found = _TEXTS.decode(b"[%b]" % b",".join(texts))
        return [None if text is None else text.encode() for text in found]
    except (msgspec.DecodeError, UnicodeError):
        return None


def _bytes(text: bytes) -> bytes | None:
    found = _decoded(text, _TEXT, "must be a string of base64")
    try:
        return None if found is None else base64.b64decode(found, validate=True)
    except (ValueError, binascii.Error):
        raise ValueError("must be a string of base64") from None


def _boolean(text: bytes) -> bytes | None:
    found = _decoded(text, _FLAG, "must be true or false")
    return None if found is None else bytes([found])


def _json(text: bytes) -> bytes | None:
    if text == _NULL:
        return None
    if text.count(b"[") + text.count(b"{") > DEEPEST and _depth(text) > DEEPEST:
        raise ValueError(f"must not be nested deeper than {DEEPEST} levels")
    return text


def _depth(text: bytes) -> int:
    """Return how deep valid JSON is nested. Takes 45 ms of a megabyte that is nothing but brackets and empty
    strings."""
    brackets = _STRING.sub(b"", text).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_DEEPER.__getitem__, brackets)), default=0)


def _integer(kind: str) -> Encode:
    form, words = _INTEGERS[kind], f"must be an integer that fits into {kind}"

    def encode(text: bytes) -> bytes | None:
        found = _decoded(text, _WHOLE, words)
        try:
            return None if found is None else struct.pack(form, found)
        except struct.error:
            raise ValueError(words) from None

    return encode


def _float(kind: str) -> Encode:
    form, words = _FLOATS[kind], f"must be a number that fits into a {kind}"

    def encode(text: bytes) -> bytes | None:
        found = _decoded(text, _NUMBER, words)
        try:
            return None if found is None else struct.pack(form, found)
        except (struct.error, OverflowError):
            raise ValueError(words) from None

    return encode


_OTHERS: Final[Mapping[str, Encode]] = {
    "none": _none,
    "bytes": _bytes,
    "string": encode_string,
    "boolean": _boolean,
    "json": _json,
}
