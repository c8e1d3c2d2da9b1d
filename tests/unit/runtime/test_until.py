"""Subscriptions that end where the source did when they began, or at an offset: and what need not be read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from kiwi_gw.core.commands import AddCredit, Open
from kiwi_gw.core.notices import Ended, Lagged, Notice, Opened
from kiwi_gw.model import (
    AtOffset,
    AtPositions,
    AtTime,
    CloseReason,
    End,
    OverflowPolicy,
    Start,
    StartAt,
    Until,
    UntilOffset,
)
from kiwi_gw.testing import Script, ScriptedSources
from tests.unit.core.fakes import parse
from tests.unit.runtime.fakes import Bench, Client, running, settled
from tests.unit.runtime.test_history import CONFIG, begin, gateway, publish

Places = list[tuple[int, int]]


def places(client: Client) -> Places:
    """The events that it was sent, by partition and offset, in order of these."""
    found = [event.place for event in parse(bytes(client.socket.wire)) if hasattr(event, "place")]
    assert len(set(found)) == len(found)
    return sorted(found)


def run_of(partition: int, first: int, stop: int) -> Places:
    return [(partition, offset) for offset in range(first, stop)]


def story(client: Client) -> list[type[Notice]]:
    return [type(notice) for notice in client.session.notices if isinstance(notice, Opened | Ended)]


def reason(client: Client) -> CloseReason:
    (ended,) = client.told(Ended)
    assert isinstance(ended, Ended)
    return ended.reason


def until(asked: End, start: Start = StartAt.EARLIEST, *, credit: int | None = None) -> Open:
    return replace(begin(start, credit=credit, overflow=None), until=asked)


@asynccontextmanager
async def three(folder: Path) -> AsyncIterator[tuple[Bench, Script]]:
    """A source of three partitions with 500, 300 and 100 events, of which the window holds the last few."""
    async with gateway(folder) as (bench, script):
        script.positions.update({1: 0, 2: 0})
        for size in (500, 300, 100):
            partition = {500: 0, 300: 1, 100: 2}[size]
            for _ in range(size // 50):
                await script.publish([b"x"] * 50, partition=partition, timestamp=5)
        yield bench, script


ALL = frozenset({0, 1, 2})


@pytest.mark.parametrize("start", [StartAt.EARLIEST, AtTime(0), AtOffset(0), AtPositions({})], ids=repr)
@pytest.mark.parametrize("partitions", [None, ALL, ALL | {7}])
async def test_every_partition_ends_at_the_offset_or_where_it_ended(
    tmp_path: Path, autojump_clock: MockClock, start: Start, partitions: frozenset[int] | None
) -> None:
    async with three(tmp_path) as (bench, script):
        client = bench.connect()
        client.does(until(UntilOffset(200, partitions), start))
        await publish(script, 100)
        await script.publish([b"x"] * 50, partition=2)
        await trio.sleep(0.5)
        assert reason(client) is CloseReason.UNTIL
        got = places(client)
        # What came to partition 2 before the source had said where it ends may be in.
        assert got[:500] == run_of(0, 0, 200) + run_of(1, 0, 200) + run_of(2, 0, 100)


@pytest.mark.parametrize("asked", [UntilOffset(10_000), Until.END])
async def test_beyond_the_end_is_the_end(tmp_path: Path, autojump_clock: MockClock, asked: End) -> None:
    async with three(tmp_path) as (bench, script):
        client = bench.connect()
        client.does(until(asked))
        await trio.sleep(0.5)
        await publish(script, 100)
        assert reason(client) is CloseReason.UNTIL
        assert places(client) == run_of(0, 0, 500) + run_of(1, 0, 300) + run_of(2, 0, 100)


async def test_partitions_that_begin_beyond_it_are_done(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with three(tmp_path) as (bench, script):
        script.history.delete(0, 250)
        client = bench.connect()
        client.does(until(UntilOffset(200), AtOffset(150)))
        await trio.sleep(0.5)
        assert reason(client) is CloseReason.UNTIL
        assert places(client) == run_of(1, 150, 200)


@pytest.mark.parametrize("start", [StartAt.EARLIEST, AtTime(0), AtOffset(10), AtPositions({})], ids=repr)
async def test_other_partitions_are_not_read_at_all(
    tmp_path: Path, autojump_clock: MockClock, start: Start
) -> None:
    async with three(tmp_path) as (bench, script):
        client = bench.connect()
        client.does(until(UntilOffset(60, frozenset({2})), start))
        await trio.sleep(0.5)
        first = 10 if isinstance(start, AtOffset) else 0
        assert reason(client) is CloseReason.UNTIL
        assert places(client) == run_of(2, first, 60)
        (opened,) = client.told(Opened)
        assert isinstance(opened, Opened)
        assert opened.positions == {"0": 500, "1": 300, "2": first}
        assert script.history.read_events <= 100


async def test_what_is_gone_of_other_partitions_is_no_loss(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with three(tmp_path) as (bench, script):
        script.history.delete(0, 250)
        client = bench.connect()
        start = AtPositions({"0": 0, "1": 0, "2": 0}, skip_missing=True)
        client.does(until(UntilOffset(60, frozenset({1})), start))
        await trio.sleep(0.5)
        assert places(client) == run_of(1, 0, 60)
        assert not [n for n in client.told(Lagged) if isinstance(n, Lagged) and n.dropped != 0]


async def test_holes_below_the_offset_keep_nobody(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Compacted away: the last events before it, in one partition all of them."""
    async with three(tmp_path) as (bench, script):
        script.history.compact([(0, offset) for offset in range(150, 200)])
        script.history.compact([(1, offset) for offset in range(300)])
        client = bench.connect()
        client.does(until(UntilOffset(200, frozenset({0, 1}))))
        await trio.sleep(0.5)
        assert reason(client) is CloseReason.UNTIL
        assert places(client) == run_of(0, 0, 150)


