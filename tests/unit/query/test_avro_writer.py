"""Avro data made of JSON, read back by fastavro and by our own reader."""

from __future__ import annotations

import io
import json
import time
from base64 import b64encode
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_gw.query.avro import datum_reader
from kiwi_gw.query.avro_writer import datum_writer, schema_text

PERSON = {
    "type": "record",
    "name": "x.Person",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "age", "type": ["null", "int"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "boss", "type": ["null", "x.Person"], "default": None},
        {"name": "level", "type": {"type": "enum", "name": "Level", "symbols": ["LOW", "HIGH"]}},
        {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}, "default": "\u00ff\u0000"},
        {"name": "counts", "type": {"type": "map", "values": "long"}, "default": {}},
        {"name": "score", "type": "double", "default": 0.5},
    ],
}


def written(schema: Any, value: Any) -> bytes:
    return datum_writer(json.dumps(schema))(value)


def read_by_fastavro(schema: Any, data: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(schema), None)


def test_a_record_with_everything() -> None:
    boss = {"name": "b", "level": "HIGH"}
    value = {"name": "é", "age": 7, "tags": ["x", "y"], "boss": boss, "level": "LOW", "counts": {"a": -1}}
    data = written(PERSON, value)
    rest: dict[str, Any] = {
        "age": None,
        "tags": [],
        "boss": None,
        "raw": b"\xff\x00",
        "counts": {},
        "score": 0.5,
    }
    assert read_by_fastavro(PERSON, data) == {**rest, **value, "boss": {**rest, **boss}}
    found = datum_reader(json.dumps(PERSON))(data)
    assert isinstance(found, dict)
    assert found["raw"] == "/wA="
    assert written(PERSON, found) == data


types = st.sampled_from(
    [
        ("null", st.none()),
        ("boolean", st.booleans()),
        ("int", st.integers(-(2**31), 2**31 - 1)),
        ("long", st.integers(-(2**63), 2**63 - 1)),
        ("double", st.floats(allow_nan=False)),
        ("string", st.text(max_size=5)),
    ]
)


@given(data=st.data(), parts=st.lists(types, min_size=1, max_size=5, unique_by=lambda part: part[0]))
def test_unions_lists_and_maps(data: st.DataObject, parts: list[tuple[str, Any]]) -> None:
    union: Any = [name for name, _ in parts]
    value = data.draw(st.one_of([values for _, values in parts]))
    for schema, whole in (
        (union, value),
        ({"type": "array", "items": union}, [value, value]),
        ({"type": "map", "values": union}, {"k": value}),
    ):
        assert read_by_fastavro(schema, written(schema, whole)) == whole


def test_which_record_of_a_union_is_said_by_its_name() -> None:
    record = {"type": "record", "fields": [{"name": "a", "type": "int"}]}
    union: Any = [{**record, "name": "A"}, {**record, "name": "B"}]
    data = written(union, {"B": {"a": 1}})
    assert data == b"\x02\x02"
    with pytest.raises(ValueError, match=r"must say which of A, B it is"):
        written(union, {"a": 1})


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        ("int", 2**31, "an integer of 32 bits"),
        ("int", True, "an integer of 32 bits"),
        ("int", 1.0, "an integer of 32 bits"),
        ("float", "x", "a number"),
        ("float", 1e300, "a number"),
        ("double", True, "a number"),
        ("string", 1, "a string"),
        ("string", "\ud800", "a surrogate"),
        ("bytes", "?", "base64"),
        (["null", "int"], "x", "one of null, int"),
        (PERSON, {"name": "x"}, "lacks the member 'level'"),
        (PERSON, {"name": "x", "level": "LOW", "more": 1}, "no member 'more'"),
        (PERSON, {"name": "x", "level": "MID"}, "level: must be one of the symbols"),
        (
            PERSON,
            {"name": "x", "level": "LOW", "boss": {"name": 1, "level": "LOW"}},
            "boss.name: must be a string",
        ),
        ({"type": "array", "items": "int"}, {}, "an array"),
        ({"type": "map", "values": "int"}, [], "an object"),
    ],
)
def test_what_does_not_fit_is_said(schema: Any, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        written(schema, value)


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        '"nothing"',
        "17",
        '{"type":"array","items":' * 2_000 + '"int"' + "}" * 2_000,
        json.dumps(["int", "x" * 70_000]),
    ],
)
def test_a_schema_that_is_none(schema: str) -> None:
    with pytest.raises(ValueError, match=r"Avro schema"):
        datum_writer(schema)


