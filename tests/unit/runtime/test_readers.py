"""One source of a gateway reads another: with credit, from anywhere, and knowing how it ended."""

from __future__ import annotations

import random

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kiwi_gw.api import (
    AtPositions,
    AtTime,
    EventReader,
    Gap,
    Portion,
    ReadingOver,
    SourceFailed,
    StartAt,
    SubscribeRefused,
)
from kiwi_gw.testing import GatewayUnderTest
from tests.unit.runtime.listening import config, listening, places

NEWS = "id: news"


def numbered(first: int, size: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + size)]


def text(first: int, size: int, partition: int = 0) -> bytes:
    return b"".join(b"%d:%d=%d;" % (partition, n, n) for n in range(first, first + size))


async def read_out(reader: EventReader, credit: int = 10) -> tuple[bytes, list[Gap], ReadingOver]:
    """Everything up to the end."""
    data = b""
    gaps: list[Gap] = []
    with trio.fail_after(5):
        while True:
            try:
                portion = await reader.read(credit)
            except ReadingOver as over:
                return data, gaps, over
            assert portion.events <= credit
            data += portion.data
            gaps += [] if portion.lost is None else [portion.lost]


async def test_it_gives_as_many_events_as_it_is_asked_for_and_says_where_it_is() -> None:
    async with listening(config(NEWS)) as (_, scripted, read), read("news", places) as reader:
        assert (reader.info.id, reader.positions, reader.end) == ("news", {0: 0}, {0: 0})
        await scripted["news"].publish(numbered(0, 10))
        await scripted["news"].publish(numbered(10, 10))
        assert reader.end == {0: 20}
        assert await reader.read(3) == Portion(text(0, 3), 3, {0: 3})
        assert await reader.read(12) == Portion(text(3, 12), 12, {0: 15})
        assert await reader.read(100) == Portion(text(15, 5), 5, {0: 20})
        assert reader.positions == reader.end


async def test_it_waits_until_there_is_something_and_cancelled_it_has_read_nothing() -> None:
    async with listening(config(NEWS)) as (_, scripted, read), read("news", places) as reader:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def cancel_when_blocked() -> None:
                    await wait_all_tasks_blocked()
                    scope.cancel()

                nursery.start_soon(cancel_when_blocked)
                await reader.read(5)
        assert scope.cancelled_caught
        assert reader.positions == {0: 0}
        await scripted["news"].publish(numbered(0, 3))
        with trio.CancelScope() as scope:
            scope.cancel()
            await reader.read(5)
        assert reader.positions == {0: 0}
        async with trio.open_nursery() as nursery:
            with trio.fail_after(5):
                assert (await reader.read(5)).data == text(0, 3)
                nursery.start_soon(scripted["news"].publish, numbered(3, 1))
                assert (await reader.read(5)).data == text(3, 1)


async def test_it_begins_where_it_is_told_to_and_ends_there_too() -> None:
    async with listening(config(NEWS)) as (_, scripted, read):
        await scripted["news"].publish(numbered(0, 10))
        start = AtPositions({"0": 4})
        async with read("news", places, start, {"0": 7}) as reader:
            data, gaps, over = await read_out(reader, 2)
            assert (data, gaps, over.reason, over.dropped) == (text(4, 3), [], "until", 0)
            assert reader.positions == {0: 7}
        async with read("news", places, StartAt.EARLIEST) as reader:
            assert (await reader.read(100)).data == text(0, 10)


async def test_history_is_read_as_clients_read_it() -> None:
    small = "window: {events: 8}\n"
    async with listening(config(NEWS, more=small), replayable=True) as (_, scripted, read):
        news = scripted["news"]
        for first in range(0, 100, 10):
            await news.publish(numbered(first, 10), timestamp=first)
        async with read("news", places, AtPositions({"0": 5}), {"0": 95}) as reader:
            data, gaps, over = await read_out(reader, 7)
        assert (data, gaps, over.reason) == (text(5, 90), [], "until")
        async with read("news", places, AtTime(50)) as reader:
            assert reader.positions == {0: 50}


