"""What schemas make of values: what Kafka's own serializers would."""

from __future__ import annotations

import base64
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from kiwi_gw.dialects.pulsar.errors import PulsarCode, PulsarError
from kiwi_gw.dialects.pulsar.schemas import DEEPEST, SchemaInfo, encoder_of, schema_info, value_encoder


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("string", b'"h\\u00e9"', "hé".encode()),
        ("STRING", b'""', b""),
        ("bytes", b'"AP8="', b"\x00\xff"),
        ("boolean", b"true", b"\x01"),
        ("boolean", b"false", b"\x00"),
        ("int8", b"-128", b"\x80"),
        ("int16", b"258", b"\x01\x02"),
        ("Int32", b"1", b"\x00\x00\x00\x01"),
        ("int64", b"9223372036854775807", b"\x7f" + b"\xff" * 7),
        ("float", b"1", struct.pack(">f", 1)),
        ("double", b"-0.5", struct.pack(">d", -0.5)),
        ("json", b'{"n": 1.0, "big": 123456789012345678901234567890}', None),
        ("none", b'"text"', b"text"),
        ("none", b'{"a":[1]}', None),
    ],
)
def test_a_value_as_bytes(kind: str, text: bytes, expected: bytes | None) -> None:
    encode = value_encoder(kind)
    assert encode is not None
    assert encode(text) == (text if expected is None else expected)
    assert encode(b"null") is None, "a tombstone"


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("string", b"5", "must be a string"),
        ("string", b'"\\ud800"', "must be a string"),
        ("none", b'"\\ud800"', "must be a string"),
        ("bytes", b'"A"', "must be a string of base64"),
        ("bytes", b'"A\\u00e9=="', "must be a string of base64"),
        ("bytes", b"1", "must be a string of base64"),
        ("boolean", b"1", "must be true or false"),
        ("int8", b"128", "must be an integer that fits into int8"),
        ("int16", b"1.0", "must be an integer that fits into int16"),
        ("int64", b"9223372036854775808", "must be an integer that fits into int64"),
        ("int64", b"1" * 5_000, "must be an integer that fits into int64"),
        ("int32", b"true", "must be an integer that fits into int32"),
        ("float", b"1e39", "must be a number that fits into a float"),
        ("double", b'"1"', "must be a number that fits into a double"),
        ("double", b"1e999", "must be a number that fits into a double"),
    ],
)
def test_what_is_none(kind: str, text: bytes, words: str) -> None:
    encode = value_encoder(kind)
    assert encode is not None
    with pytest.raises(ValueError, match=words):
        encode(text)


@given(st.integers(-(2**63), 2**63 - 1))
def test_whole_numbers_as_java_writes_them(number: int) -> None:
    encode = value_encoder("int64")
    assert encode is not None
    assert encode(str(number).encode()) == number.to_bytes(8, "big", signed=True)


def test_a_schema_may_be_an_object_or_its_text() -> None:
    for text in (b'{"type":"INT32"}', b'"{\\"type\\":\\"INT32\\",\\"schema\\":\\"\\",\\"properties\\":{}}"'):
        info = schema_info(Raw(text), PulsarCode.VALUE_SCHEMA)
        assert encoder_of(info, PulsarCode.VALUE_SCHEMA)(b"1") == b"\x00\x00\x00\x01"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (b"5", 42203, "the schema must be an object"),
        (b'"{"', 42203, "the schema must be an object"),
        (b"{}", 42203, "the schema must be an object"),
        (b'{"type":"AVRO","schema":"x"}', 42203, "the definition must be an object"),
        (
            b'{"type":"JSON","schema":{"type":"record"}}',
            42203,
            "this is no Avro schema",
        ),
        (b'{"type":"PROTOBUF"}', 42206, "there is no schema type 'PROTOBUF' here"),
    ],
)
def test_a_schema_that_cannot_be_used(text: bytes, code: int, words: str) -> None:
    with pytest.raises(PulsarError, match=words) as error:
        encoder_of(schema_info(Raw(text), PulsarCode.KEY_SCHEMA), PulsarCode.KEY_SCHEMA)
    assert error.value.code == code


def test_values_are_nested_so_deep_and_no_deeper() -> None:
    wide = b"[" + b"[]," * 500 + b"1]"
    in_a_string = b'["' + b'\\"[' * 500 + b'", 1]'
    deep = b"[" * (DEEPEST - 1) + b"{}" + b"]" * (DEEPEST - 1)
    for kind in ("json", "none"):
        encode = value_encoder(kind)
        assert encode is not None
        for text in (wide, in_a_string, deep):
            assert encode(text) == text
        with pytest.raises(ValueError, match="nested deeper than 60 levels"):
            encode(b"[" + deep + b"]")


def test_values_with_a_definition() -> None:
    definition = {
        "type": "record",
        "name": "A",
        "fields": [{"name": "a", "type": ["null", "long"], "default": None}],
    }
    text = json.dumps(definition)
    for given_as in (definition, text, base64.b64encode(text.encode()).decode()):
        avro = encoder_of(schema_of({"type": "AVRO", "schema": given_as}), PulsarCode.VALUE_SCHEMA)
        assert avro(b'{"a": 5}') == b"\x02\x0a"
        assert avro(b"{}") == b"\x00"
        assert avro(b"null") is None
        as_json = encoder_of(schema_of({"type": "json", "schema": given_as}), PulsarCode.VALUE_SCHEMA)
        assert as_json(b'{"a": 5}') == b'{"a": 5}'
        for encode in (avro, as_json):
            with pytest.raises(ValueError, match="a: must be one of null, long"):
                encode(b'{"a": "x"}')
    with pytest.raises(PulsarError, match="the type string has no definition"):
        encoder_of(schema_of({"type": "STRING", "schema": text}), PulsarCode.VALUE_SCHEMA)


def schema_of(info: object) -> SchemaInfo:
    return schema_info(Raw(json.dumps(info).encode()), PulsarCode.VALUE_SCHEMA)