EMPTY: list[tuple[Start, End]] = [
    (StartAt.EARLIEST, UntilOffset(0)),
    (AtOffset(400), UntilOffset(200)),
    (AtOffset(200), UntilOffset(200)),
    (StartAt.EARLIEST, UntilOffset(200, frozenset())),
    (StartAt.EARLIEST, UntilOffset(200, frozenset({7}))),
    (StartAt.LATEST, UntilOffset(10)),
    (StartAt.LATEST, Until.END),
    (AtTime(6), Until.END),
    (AtPositions({"0": 500, "1": 300, "2": 100}), Until.END),
]


@pytest.mark.parametrize(("start", "asked"), EMPTY, ids=repr)
@pytest.mark.parametrize("credit", [None, 0])
async def test_an_empty_range_is_over_at_once(
    tmp_path: Path, autojump_clock: MockClock, start: Start, asked: End, credit: int | None
) -> None:
    """Without an event, without credit, and without waiting for one."""
    async with three(tmp_path) as (bench, script):
        client = bench.connect()
        client.does(until(asked, start, credit=credit))
        await settled()
        assert story(client) == [Opened, Ended]
        assert (reason(client), places(client)) == (CloseReason.UNTIL, [])
        assert script.history.opened == 0
        assert client.connection.subscriptions == {}