async def test_one_that_can_be_read_again_is_behind_without_loss() -> None:
    small = "window: {events: 8}\n"
    async with listening(config(NEWS, more=small), replayable=True) as (_, scripted, read):
        async with read("news", places) as reader:
            for first in range(0, 100, 10):
                await scripted["news"].publish(numbered(first, 10))
            data = b""
            with trio.fail_after(5):
                while reader.positions != reader.end:
                    portion = await reader.read(9)
                    assert portion.lost is None
                    data += portion.data
        assert data == text(0, 100)


async def test_what_the_window_no_longer_has_is_a_loss_told_before_what_follows() -> None:
    small = "window: {events: 8}\n"
    async with listening(config(NEWS, more=small)) as (_, scripted, read):
        async with read("news", places) as reader:
            await scripted["news"].publish(numbered(0, 8))
            assert (await reader.read(2)).data == text(0, 2)
            await scripted["news"].publish(numbered(8, 8))
            assert await reader.read(3) == Portion(text(8, 3), 3, {0: 11}, Gap({0: (2, 7)}, 6))
        start = AtPositions({"0": 1}, skip_missing=True)
        async with read("news", places, start) as reader:
            assert await reader.read(3) == Portion(text(8, 3), 3, {0: 11}, Gap({0: (1, 7)}, None))
        with pytest.raises(SubscribeRefused) as refused:
            async with read("news", places, AtPositions({"0": 1})):
                pass
        assert refused.value.code == "positions"


async def test_an_event_that_cannot_be_written_is_a_loss_of_one() -> None:
    async with listening(config(NEWS)) as (_, scripted, read), read("news", places) as reader:
        await scripted["news"].publish([b"0", b"!", b"2"])
        assert (await reader.read(10)).data == text(0, 1)
        assert await reader.read(10) == Portion(text(2, 1), 1, {0: 3}, Gap({0: (1, 1)}, 1))


async def test_what_its_source_lost_is_told() -> None:
    async with listening(config(NEWS)) as (_, scripted, read), read("news", places) as reader:
        await scripted["news"].publish(numbered(0, 1))
        await scripted["news"].publish([], gap=Gap({0: (1, 4)}, 4))
        assert (await reader.read(10)).data == text(0, 1)
        assert await reader.read(10) == Portion(b"", 0, {0: 5}, Gap({0: (1, 4)}, 4))


async def test_partitions_are_read_between_exact_places() -> None:
    async with listening(config(NEWS)) as (_, scripted, read):
        news = scripted["news"]
        for first in range(4):
            await news.publish([b"%d" % first], partition=first % 2)
        await news.publish([b"x", b"y"], partition=0)
        async with read("news", places, AtPositions({"0": 1, "1": 0}), {"0": 3, "1": 1}) as reader:
            data, gaps, over = await read_out(reader, 1)
        assert (data, gaps, over.reason) == (b"1:0=1;0:1=2;0:2=x;", [], "until")


async def test_how_its_source_ended_is_said_after_the_rest() -> None:
    lines = ("id: over", "id: gone", "id: other", "id: bad")
    async with (
        listening(config(*lines)) as (gateway, scripted, read),
        read("over", places) as over,
        read("gone", places) as gone,
        read("other", places) as other,
        read("bad", places) as bad,
    ):
        before = other.epoch
        for name in ("over", "gone", "other", "bad"):
            await scripted[name].publish(numbered(0, 3))
        await scripted["over"].end()
        await scripted["bad"].fail(SourceFailed("no such thing"))
        await reload(gateway, config("id: over", "id: other, note: new", "id: bad"))
        found = [await read_out(reader) for reader in (over, gone, other, bad)]
        rest = text(0, 3)
        assert [data for data, _, _ in found] == [rest, rest, rest, b""]
        assert [end.reason for _, _, end in found] == ["ended", "removed", "altered", "failed"]
        assert [end.dropped for _, _, end in found] == [0, 0, 0, 3]
        assert "no such thing" in str(found[-1][2])
        assert over.positions == {0: 3}
        for name, code in (("over", "ended"), ("gone", "unknown_source"), ("bad", "failed")):
            with pytest.raises(SubscribeRefused) as refused:
                async with read(name, places):
                    pass
            assert refused.value.code == code
        async with read("other", places) as again:
            assert again.epoch != before


