"""A query before a format: places, counts, and whether all is as if the format had seen each event alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.dialects.kiwi.results import kiwi_wire
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import Batch, Decode, Field, Kind, Shape, SourceInfo, WireFormat
from kiwi_gw.query.compiler import compiled
from kiwi_gw.query.filtered import filtered, projected
from kiwi_gw.query.sql import ROOTS, read
from kiwi_kafka.shape import event_shape
from kiwi_spark.plugin import SPARK
from kiwi_spark.shape import SHAPE as SPARK_SHAPE
from tests.effort import examples
from tests.transcripts.recorded import texts

INFO = SourceInfo("s", "kafka", event_shape())


def form(
    where: str | None, select: str | None = None, info: SourceInfo = INFO, most: int = 10**6
) -> WireFormat:
    query = read(where, select)
    inner = kiwi_wire(info if select is None else projected(info), "flat", most)
    return filtered(inner, query, compiled(query, ROOTS), info)


def batch(values: list[bytes | None]) -> Batch:
    size = len(values)
    columns: dict[str, Sequence[object]] = {"key": [None] * size, "value": values, "timestamp": [-1] * size}
    return Batch({0: 0}, [0] * size, list(range(size)), columns, cost=1)


def offsets(frames: bytes) -> list[int]:
    return [json.loads(text)["data"]["offset"] for text in texts(frames)]


@given(st.lists(st.sampled_from([b'{"n":1}', b'{"n":2}', b"no", b"{}", None, b'{"n":"1"}'])))
@settings(max_examples=examples(100), deadline=None)
def test_every_event_is_where_it_is_alone(values: list[bytes | None]) -> None:
    made = form("value.n = 1")
    whole = made.encode(batch(values))
    assert len(whole.ends) == len(values)
    tally = whole.tally if whole.tally is not None else range(len(values) + 1)
    start = 0
    for index, value in enumerate(values):
        alone = made.encode(batch([value]))
        passes = value in (b'{"n":1}', b'{"n":"1"}')
        own = whole.buffer[start : whole.ends[index]]
        assert offsets(own) == ([index] if passes else [])
        assert tally[index + 1] - tally[index] == len(offsets(own)) == len(offsets(alone.buffer))
        start = whole.ends[index]
    assert whole.bad == values.count(b"no")


def test_what_is_too_large_after_the_filter_is_where_it_was() -> None:
    big = json.dumps({"n": 1, "pad": "x" * 2000}).encode()
    whole = form("value.n = 1", most=1000).encode(batch([b'{"n":2}', big, b'{"n":1}']))
    assert whole.unsendable == (1,)
    assert offsets(whole.buffer) == [2]
    whole = form("value.n = 1", "value.n", most=1000).encode(batch([b'{"n":2}', big, b'{"n":1}']))
    assert whole.unsendable == ()
    assert offsets(whole.buffer) == [1, 2]


def test_many_filters_of_one_batch_give_what_each_gives_alone() -> None:
    odd: list[bytes | None] = [b"no JSON", None]
    for values in ([b'{"n":%d}' % n for n in range(30)], [b'{"n":1}', *odd, b'{"n":2}']):
        shared = batch(list(values))
        for n in range(6):
            where = f"value.n % {n + 1} = 0"
            among, alone = form(where).encode(shared), form(where).encode(batch(list(values)))
            assert among.buffer == alone.buffer
            assert list(among.ends) == list(alone.ends)
            assert list(among.tally or ()) == list(alone.tally or ())
            assert (among.bad, among.unsendable) == (alone.bad, alone.unsendable)


def test_filters_that_let_everything_pass_share_one_encoding() -> None:
    shared = batch([b'{"n":%d}' % n for n in range(30)])
    first, second = (form(f"value.n >= {-n}").encode(shared) for n in range(2))
    assert first is second
    assert offsets(first.buffer) == list(range(30))


def test_many_filters_and_an_event_that_is_too_large() -> None:
    shared = batch([b'{"n":1}', json.dumps({"n": 1, "pad": "x" * 2000}).encode(), b'{"n":2}'])
    for n in range(1, 6):
        found = form(f"value.n < {n + 1}", most=1000).encode(shared)
        assert found.unsendable == (1,)
        assert offsets(found.buffer) == ([0] if n == 1 else [0, 2])


def test_the_key_is_that_of_all_that_decides_the_bytes() -> None:
    assert form("value.n = 1").key == form("value.n=1").key
    others = [
        form("value.n = 1").key,
        form("value.n = 1.0").key,
        form("value.n = 2").key,
        form("value.n = 1", "value.n").key,
        form(None, "value.n").key,
        form("value.n = 1", info=replace(INFO, id="t")).key,
        form("value.n = 1", info=replace(INFO, decode=Decode("string"))).key,
        kiwi_wire(INFO).key,
    ]
    assert len(set(others)) == len(others)


def test_a_projection_that_cannot_be_made_is_bad() -> None:
    where, select = None, "repeat(value.s, 1000) AS r, offset"
    short, long = b'{"s":"a"}', json.dumps({"s": "a" * 1000}).encode()
    whole = form(where, select).encode(batch([short, long, short]))
    assert whole.bad == 1
    assert offsets(whole.buffer) == [0, 2]
    with pytest.raises(EncodingFailed, match="partition 0, offset 1"):
        form(where, select, replace(INFO, decode=Decode(close=True))).encode(batch([short, long, short]))


def names(info: SourceInfo, variant: str = "") -> list[tuple[str, Kind]]:
    return [(field.name, field.kind) for field in projected(info).shape.of(variant)]


def test_where_a_projection_is() -> None:
    about = [("sourceId", Kind.SOURCE_ID), ("sourceType", Kind.SOURCE_TYPE)]
    value = ("value", Kind.JSON)
    rest = [("partition", Kind.INT), ("offset", Kind.INT), ("timestamp", Kind.INT)]
    assert names(INFO) == [*about, ("key", Kind.TEXT), value, *rest]
    assert value in names(INFO, "original")
    assert ("payload", Kind.BASE64) not in names(INFO, "original")
    only_payload = replace(INFO, shape=event_shape(["payload", "headers"]))
    assert names(only_payload) == [*about, value, ("headers", Kind.HEADERS)]
    assert names(replace(INFO, shape=event_shape(["key"]))) == [*about, ("key", Kind.TEXT), value]
    counter = Shape((Field("sourceId", Kind.SOURCE_ID), Field("count", Kind.INT)))
    assert names(replace(INFO, shape=counter)) == [("sourceId", Kind.SOURCE_ID), value]


def test_rows_of_spark_are_json_already() -> None:
    decode = Decode(key="json")
    assert SPARK.decode == decode
    info = SourceInfo("q", "spark", SPARK_SHAPE, decode=decode)
    columns: dict[str, Sequence[object]] = {
        "batch": [3, 3],
        "row": [0, 1],
        "timestamp": [5, 5],
        "key": [b'"AA"', None],
        "value": [b'{"n":1.5}', b'{"n":2}'],
    }
    rows = Batch({0: 0}, [0, 0], [0, 1], columns, cost=1)
    whole = form("key = 'AA' AND timestamp = 5", "value.n + 1 AS more", info).encode(rows)
    assert [json.loads(text)["data"] for text in texts(whole.buffer)] == [
        {
            "sourceId": "q",
            "sourceType": "spark",
            "batch": 3,
            "row": 0,
            "timestamp": 5,
            "key": "AA",
            "value": {"more": 2.5},
        }
    ]
