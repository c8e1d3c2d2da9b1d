"""Schemas by which few bytes become much are refused; what people have is not."""

from __future__ import annotations

import io
import json
import time
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_gw.query.avro import RegisteredSchema, datum_reader, parse
from kiwi_gw.query.avro_bounds import MOST_CHARACTERS, MOST_VALUES, RECORD_BYTES, check_bounds
from kiwi_gw.query.values import UNDECODABLE


def nested(width: int, depth: int, leaf: Any = "null") -> Any:
    """A record of so many that are the same, so deep."""
    inner = leaf
    for level in range(depth):
        name = f"R{level}"
        own: dict[str, Any] = {"type": "record", "name": name}
        own["fields"] = [
            {"name": f"f{n}", "type": inner if n == 0 or not isinstance(inner, dict) else inner["name"]}
            for n in range(width)
        ]
        inner = own
    return inner


def record(**fields: Any) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def array(items: Any) -> Any:
    return {"type": "array", "items": items}


@pytest.mark.parametrize(
    "schema",
    [
        "null",
        "string",
        record(),
        record(a="null", b="null"),
        record(a="int", b=["null", "string"], c={"type": "map", "values": "double"}),
        {"type": "record", "name": "Tree", "fields": [{"name": "left", "type": ["null", "Tree"]}]},
        {"type": "record", "name": "List", "fields": [{"name": "more", "type": array("List")}]},
        nested(10, 3, "int"),
        nested(1, 30),
        record(**{f"a_name_of_some_length_{n}": "boolean" for n in range(500)}),
        {"type": "enum", "name": "E", "symbols": ["A" * 200, "B"]},
        array({"type": "fixed", "name": "F", "size": 1}),
        array(nested(2, 2, "int")),
        array(["null", record(a="null")]),
    ],
)
def test_what_is_usual(schema: Any) -> None:
    check_bounds(*parse(json.dumps(schema)))
    RegisteredSchema(1, json.dumps(schema))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (nested(20, 3), "would be 8,421 values"),
        (nested(60, 6), "would be 1,000,000,000 values"),
        (array(record(a="int", **{f"n{n}": "null" for n in range(20)})), "of 1 bytes would be 22 values"),
        (["null", nested(30, 2)], "values"),
        ({"type": "map", "values": nested(30, 2)}, "values"),
        (array(record(**{"n" * 300: "boolean"})), "characters"),
        (array({"type": "enum", "name": "E", "symbols": ["A" * 300, "B"]}), "characters"),
        (array(nested(1, 20, "int")), "of 1 bytes would be 21 values"),
        (array("null"), "takes no bytes"),
        (array(record(a="null", b=record(x="null") | {"name": "S"})), "takes no bytes"),
        (array({"type": "fixed", "name": "F", "size": 0}), "takes no bytes"),
        (record(a=array(nested(60, 20))), "takes no bytes"),
    ],
)
def test_what_is_not(schema: Any, words: str) -> None:
    began = time.thread_time()
    with pytest.raises(ValueError, match=words):
        RegisteredSchema(1, json.dumps(schema))
    with pytest.raises(ValueError, match=words):
        datum_reader(json.dumps(schema), guarded=True)
    assert time.thread_time() - began < 1, "it is not found out by trying"


def test_what_is_nested_too_deeply_is_no_schema_that_can_be_used() -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"f","type":' * 3_000 + '"int"' + "}]}" * 3_000
    for given_text in (text, text[: len(text) // 2]):
        with pytest.raises(ValueError, match=r"."):
            RegisteredSchema(1, given_text)


# --- no datum becomes more than was measured ---------------------------------------------------------------

names = st.sampled_from(["a", "b" * 40, "c" * 120, "d"])
leaves = st.sampled_from(["null", "boolean", "int", "double", "string"])
shapes = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(array, inner),
        st.builds(lambda values: {"type": "map", "values": values}, inner),
        st.builds(
            lambda branch: ["null", branch] if branch != "null" else "null",
            inner.filter(lambda s: not isinstance(s, list)),
        ),
        st.dictionaries(names, inner, max_size=4).map(lambda fields: record(**fields)),
    ),
    max_leaves=12,
)


def _named(schema: Any, numbers: Any) -> Any:
    """Give every record a name of its own."""
    match schema:
        case list():
            return [_named(part, numbers) for part in schema]
        case {"type": "record", "fields": fields}:
            return {
                "type": "record",
                "name": f"R{next(numbers)}",
                "fields": [{**field, "type": _named(field["type"], numbers)} for field in fields],
            }
        case {"items": inner}:
            return array(_named(inner, numbers))
        case {"values": inner}:
            return {"type": "map", "values": _named(inner, numbers)}
    return schema


def _datum(schema: Any, data: st.DataObject) -> Any:
    match schema:
        case "null":
            return None
        case "boolean":
            return data.draw(st.booleans())
        case "int":
            return 0
        case "double":
            return 0.5
        case "string":
            return ""
        case list():
            return _datum(data.draw(st.sampled_from(schema)), data)
        case {"items": inner}:
            return [_datum(inner, data) for _ in range(data.draw(st.integers(0, 4)))]
        case {"values": inner}:
            return {f"{n}": _datum(inner, data) for n in range(data.draw(st.integers(0, 3)))}
    return {field["name"]: _datum(field["type"], data) for field in schema["fields"]}


def _values(value: Any) -> int:
    match value:
        case dict():
            return 1 + sum(map(_values, value.values()))
        case list():
            return 1 + sum(map(_values, value))
    return 1


@given(shapes, st.data())
def test_no_datum_becomes_more_than_its_bytes_allow(shape: Any, data: st.DataObject) -> None:
    schema = _named(shape, iter(range(1_000)))
    try:
        read = RegisteredSchema(1, json.dumps(schema)).read
    except ValueError:
        return
    out = io.BytesIO(b"\0\0\0\0\1")
    out.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), _datum(schema, data))
    found = read(out.getvalue())
    assert found is not UNDECODABLE
    taken = len(out.getvalue()) - 5 + RECORD_BYTES
    assert _values(found) <= MOST_VALUES * taken
    assert len(json.dumps(found, separators=(",", ":"))) <= MOST_CHARACTERS * taken
