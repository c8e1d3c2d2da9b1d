"""Values whose schemas are in a registry: a zero, the id, the datum."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import fastavro
import pytest

from kiwi_gw.model import SCHEMA_COLUMNS, Batch, Decode, batch_pieces
from kiwi_gw.query.avro import MOST_PARTS, MOST_READS, RegisteredSchema, schema_id
from kiwi_gw.query.decode import decode_mistake, decoded_column
from kiwi_gw.query.decoded_batch import DecodedBatch
from kiwi_gw.query.values import UNDECODABLE

V1 = {"type": "record", "name": "F", "fields": [{"name": "a", "type": "string"}]}
V2 = {"type": "record", "name": "F", "fields": [*V1["fields"], {"name": "b", "type": ["null", "long"]}]}
ANY = Decode("avro", "avro", registry=True)


def registered(number: int, schema: Any, *references: Any) -> RegisteredSchema:
    return RegisteredSchema(number, json.dumps(schema), [json.dumps(each) for each in references])


def datum(schema: Any, value: Any) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), value)
    return written.getvalue()


def head(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (head(1), 1),
        (head(0) + b"x", 0),
        (b"\0\xff\xff\xff\xff", 2**32 - 1),
        (b"\0\1\2\3\4\5", 0x01020304),
        (b"\1\0\0\0\1", None),
        (b'{"a":1}', None),
        (b"\0\0\0\1", None),
        (b"", None),
    ],
)
def test_the_id_of_a_schema(value: bytes, number: int | None) -> None:
    assert schema_id(value) == number


def test_each_value_by_its_own_schema() -> None:
    one, two = registered(7, V1), registered(8, V2)
    first = head(7) + datum(V1, {"a": "x"})
    second = head(8) + datum(V2, {"a": "y", "b": 5})
    values = [first, second, None, first, second[:-1], second + b"\0", b"", head(7), "text", second]
    schemas = [one, two, None, None, two, two, None, one, None, one]
    columns: dict[str, Sequence[Any]] = {"value": values, SCHEMA_COLUMNS["value"]: schemas}
    read = [{"a": "x"}, {"a": "y", "b": 5}, None, *[UNDECODABLE] * 5, "text", UNDECODABLE]
    assert decoded_column(ANY, "value", columns) == read
    assert decoded_column(ANY, "value", columns, slice(1, 3)) == read[1:3]
    # Without schemas beside them nothing can be read, and nothing is guessed.
    assert decoded_column(ANY, "value", {"value": [first, None]}) == [UNDECODABLE, None]
    assert decoded_column(Decode("string", "avro", registry=True), "value", {"value": [b"x"]}) == ["x"]


def test_text_that_is_none() -> None:
    assert registered(1, "string").read(head(1) + b"\x02\xff") is UNDECODABLE


def test_a_batch_is_read_in_pieces_and_turns_as_a_whole() -> None:
    one, two = registered(7, V1), registered(8, V2)
    values = [
        head(7) + datum(V1, {"a": str(n)}) if n % 3 else head(8) + datum(V2, {"a": str(n), "b": n})
        for n in range(1_500)
    ]
    schemas = [one if n % 3 else two for n in range(1_500)]
    columns: dict[str, Sequence[Any]] = {
        "value": values,
        "key": [None] * 1_500,
        SCHEMA_COLUMNS["value"]: schemas,
    }
    batch = Batch({0: 0}, [0] * 1_500, range(1_500), columns, cost=100_000)
    whole = DecodedBatch(batch, ANY).column("value")
    assert whole == [{"a": str(n)} if n % 3 else {"a": str(n), "b": n} for n in range(1_500)]
    pieces = list(batch_pieces(batch))
    assert len(pieces) > 1
    assert [row for piece in pieces for row in DecodedBatch(piece, ANY).column("value")] == whole


def test_a_topic_of_several_types_has_a_union_of_their_names() -> None:
    one = {"type": "record", "name": "x.One", "fields": [{"name": "i", "type": "int"}]}
    two = {"type": "record", "name": "Two", "fields": [{"name": "s", "type": "string"}]}
    union = registered(3, ["x.One", "Two", "null"], one, two)
    assert union.read(head(3) + b"\x00\x06") == {"i": 3}
    assert union.read(head(3) + b"\x02\x02a") == {"s": "a"}
    assert union.read(head(3) + b"\x04") is None
    assert registered(3, "Two", one, two).read(head(3) + b"\x02a") == {"s": "a"}
    assert registered(3, {"type": "map", "values": "x.One"}, one).read(head(3) + b"\x02\x02a\x06\0") == {
        "a": {"i": 3}
    }


def test_types_of_other_schemas() -> None:
    inner = {"type": "record", "name": "x.Inner", "fields": [{"name": "i", "type": "int"}]}
    middle = {"type": "record", "name": "x.Middle", "fields": [{"name": "in", "type": "x.Inner"}]}
    outer = {"type": "record", "name": "x.Outer", "fields": [{"name": "m", "type": ["null", "Middle"]}]}
    value = head(3) + b"\x02\x06"
    assert registered(3, outer, inner, middle).read(value) == {"m": {"in": {"i": 3}}}
    with pytest.raises(ValueError, match="no Avro schema"):
        registered(3, outer, inner)


@pytest.mark.parametrize(
    "text",
    ['"', "5", "{}", '"x.Unknown"', '{"type": "record"}', '{"type": "enum", "name": "e"}', "[" * 10_000],
)
def test_what_is_no_schema(text: str) -> None:
    with pytest.raises(ValueError, match="no Avro schema"):
        RegisteredSchema(1, text)


EMPTY = {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}


@pytest.mark.parametrize(
    "items", ["null", EMPTY, {"type": "fixed", "name": "f", "size": 0}, {"type": "null"}]
)
def test_an_array_of_nothing_is_refused_for_ten_bytes_could_hold_a_billion_of_it(items: Any) -> None:
    array = {"type": "array", "items": items}
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", array]}]}
    for schema in (array, record, {"type": "map", "values": array}):
        with pytest.raises(ValueError, match="takes no bytes"):
            registered(1, schema)
    registered(1, {"type": "array", "items": ["null", "int"]})


@pytest.mark.parametrize(("head", "tail"), [("[", "]"), ('{"type":"array","items":', "}")])
def test_a_schema_that_is_nested_too_deeply_is_refused(head: str, tail: str) -> None:
    for depth in range(100, 900, 100):
        with suppress(ValueError):  # from which depth on it is too much depends on the stack
            RegisteredSchema(1, head * depth + '"int"' + tail * depth)
    with pytest.raises(ValueError, match="this is no Avro schema"):
        RegisteredSchema(1, head * 980 + '"int"' + tail * 980)


@pytest.mark.parametrize("leaf", ["null", "int"])
def test_records_in_records_are_looked_at_once_each(leaf: str) -> None:
    """Who looks at each member anew takes 2^50 steps, and so does who reads what takes no bytes."""
    nested: Any = {"type": "record", "name": "A", "fields": [{"name": "n", "type": leaf}]}
    for level in range(50):
        fields = [{"name": "a", "type": nested}, {"name": "b", "type": nested["name"]}]
        nested = {"type": "record", "name": f"R{level}", "fields": fields}
    for schema in (nested, {"type": "array", "items": nested}):
        if leaf == "int":
            registered(1, schema)
            continue
        with pytest.raises(ValueError, match=r"takes no bytes|of 0 bytes would be"):
            registered(1, schema)


def test_a_schema_that_holds_itself_is_read_however_deep_its_values_are() -> None:
    """The compiled reader of fastavro ends the process at some 4,500 levels (8 MiB of stack)."""
    chain = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    schema = registered(1, chain)
    assert schema.read(head(1) + b"\2\2\0") == {"next": {"next": {"next": None}}}
    assert schema.read(head(1) + b"\2" * 1_000_000 + b"\0") is UNDECODABLE
    inner = {"type": "record", "name": "I", "fields": [{"name": "out", "type": ["null", "O"]}]}
    outer = {
        "type": "record",
        "name": "O",
        "fields": [{"name": "in", "type": {"type": "array", "items": inner}}],
    }
    assert registered(1, outer).read(head(1) + b"\2\2" * 500_000) is UNDECODABLE


@pytest.mark.parametrize(
    ("items", "value", "fits"),
    [
        ("boolean", True, MOST_PARTS - 2),
        ("long", 1_000_000, MOST_PARTS - 2),
        ("long", 1_795_250_845_120, (MOST_READS - 4) // 6),
        ("string", "twelve chars", MOST_PARTS // 2 - 1),
        (
            {"type": "record", "name": "r", "fields": [{"name": "b", "type": "boolean"}]},
            {"b": True},
            MOST_PARTS - 2,
        ),
    ],
    ids=["boolean", "long", "longer", "string", "record"],
)
def test_a_datum_of_very_many_parts_is_bad(items: Any, value: Any, fits: int) -> None:
    # Beside the items, an array has its length and its end.
    schema = {"type": "array", "items": items}
    one = registered(1, schema)
    for count, read in (fits, [value] * fits), (fits + 1, UNDECODABLE):
        began = time.thread_time()
        # A large one is counted; a byte more makes any of these large, and is none of the datum.
        found = one.read(head(1) + datum(schema, [value] * count) + b"\0" * (items == "boolean"))
        assert time.thread_time() - began < 2.0, "ten times as much as it takes"
        assert found == (UNDECODABLE if items == "boolean" else read)


def test_flags_and_numbers_that_go_on_and_on_are_bad_soon() -> None:
    million = 1_000_000
    flags = head(1) + b"\x80\x89\x7a" + b"\xff" * million + b"\0"
    for items in "boolean", {"type": "fixed", "name": "f", "size": 1}:
        began = time.thread_time()
        assert registered(1, {"type": "array", "items": items}).read(flags) is UNDECODABLE
        assert time.thread_time() - began < 2.0, "ten times as much as it takes"
    mixed = (b"\xff" * 8 + b"\1") * (million // 9)
    one = registered(1, {"type": "array", "items": "boolean"})
    assert one.read(head(1) + datum("long", len(mixed)) + mixed + b"\0") is UNDECODABLE
    assert registered(1, "long").read(head(1) + b"\x80" * million) is UNDECODABLE


def test_no_schema_names_the_record_that_is_put_around_it() -> None:
    for schema in "kiwi_gw_datum", ["null", "kiwi_gw_datum"], {**V1, "name": "kiwi_gw_datum"}:
        with pytest.raises(ValueError, match="kiwi_gw_datum"):
            registered(1, schema)
    with pytest.raises(ValueError, match="kiwi_gw_datum"):
        registered(1, "string", {**V1, "name": "kiwi_gw_datum"})


def test_a_deep_value_of_an_error_is_read_like_one_of_a_record() -> None:
    text = '{"type": "KIND", "name": "E", "fields": [{"name": "x", "type": ["null", "E"]}]}'
    for kind in "record", "error":
        one = RegisteredSchema(1, text.replace("KIND", kind))
        assert one.read(head(1) + b"\2" * 20_000 + b"\0") is UNDECODABLE
        assert one.read(head(1) + b"\2\0") == {"x": {"x": None}}


@pytest.mark.parametrize(
    "kind", ['"bytes"', r'"\u0062ytes"', '{"type": "f\\u0069xed", "name": "f", "size": 2}']
)
def test_bytes_are_text_however_the_schema_is_written(kind: str) -> None:
    text = '{"type": "array", "items": {"type": "map", "values": ["null", KIND]}}'.replace("KIND", kind)
    value = datum(json.loads(text), [{"a": b"\xff\0", "b": None}])
    assert RegisteredSchema(1, text).read(head(1) + value) == [{"a": "/wA=", "b": None}]
    named = RegisteredSchema(
        1,
        '{"type": "array", "items": "x.m"}',
        ['{"type": "record", "name": "x.m", "fields": [{"name": "b", "type": KIND}]}'.replace("KIND", kind)],
    )
    assert named.read(head(1) + b"\x02" + (b"\x04" if "ytes" in kind else b"") + b"\xff\0\0") == [
        {"b": "/wA="}
    ]


def test_what_a_configuration_may_have_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decode_mistake(ANY) is None
    monkeypatch.setitem(sys.modules, "fastavro", None)
    assert "kiwi-gw[avro]" in str(decode_mistake(ANY))