async def test_a_life_of_a_source_has_one_name() -> None:
    async with (
        listening(config("id: one", "id: two")) as (_, _, read),
        read("one", places) as first,
        read("one", places) as second,
        read("two", places) as other,
    ):
        assert first.epoch == second.epoch != other.epoch


async def test_a_start_that_makes_no_sense_is_refused() -> None:
    async with listening(config(NEWS)) as (_, _, read):
        for start, until, code in (
            (AtTime(5), None, "start"),
            (AtPositions({"0": 7}), None, "positions"),
            (AtPositions("nonsense"), None, "positions"),
            (StartAt.LATEST, "nonsense", "positions"),
            (StartAt.SNAPSHOT, None, "start"),
        ):
            with pytest.raises(SubscribeRefused) as refused:
                async with read("news", places, start, until):
                    pass
            assert refused.value.code == code


async def test_it_leaves_nothing_behind() -> None:
    async with listening(config(NEWS)) as (gateway, scripted, read):
        feed = gateway.gateway.feed("news")
        assert feed is not None
        async with read("news", places) as reader:
            assert feed.subscribers == 1
            await scripted["news"].publish(numbered(0, 3))
            await reader.read(2)
        assert feed.subscribers == 0
        meter = gateway.gateway.meters.source("news")
        assert (meter.started["plugin"], meter.delivered["plugin"], meter.credits_granted) == (1, 2, 2)


@pytest.mark.parametrize("replayable", [False, True])
@pytest.mark.parametrize("seed", range(8))
async def test_what_was_given_and_what_was_lost_is_everything_once(seed: int, replayable: bool) -> None:
    chance = random.Random(seed)
    small = "window: {events: 20}\n"
    async with listening(config(NEWS, more=small), replayable=replayable) as (_, scripted, read):
        news = scripted["news"]
        await news.publish([b"."], partition=1)
        got: list[tuple[int, int]] = []
        lost: list[tuple[int, int]] = []
        here = {"0": 0, "1": 0}
        for _ in range(6):  # each is another reader, that begins where the last one was
            async with read("news", places, AtPositions(here, skip_missing=True)) as reader:
                for _ in range(chance.randrange(8)):
                    await news.publish([b"."] * chance.randrange(1, 12), partition=chance.randrange(2))
                    if chance.random() < 0.5 and reader.positions != reader.end:
                        take(await reader.read(chance.randrange(1, 15)), got, lost)
                here = {str(partition): offset for partition, offset in reader.positions.items()}
        async with read("news", places, AtPositions(here, skip_missing=True)) as reader:
            with trio.fail_after(10):
                while reader.positions != reader.end:
                    take(await reader.read(7), got, lost)
        for partition in (0, 1):
            offsets = [offset for where, offset in got if where == partition]
            assert offsets == sorted(set(offsets))
        everything = {(p, offset) for p, end in news.positions.items() for offset in range(end)}
        assert set(got) | set(lost) == everything
        assert len(got) + len(lost) == len(everything)
        assert not (replayable and lost)


def take(portion: Portion, got: list[tuple[int, int]], lost: list[tuple[int, int]]) -> None:
    """Note the places of a portion."""
    rows = portion.data.decode().split(";")[:-1]
    assert len(rows) == portion.events
    for row in rows:
        partition, offset = row.split("=")[0].split(":")
        got.append((int(partition), int(offset)))
    for where, (first, last) in (portion.lost.ranges if portion.lost else {}).items():
        lost += [(where, offset) for offset in range(first, last + 1)]


async def reload(gateway: GatewayUnderTest, text: str) -> None:
    """Write another configuration, and wait until it is in use."""
    gateway.file.write_text(text)
    assert await gateway.reloader.reload()
