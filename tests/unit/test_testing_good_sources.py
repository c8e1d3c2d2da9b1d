"""The kit for plugin authors: sources that keep the contract pass."""

from __future__ import annotations

import time
from typing import Literal

import pytest
import trio
from trio.testing import MockClock

from kiwi_gw.api import (
    Batch,
    EventSchema,
    Field,
    FieldEncoding,
    Gap,
    Positions,
    Publisher,
    Section,
    Source,
    SourceContext,
    SourceDescription,
    SourceType,
)
from kiwi_gw.testing import check_source
from tests.unit.numbers import SHAPE, Numbers, NumberSettings, check, good, one


async def test_a_good_source_passes_and_is_reported() -> None:
    report = await check(good, events=10, repeatable=True)
    assert not report.finite
    assert report.first == {0: 3}
    assert report.events >= 11
    assert report.positions == {0: 3 + report.events}
    assert report.runs == 2 + 5 + 1 + 1


async def test_a_finite_source_passes() -> None:
    async def run(publisher: Publisher, start: Positions | None) -> None:
        first = start[0] if start else 0
        await publisher.ready({0: first})
        for number in range(first, 5):
            await publisher.publish(one(number))

    report = await check(run, events=100, repeatable=True)
    assert (report.finite, report.events, report.positions) == (True, 5, {0: 5})


async def test_a_finite_source_without_any_event_passes() -> None:
    async def run(publisher: Publisher, start: Positions | None) -> None:
        await publisher.ready({0: 0})

    report = await check(run, repeatable=True)
    assert (report.finite, report.events) == (True, 0)


async def test_a_lazy_source_passes_and_time_is_trios(autojump_clock: MockClock) -> None:
    async def run(publisher: Publisher, start: Positions | None) -> None:
        number = start[0] if start else 0
        await publisher.ready({0: number})
        await publisher.wait_subscribed()
        while True:
            await trio.sleep(0.9)
            await publisher.publish(one(number))
            number += 1

    began = time.monotonic()
    assert (await check(run, lazy=True, events=8)).events >= 9
    assert time.monotonic() - began < 5


async def test_holes_gaps_partitions_and_tasks_of_its_own_are_legal() -> None:
    async def run(publisher: Publisher, start: Positions | None) -> None:
        at = dict(start or {0: 0, 1: 0})
        await publisher.ready(at)
        sender, receiver = trio.open_memory_channel[int](2)

        async def read() -> None:
            number = 0
            while True:
                await sender.send(number)
                number += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            async for _ in receiver:
                offsets = [at[0], at[1], at[1] + 2]
                await publisher.publish(Batch(dict(at), [0, 1, 1], offsets, {"n": offsets}, 24))
                lost = Gap({0: (at[0] + 1, at[0] + 1)}, 1)
                at = {0: at[0] + 2, 1: at[1] + 4}
                await publisher.publish(Batch(dict(at), [], [], {"n": []}, 0, lost))

    assert (await check(run, events=30)).events >= 30


async def test_offsets_with_holes_are_not_taken_for_lost_events() -> None:
    async def run(publisher: Publisher, start: Positions | None) -> None:
        number = start[0] if start else 0
        await publisher.ready({0: number})
        number += number % 2  # only even offsets hold records
        while True:
            await publisher.publish(one(number))
            number += 2

    assert (await check(run, repeatable=True)).events >= 10


async def test_every_kind_of_column_that_fits_passes() -> None:
    shape = EventSchema(
        (
            Field("type", FieldEncoding.SOURCE_TYPE),
            Field("text", FieldEncoding.TEXT),
            Field("bytes", FieldEncoding.BASE64, column="text"),
            Field("string", FieldEncoding.STRING),
            Field("json", FieldEncoding.JSON),
            Field("any", FieldEncoding.VALUE),
            Field("headers", FieldEncoding.HEADERS),
            Field("at", FieldEncoding.INT, column="timestamp", none=-1),
        ),
        variants={"other": (Field("offset", FieldEncoding.INT), Field("partition", FieldEncoding.INT))},
    )

    async def run(publisher: Publisher, start: Positions | None) -> None:
        at = start[0] if start else 0
        await publisher.ready({0: at})
        while True:
            columns: dict[str, list[object]] = {
                "text": [b"\xff", None],
                "string": ["a", None],
                "json": [b'{"a":1}', None],
                "any": [{"a": [1.5, None]}, None],
                "headers": [[("h", None)], ()],
                "timestamp": [-1, 0],
                "key": [b"k", None],
            }
            await publisher.publish(Batch({0: at}, [0, 0], [at, at + 1], columns, 50))
            at += 2

    assert (await check(run, shape)).batches >= 5


async def test_settings_sections_and_services_reach_the_source() -> None:
    class Extra(Section):
        first: int = 7

    class Named(Section):
        type: Literal["numbers"]
        topic: str

    seen: list[SourceContext] = []

    def build(settings: Section, context: SourceContext) -> Source:
        seen.append(context)
        return Numbers(good)

    kind = SourceType(
        "numbers",
        Named,
        build,
        SHAPE,
        lambda settings: SourceDescription(SHAPE, id=settings.topic, services=("pool",), sections=("extra",)),
    )
    pool = object()
    settings = {"type": "numbers", "topic": "t", "id": "x", "subscriber": {}}
    await check_source(kind, settings, sections={"extra": Extra()}, services={"pool": pool})
    assert [context.source_id for context in seen] == ["t", "t"]
    assert seen[0].plugins.section("extra") == Extra()
    assert seen[0].services["pool"] is pool
    with pytest.raises(AssertionError, match="needs the section 'extra': pass it in sections="):
        await check_source(kind, settings)
    with pytest.raises(AssertionError, match="needs the service 'pool': pass it in services="):
        await check_source(kind, settings, sections={"extra": Extra()})


async def test_the_sources_that_it_depends_on_reach_it() -> None:
    seen: list[SourceContext] = []

    def build(settings: Section, context: SourceContext) -> Source:
        seen.append(context)
        return Numbers(good)

    kind = SourceType("numbers", NumberSettings, build, SourceDescription(SHAPE, depends=["other"]))
    other = NumberSettings(type="numbers", id="other")
    await check_source(kind, {"type": "numbers"}, sources={"other": other})
    assert seen[0].plugins.sources["other"] is other
    with pytest.raises(AssertionError, match="depends on the source 'other': pass it in sources="):
        await check_source(kind, {"type": "numbers"})


async def test_what_a_type_says_by_the_settings_is_asked_with_them(autojump_clock: MockClock) -> None:
    asked: list[NumberSettings] = []

    def describe(settings: NumberSettings) -> SourceDescription:
        asked.append(settings)
        return SourceDescription(SHAPE, services=("pool",), replayable=True)

    kind = SourceType("numbers", NumberSettings, lambda settings, context: Numbers(good), SHAPE, describe)
    with pytest.raises(AssertionError, match="needs the service 'pool'"):
        await check_source(kind, {"type": "numbers"})
    with pytest.raises(AssertionError, match=r"must be an api.History"):
        await check_source(kind, {"type": "numbers"}, services={"pool": 1})
    assert asked == [NumberSettings(type="numbers")] * 2
