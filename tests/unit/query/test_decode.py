"""What queries see of bytes."""

from __future__ import annotations

import io
import json
import sys

import fastavro
import pytest

from kiwi_gw.model import Decode, Form
from kiwi_gw.query.decode import decode_mistake, decoder, headers, objects
from kiwi_gw.query.values import UNDECODABLE

SCHEMA = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "long"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": {"type": "array", "items": "bytes"}},
    ],
}


def avro(**record: object) -> bytes:
    written = io.BytesIO()
    plain = json.loads(json.dumps(SCHEMA).replace(', "logicalType": "timestamp-millis"', ""))
    fastavro.schemaless_writer(written, fastavro.parse_schema(plain), record)
    return written.getvalue()


@pytest.mark.parametrize(
    ("form", "given", "seen"),
    [
        ("json", b'{"a":[1,2.0,"x",null,true]}', {"a": [1, 2.0, "x", None, True]}),
        ("json", b" 5 ", 5),
        ("json", b"1\n", 1),
        ("json", b"", UNDECODABLE),
        ("json", b"{", UNDECODABLE),
        ("json", b"1 2", UNDECODABLE),
        ("json", b'"\xff"', UNDECODABLE),
        ("json", b"[" * 100_000, UNDECODABLE),
        ("json", None, None),
        ("json", 7, 7),
        ("json", "5", "5"),
        ("string", "é".encode(), "é"),
        ("string", b"\xff", UNDECODABLE),
        ("int", b"\xff\xff\xff\xfe", -2),
        ("int", b"\x00" * 8, UNDECODABLE),
        ("long", b"\x7f" + b"\xff" * 7, 2**63 - 1),
        ("long", b"", UNDECODABLE),
        ("binary", b"\x00\xff", "AP8="),
    ],
)
def test_one_value(form: Form, given: object, seen: object) -> None:
    assert decoder(form)([given]) == [seen]
    assert decoder(form)([given, None, given]) == [seen, None, seen]


def test_a_column_of_json_and_one_that_is_none() -> None:
    assert decoder("json")([b"1", b'{"a":2}']) == [1, {"a": 2}]
    # Neighbours do not make up for each other.
    assert decoder("json")([b"1,2", b"[1", b"2]", b"3"]) == [UNDECODABLE, UNDECODABLE, UNDECODABLE, 3]
    assert decoder("json")([]) == []


def test_avro() -> None:
    read = decoder("avro", json.dumps(SCHEMA))
    one = avro(carrier="AA", delay=None, at=1_700_000_000_000, raw=[b"\xff"])
    assert read([one, None, one[:-1], one + b"\0", b""]) == [
        {"carrier": "AA", "delay": None, "at": 1_700_000_000_000, "raw": ["/w=="]},
        None,
        UNDECODABLE,
        UNDECODABLE,
        UNDECODABLE,
    ]


def test_what_a_configuration_may_have_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decode_mistake(Decode()) is None
    assert decode_mistake(Decode("avro", avro_schema=json.dumps(SCHEMA))) is None
    assert "no Avro schema" in str(decode_mistake(Decode("avro", avro_schema='{"type": "nothing"}')))
    assert decode_mistake(Decode("avro", avro_schema="{")) is not None
    assert decode_mistake(Decode(fields="carrier STRING, delay BIGINT")) is None
    assert str(decode_mistake(Decode(fields="carrier NOTHING"))).startswith("schema: ")
    monkeypatch.setitem(sys.modules, "fastavro", None)
    assert "kiwi-gw[avro]" in str(decode_mistake(Decode("avro", avro_schema='"string"')))


def test_headers_are_an_object_of_texts() -> None:
    pairs = [("a", b"1"), ("b", b"\xff"), ("c", None), ("a", "é".encode())]
    assert headers([pairs, ()]) == [{"a": "é", "b": None, "c": None}, {}]


def test_columns_as_objects() -> None:
    assert objects(["a", "b"], [(1, 2), ("x", None)]) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
