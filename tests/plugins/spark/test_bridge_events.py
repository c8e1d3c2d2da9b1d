"""What Spark gets of events of any shape."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from kiwi_gw.api import Batch, Encoded, Field, Kind, Shape, SourceInfo
from kiwi_spark.bridge_events import spark_events
from kiwi_spark.bridge_wire import MAX_EVENT, Event, events

SOURCE = (Field("sourceId", Kind.SOURCE_ID), Field("sourceType", Kind.SOURCE_TYPE))


def encoded(fields: Sequence[Field], columns: Mapping[str, Sequence[object]]) -> Encoded:
    size = len(next(iter(columns.values())))
    batch = Batch({0: 5}, [0] * size, range(5, 5 + size), columns, cost=size)
    return spark_events(SourceInfo("s", "any", Shape((*SOURCE, *fields)))).encode(batch)


def rows(fields: Sequence[Field], **columns: Sequence[object]) -> list[Event]:
    return list(events(encoded(fields, columns).buffer))


def test_key_and_value_are_the_bytes_that_the_members_hold() -> None:
    fields = (Field("key", Kind.TEXT), Field("value", Kind.BASE64, column="body"))
    found = rows(fields, key=[b"k", None], body=[b"\xff", None], timestamp=[7, -1])
    assert found == [(b"k", b"\xff", 0, 5, 7), (None, None, 0, 6, -1)]


def test_json_is_taken_as_it_is_and_other_values_are_written_as_json() -> None:
    assert rows((Field("value", Kind.JSON),), value=[b'{"a": 1}'])[0][1] == b'{"a": 1}'
    assert rows((Field("value", Kind.INT, none=-1),), value=[3, -1])[1][1] is None
    assert rows((Field("value", Kind.INT),), value=[3])[0][1] == b"3"
    assert rows((Field("value", Kind.STRING),), value=["h\u00e9"])[0][1] == "h\u00e9".encode()
    assert rows((Field("value", Kind.VALUE),), value=[{"a": [1, None]}])[0][1] == b'{"a":[1,null]}'


def test_without_a_value_it_is_the_object_of_the_members() -> None:
    fields = (
        Field("count", Kind.INT),
        Field("none", Kind.INT, none=-1),
        Field("text", Kind.TEXT),
        Field("raw", Kind.BASE64),
        Field("json", Kind.JSON),
        Field("headers", Kind.HEADERS),
        Field("offset", Kind.INT),
    )
    columns: dict[str, Sequence[object]] = {
        "count": [3, 4],
        "none": [-1, 1],
        "text": [b"t", b"\xff"],
        "raw": [b"\xff", None],
        "json": [b"[1]", None],
        "headers": [[("a", b"x")], []],
    }
    found = [(key, json.loads(value or b"")) for key, value, *_ in rows(fields, **columns)]
    headers = [{"key": "a", "value": "eA=="}]
    one = {"count": 3, "none": None, "text": "t", "raw": "/w==", "json": [1], "headers": headers, "offset": 5}
    two = {"count": 4, "none": 1, "text": None, "textBase64": "/w==", "raw": None, "json": None}
    assert found == [(None, one), (None, {**two, "headers": [], "offset": 6})]


def test_what_cannot_be_written_or_is_too_large_is_given_up_and_not_left_out() -> None:
    fields = (Field("value", Kind.VALUE),)
    found = encoded(fields, {"value": ["a", object(), "c"]})
    assert (found.unsendable, list(found.tally or ())) == ((1,), [0, 1, 1, 2])
    assert [row[3] for row in events(found.buffer)] == [5, 7]
    found = encoded((Field("value", Kind.TEXT),), {"value": [bytes(MAX_EVENT), b"b"]})
    assert found.unsendable == (0,)
    assert len(found.ends) == 2
