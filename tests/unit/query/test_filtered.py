"""A query before a format: places, counts, and whether all is as if the format had seen each event alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.core.encoding import EncodingMemo, keyed_format
from kiwi_gw.core.window import MemoryBudget, WindowEntry
from kiwi_gw.dialects.kiwi.results import kiwi_wire
from kiwi_gw.model import Batch, Decode, EventSchema, Field, FieldEncoding, SourceInfo, WireFormat
from kiwi_gw.query.compiler import compile_query
from kiwi_gw.query.filtered import projected, query_transform
from kiwi_gw.query.sql import ROOTS, read
from kiwi_kafka.event_schema import event_schema
from kiwi_spark.gateway.positions import SCHEMA as SPARK_SHAPE
from kiwi_spark.plugin import SPARK
from tests.effort import examples
from tests.encoding import encoded
from tests.transcripts.recorded import texts

INFO = SourceInfo("s", "kafka", event_schema())


def form(
    where: str | None, select: str | None = None, info: SourceInfo = INFO, most: int = 10**6
) -> WireFormat:
    query = read(where, select)
    inner = kiwi_wire(info if select is None else projected(info), "flat", most)
    return replace(inner, transform=query_transform(query, compile_query(query, ROOTS), info))


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
    whole = encoded(made, batch(values))
    assert len(whole.ends) == len(values)
    prefix_counts = whole.prefix_counts if whole.prefix_counts is not None else range(len(values) + 1)
    start = 0
    for index, value in enumerate(values):
        alone = encoded(made, batch([value]))
        passes = value in (b'{"n":1}', b'{"n":"1"}')
        own = whole.buffer[start : whole.ends[index]]
        assert offsets(own) == ([index] if passes else [])
        assert (
            prefix_counts[index + 1] - prefix_counts[index] == len(offsets(own)) == len(offsets(alone.buffer))
        )
        start = whole.ends[index]
    assert whole.decode_errors == values.count(b"no")


def test_what_is_too_large_after_the_filter_is_where_it_was() -> None:
    big = json.dumps({"n": 1, "pad": "x" * 2000}).encode()
    whole = encoded(form("value.n = 1", most=1000), batch([b'{"n":2}', big, b'{"n":1}']))
    assert whole.unsendable == (1,)
    assert offsets(whole.buffer) == [2]
    whole = encoded(form("value.n = 1", "value.n", most=1000), batch([b'{"n":2}', big, b'{"n":1}']))
    assert whole.unsendable == ()
    assert offsets(whole.buffer) == [1, 2]


def test_many_filters_of_one_batch_give_what_each_gives_alone() -> None:
    odd: list[bytes | None] = [b"no JSON", None]
    for values in ([b'{"n":%d}' % n for n in range(30)], [b'{"n":1}', *odd, b'{"n":2}']):
        memo, shared = EncodingMemo(1 << 26, MemoryBudget(1 << 30)), WindowEntry(batch(list(values)), 0)
        for n in range(6):
            where = f"value.n % {n + 1} = 0"
            among = memo.encoded(shared, keyed_format(form(where)))
            alone = encoded(form(where), batch(list(values)))
            assert among.buffer == alone.buffer
            assert list(among.ends) == list(alone.ends)
            assert list(among.prefix_counts or ()) == list(alone.prefix_counts or ())
            assert (among.decode_errors, among.unsendable) == (alone.decode_errors, alone.unsendable)


def test_filters_that_let_everything_pass_share_one_encoding() -> None:
    memo = EncodingMemo(1 << 26, MemoryBudget(1 << 30))
    shared = WindowEntry(batch([b'{"n":%d}' % n for n in range(30)]), 0)
    first, second = (memo.encoded(shared, keyed_format(form(f"value.n >= {-n}"))) for n in range(2))
    assert first is second
    assert offsets(first.buffer) == list(range(30))


def test_many_filters_and_an_event_that_is_too_large() -> None:
    values = [b'{"n":1}', json.dumps({"n": 1, "pad": "x" * 2000}).encode(), b'{"n":2}']
    memo, shared = EncodingMemo(1 << 26, MemoryBudget(1 << 30)), WindowEntry(batch([*values]), 0)
    for n in range(1, 6):
        found = memo.encoded(shared, keyed_format(form(f"value.n < {n + 1}", most=1000)))
        assert found.unsendable == (1,)
        assert offsets(found.buffer) == ([0] if n == 1 else [0, 2])


def key(form: WireFormat) -> object:
    return keyed_format(form).key


def test_the_key_is_that_of_all_that_decides_the_bytes() -> None:
    assert key(form("value.n = 1")) == key(form("value.n=1"))
    others = [
        key(form("value.n = 1")),
        key(form("value.n = 1.0")),
        key(form("value.n = 2")),
        key(form("value.n = 1", "value.n")),
        key(form(None, "value.n")),
        key(form("value.n = 1", info=replace(INFO, id="t"))),
        key(form("value.n = 1", info=replace(INFO, decode=Decode("string")))),
        key(kiwi_wire(INFO)),
    ]
    assert len(set(others)) == len(others)


def test_a_projection_that_cannot_be_made_is_bad() -> None:
    where, select = None, "repeat(value.s, 1000) AS r, offset"
    short, long = b'{"s":"a"}', json.dumps({"s": "a" * 1000}).encode()
    whole = encoded(form(where, select), batch([short, long, short]))
    assert whole.decode_errors == 1
    assert offsets(whole.buffer) == [0, 2]
    closing = encoded(
        form(where, select, replace(INFO, decode=Decode(close=True))), batch([short, long, short])
    )
    assert (closing.failing, closing.decode_errors) == ((1,), 0)


def names(info: SourceInfo, variant: str = "") -> list[tuple[str, FieldEncoding]]:
    return [(field.name, field.kind) for field in projected(info).event_schema.of(variant)]


def test_where_a_projection_is() -> None:
    about = [("sourceId", FieldEncoding.SOURCE_ID), ("sourceType", FieldEncoding.SOURCE_TYPE)]
    value = ("value", FieldEncoding.JSON)
    rest = [("partition", FieldEncoding.INT), ("offset", FieldEncoding.INT), ("timestamp", FieldEncoding.INT)]
    assert names(INFO) == [*about, ("key", FieldEncoding.TEXT), value, *rest]
    assert value in names(INFO, "original")
    assert ("payload", FieldEncoding.BASE64) not in names(INFO, "original")
    only_payload = replace(INFO, event_schema=event_schema(["payload", "headers"]))
    assert names(only_payload) == [*about, value, ("headers", FieldEncoding.HEADERS)]
    assert names(replace(INFO, event_schema=event_schema(["key"]))) == [
        *about,
        ("key", FieldEncoding.TEXT),
        value,
    ]
    counter = EventSchema((Field("sourceId", FieldEncoding.SOURCE_ID), Field("count", FieldEncoding.INT)))
    assert names(replace(INFO, event_schema=counter)) == [("sourceId", FieldEncoding.SOURCE_ID), value]


def test_rows_of_spark_are_json_already() -> None:
    decode = Decode(key="json")
    assert SPARK.common_description.decode == decode
    info = SourceInfo("q", "spark", SPARK_SHAPE, decode=decode)
    columns: dict[str, Sequence[object]] = {
        "batch": [3, 3],
        "row": [0, 1],
        "timestamp": [5, 5],
        "key": [b'"AA"', None],
        "value": [b'{"n":1.5}', b'{"n":2}'],
    }
    rows = Batch({0: 0}, [0, 0], [0, 1], columns, cost=1)
    whole = encoded(form("key = 'AA' AND timestamp = 5", "value.n + 1 AS more", info), rows)
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
