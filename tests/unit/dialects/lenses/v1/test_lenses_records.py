"""The fragments of KAFKAMSG, against the obvious way to write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.dialects.lenses.v1.records import records_wire
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import Batch, Decode, Encoded, Form
from kiwi_gw.query.avro import RegisteredSchema
from kiwi_gw.query.filtered import PROJECTION
from tests.effort import examples

AVRO = '{"type":"record","name":"r","fields":[{"name":"n","type":"int"}]}'


def batch(values: Sequence[object], keys: Sequence[object] | None = None) -> Batch:
    size = len(values)
    columns = {"key": keys or [None] * size, "value": values, "timestamp": [1795250845120] * size}
    return Batch({0: 7}, [0] * size, list(range(7, 7 + size)), columns, cost=1)


def encoded(values: Sequence[object], decode: Decode = Decode(), most: int = 10**6) -> Encoded:  # noqa: B008
    return records_wire("t", decode, max_event_bytes=most).encode(batch(values))


def fragments(made: Encoded) -> list[bytes]:
    return [made.buffer[start:end] for start, end in zip([0, *made.ends], made.ends, strict=False)]


def value(form: Form, written: bytes | None) -> object:
    (fragment,) = fragments(encoded([written], Decode(form, avro_schema=AVRO)))
    return json.loads(fragment[:-1]).get("value", "absent") if fragment else "bad"


def test_exact_bytes() -> None:
    made = records_wire("t", Decode()).encode(batch([b'{"n":1}', None], [b"k", None]))
    assert fragments(made) == [
        b'{"key":"k","value":"{\\"n\\":1}","topic":"t","partition":0,"offset":7,"timestamp":1795250845120},',
        b'{"topic":"t","partition":0,"offset":8,"timestamp":1795250845120},',
    ]
    assert (made.prefix_counts, made.decode_errors, made.unsendable) == (None, 0, ())


def test_timestamps_are_numbers_whatever_a_source_calls_so() -> None:
    columns: dict[str, Sequence[object]] = {
        "value": [b"1"] * 5,
        "timestamp": ["2020-01-01", None, 5.5, True, 7],
    }
    made = records_wire("t", Decode()).encode(Batch({0: 0}, [0] * 5, range(5), columns, cost=1))
    assert [json.loads(each[:-1])["timestamp"] for each in fragments(made)] == [-1, -1, -1, -1, 7]


@pytest.mark.parametrize(
    ("form", "written", "expected"),
    [
        ("string", "é".encode(), "é"),
        ("string", b"", ""),
        ("string", None, "absent"),
        ("string", b"\xff", "bad"),
        ("json", b"[1, 2", "[1, 2"),
        ("json", b"\xff", "bad"),
        ("int", (-5).to_bytes(4, "big", signed=True), "-5"),
        ("int", b"\x00" * 5, "bad"),
        ("int", None, "absent"),
        ("long", (2**53 + 1).to_bytes(8, "big"), "9007199254740993"),
        ("long", b"\x00" * 4, "bad"),
        ("binary", b"\xff\x00", "/wA="),
        ("binary", None, "absent"),
        ("avro", b"\x0e", '{"n":7}'),
        ("avro", b"", "bad"),
        ("avro", None, "absent"),
    ],
)
def test_every_decoder(form: Form, written: bytes | None, expected: object) -> None:
    assert value(form, written) == expected


def test_avro_by_a_registry_in_both_parts() -> None:
    number, text = RegisteredSchema(1, AVRO), RegisteredSchema(2, '"string"')
    values = [b"\0\0\0\0\1\x0e", b"\0\0\0\0\1\x0e", None, b"\0\0\0\0\2\x02\xff"]
    keys = [b"\0\0\0\0\2\x02k", None, b"\0\0\0\0\2\x02k", None]
    read = batch(values, keys)
    columns = {
        **read.columns,
        "key schema": [text, None, text, None],
        "value schema": [number, None, None, text],
    }
    wire = records_wire("t", Decode("avro", "avro", registry=True))
    made = wire.encode(replace(read, columns=columns))
    first, bad, tombstone, no_text = fragments(made)
    assert json.loads(first[:-1])["key"] == "k"
    assert json.loads(first[:-1])["value"] == '{"n":7}'
    assert "value" not in json.loads(tombstone[:-1])
    assert (bad, no_text, made.decode_errors) == (b"", b"", 2)
    closing = records_wire("t", Decode("avro", "avro", registry=True, close=True))
    assert closing.encode(replace(read, columns=columns)).failing == (1, 3)


@given(st.lists(st.sampled_from([b"a", b"\xff", None, b"x" * 90, "text", {"a": 1}, object()]), max_size=6))
@settings(max_examples=examples(100), deadline=None)
def test_every_record_is_what_it_is_alone(values: list[object]) -> None:
    most = 120
    made = encoded(values, most=most)
    alone = [encoded([each], most=most) for each in values]
    for index, (fragment, single) in enumerate(zip(fragments(made), alone, strict=True)):
        assert fragment.replace(b'"offset":%d' % (7 + index), b'"offset":7', 1) == single.buffer
    assert made.decode_errors == sum(single.decode_errors for single in alone)
    assert made.unsendable == tuple(index for index, single in enumerate(alone) if single.unsendable)
    counts = made.prefix_counts if made.prefix_counts is not None else range(len(values) + 1)
    assert [b - a for a, b in pairwise(counts)] == [bool(s.buffer) for s in alone]


def test_a_bad_record_ends_it_where_the_source_says_so() -> None:
    made = encoded([b"a", b"\xff", b"b", b"\xff"], Decode("string", close=True))
    assert made.failing == (1, 3)
    assert (json.loads(fragments(made)[0][:-1])["value"], made.decode_errors) == ("a", 0)


def test_a_projection_is_text_and_the_key_stays() -> None:
    columns: dict[str, Sequence[object]] = {
        "key": [b"k"],
        "value": [b"no"],
        "timestamp": [-1],
        PROJECTION: [b'{"a":"\xc3\xa9"}'],
    }
    found = records_wire("t", Decode(), projects=True).encode(Batch({0: 0}, [0], [0], columns, cost=1))
    assert json.loads(found.buffer[:-1]) == {
        "key": "k",
        "value": '{"a":"é"}',
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestamp": -1,
    }


def test_a_source_without_value_gives_an_object_of_its_columns() -> None:
    found = records_wire("c", Decode()).encode(Batch({0: 0}, [0], [3], {"count": [4]}, cost=1))
    assert json.loads(found.buffer[:-1]) == {
        "value": '{"count":4}',
        "topic": "c",
        "partition": 0,
        "offset": 3,
        "timestamp": -1,
    }


def test_equal_formats_are_one_and_others_are_not() -> None:
    assert records_wire("t", Decode()) is records_wire("t", Decode())
    keys = {
        records_wire(table, Decode(form), projects=projects).key
        for table in ("t", "u")
        for form in ("json", "int")
        for projects in (False, True)
    }
    assert len(keys) == 8


def test_an_empty_batch() -> None:
    assert fragments(encoded([])) == []


def test_any_table_is_a_string() -> None:
    made = records_wire('a "b"', Decode()).encode(batch([b"x"]))
    assert json.loads(made.buffer[:-1])["topic"] == 'a "b"'


def test_a_batch_with_uneven_columns_cannot_be_encoded() -> None:
    columns: dict[str, Sequence[object]] = {"value": [b"a"]}
    with pytest.raises(EncodingFailed):
        records_wire("t", Decode()).encode(Batch({0: 0}, [0, 0], [0, 1], columns, cost=1))