async def test_by_pull_and_over_several_pauses(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with three(tmp_path) as (bench, _):
        client = bench.connect()
        client.does(until(UntilOffset(40), credit=50))
        for _ in range(7):
            await trio.sleep(0.5)
            client.does(AddCredit("news", 10))
        await trio.sleep(0.5)
        assert reason(client) is CloseReason.UNTIL
        assert places(client) == run_of(0, 0, 40) + run_of(1, 0, 40) + run_of(2, 0, 40)


# --- sources without history -------------------------------------------------------------------


@asynccontextmanager
async def live(folder: Path) -> AsyncIterator[tuple[Bench, Script]]:
    """A source that cannot be read again; its window holds 100 events."""
    scripted = ScriptedSources()
    async with running(folder, CONFIG, scripted=scripted) as bench:
        yield bench, scripted["news"]


@pytest.mark.parametrize(
    ("asked", "start", "first", "stop"),
    [
        (Until.END, StartAt.EARLIEST, 200, 300),
        (UntilOffset(250), StartAt.EARLIEST, 200, 250),
        (UntilOffset(250), AtOffset(220), 220, 250),
        (UntilOffset(250, frozenset({0})), AtOffset(0), 200, 250),
        (UntilOffset(900), AtOffset(290), 290, 300),
        (UntilOffset(250, frozenset({1})), StartAt.EARLIEST, 0, 0),
        (UntilOffset(200), StartAt.EARLIEST, 0, 0),
        (Until.END, StartAt.LATEST, 0, 0),
    ],
)
async def test_without_history_it_gets_what_the_window_holds(
    tmp_path: Path, asked: End, start: Start, first: int, stop: int
) -> None:
    async with live(tmp_path) as (bench, script):
        await publish(script, 300)
        client = bench.connect()
        client.does(until(asked, start))
        assert story(client) == [Opened, Ended], "at once"
        assert (reason(client), places(client)) == (CloseReason.UNTIL, run_of(0, first, stop))


async def test_a_window_that_is_empty_is_the_end(tmp_path: Path) -> None:
    async with live(tmp_path) as (bench, _):
        client = bench.connect()
        client.does(until(Until.END))
        assert story(client) == [Opened, Ended]
        assert reason(client) is CloseReason.UNTIL


async def test_of_a_source_that_is_over_it_gets_the_rest(tmp_path: Path) -> None:
    async with live(tmp_path) as (bench, script):
        await publish(script, 300)
        await script.end()
        await settled()
        client, half = bench.connect(), bench.connect()
        client.does(until(Until.END))
        half.does(until(UntilOffset(250)))
        assert places(client) == run_of(0, 200, 300)
        assert reason(client) in (CloseReason.UNTIL, CloseReason.ENDED)
        assert (places(half), reason(half)) == (run_of(0, 200, 250), CloseReason.UNTIL)


@pytest.mark.parametrize("ahead", [50, 100, 250])
async def test_what_leaves_the_window_meanwhile_is_a_loss_and_it_still_ends(
    tmp_path: Path, autojump_clock: MockClock, ahead: int
) -> None:
    """Also where all that was asked for has left it."""
    async with live(tmp_path) as (bench, script):
        await publish(script, 100)
        client = bench.connect()
        client.does(until(Until.END, credit=10))
        await publish(script, ahead)
        client.does(AddCredit("news", 1_000))
        await trio.sleep(0.5)
        assert reason(client) is CloseReason.UNTIL
        got = places(client)
        assert got == run_of(0, 0, 10) + run_of(0, max(10, ahead), 100)
        lost = [n.dropped or 0 for n in client.session.notices if isinstance(n, Lagged | Ended)]
        assert sum(lost) >= 90 - (len(got) - 10)


async def test_its_policy_may_be_to_end(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with live(tmp_path) as (bench, script):
        await publish(script, 100)
        client = bench.connect()
        client.does(replace(until(Until.END, credit=10), overflow=OverflowPolicy.CLOSE))
        await publish(script, 150)
        await trio.sleep(0.5)
        assert reason(client) is CloseReason.OVERFLOW


# --- an end behind a hole ----------------------------------------------------------------------


async def test_the_end_may_lie_behind_offsets_that_hold_no_event(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """As that of a topic does whose last offset marks the end of a transaction."""
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 1000)
        script.history.moved({0: 1_001})
        early, late = bench.connect(), bench.connect()
        early.does(until(Until.END))
        late.does(until(Until.END, StartAt.LATEST))
        await trio.sleep(0.5)
        assert places(early) == run_of(0, 0, 1_000)
        assert story(early) == story(late) == [Opened], "more may come before it"
        await script.pass_by(1_001)
        assert reason(early) is reason(late) is CloseReason.UNTIL
        after = bench.connect()
        after.does(until(Until.END, AtOffset(950)))
        await trio.sleep(0.5)
        assert (reason(after), places(after)) == (CloseReason.UNTIL, run_of(0, 950, 1_000))
        await publish(script, 50)
        assert next(iter(bench.gateway.runners())).restarts == 0