def test_a_record_that_is_its_own_default_ends() -> None:
    endless = {"type": "record", "name": "A", "fields": [{"name": "a", "type": "A", "default": {}}]}
    with pytest.raises(ValueError, match="nested too deeply"):
        written(endless, {})


def test_unions_of_records_that_are_alike_take_no_longer_than_their_size() -> None:
    """Who tries all branches at every level takes 2^50 steps here."""
    inner: Any = "int"
    value: Any = 1
    for level in range(50):
        same = {"type": "record", "name": f"A{level}", "fields": [{"name": "a", "type": inner}]}
        other = {"type": "record", "name": f"B{level}", "fields": [{"name": "a", "type": "string"}]}
        inner, value = [same, other], {f"A{level}": {"a": value}}
    began = time.process_time()
    written(inner, value)
    assert time.process_time() - began < 1


def _defaults_of_defaults(width: int, depth: int, leaf: str, default: Any) -> Any:
    """A record whose members have defaults whose members have defaults."""
    inner: Any = leaf
    for level in range(depth):
        types = [inner if level == 0 or n == 0 else inner["name"] for n in range(width)]
        fields = [{"name": f"f{n}", "type": kind, "default": default} for n, kind in enumerate(types)]
        inner, default = {"type": "record", "name": f"R{level}", "fields": fields}, {}
    return inner


@pytest.mark.cost
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (_defaults_of_defaults(60, 6, "null", None), {}),
        (_defaults_of_defaults(60, 6, "int", 0), {}),
        (_defaults_of_defaults(2, 12, "string", "x" * 10_000), {}),
        ({"type": "array", "items": _defaults_of_defaults(400, 1, "null", None)}, [{}] * 300_000),
        ({"type": "array", "items": _defaults_of_defaults(3, 1, "string", "x" * 8_000)}, [{}] * 300_000),
    ],
)
def test_what_has_very_much_by_default_is_refused_in_time(schema: Any, value: Any) -> None:
    write = datum_writer(json.dumps(schema))
    for _ in range(2):
        began = time.process_time()
        with pytest.raises(ValueError, match="becomes too large"):
            write(value)
        assert time.process_time() - began < 0.3
    with pytest.raises(ValueError, match="must be an"):
        write(7)


@pytest.mark.cost
def test_a_union_of_many_takes_no_longer_than_one_of_few() -> None:
    fixed = [{"type": "fixed", "name": f"F{n}", "size": 1} for n in range(600)]
    enum = {"type": "enum", "name": "E", "symbols": ["A"]}
    values = ["A"] * 20_000
    spent = []
    for branches in ([enum], [*fixed, enum]):
        write = datum_writer(json.dumps({"type": "array", "items": branches}))
        began = time.process_time()
        assert len(write(values)) >= 2 * len(values)
        spent.append(time.process_time() - began)
    assert spent[1] < 5 * spent[0]


def doubled(levels: int, inner: Any) -> Any:
    """Return a record with two members of a record with two members, and so on, which may all be left out."""
    for level in range(levels):
        name = inner["name"]
        fields = [{"name": "a", "type": inner, "default": {}}, {"name": "b", "type": name, "default": {}}]
        inner = {"type": "record", "name": f"D{level}", "fields": fields}
    return inner


@pytest.mark.parametrize(
    "field",
    [
        {"name": "n", "type": "null", "default": None},
        {"name": "s", "type": "string", "default": "x" * 100},
        {"name": "l", "type": {"type": "array", "items": "null"}, "default": [None] * 1_000},
    ],
)
def test_defaults_of_defaults_are_no_more_than_a_datum_may_have(field: Any) -> None:
    leaf = {"type": "record", "name": "Leaf", "fields": [field]}
    assert len(written(doubled(3, leaf), {})) == 8 * len(written(leaf, {}))
    began = time.process_time()
    for schema, value in (
        (doubled(50, leaf), {}),
        ({"type": "array", "items": leaf}, [{}] * 100_000),
    ):
        with pytest.raises(ValueError, match="becomes too large"):
            written(schema, value)
    assert time.process_time() - began < 1


def test_how_a_definition_may_be_given() -> None:
    text = '{"type":"int"}'
    for given_as in ({"type": "int"}, text, b64encode(text.encode()).decode()):
        assert schema_text(given_as) == text
    assert schema_text("int") == '"int"'
    with pytest.raises(ValueError, match="the definition must be"):
        schema_text("?!")
