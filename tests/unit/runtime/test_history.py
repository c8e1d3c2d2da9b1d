"""Reading a source again: who gets a reader, for how long, and what happens when it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from kiwi_gw.core.commands import AddCredit, Cancel, Open
from kiwi_gw.core.history import GATHER_SECONDS
from kiwi_gw.core.notices import Ended, Lagged, Opened, OpenFailed
from kiwi_gw.core.states import SubscriptionState
from kiwi_gw.edge.admin.views import source_item
from kiwi_gw.errors import SourceChanged
from kiwi_gw.model import (
    PIECE_EVENTS,
    Action,
    AtOffset,
    AtPositions,
    AtTime,
    CloseReason,
    HasLineage,
    Identity,
    Mode,
    OverflowPolicy,
    Positions,
    Refusal,
    Start,
    StartAt,
    Until,
)
from kiwi_gw.runtime.history_task import LINGER_SECONDS, PATIENCE_SECONDS
from kiwi_gw.testing import Script, ScriptedSources
from tests.unit.core.fakes import names
from tests.unit.runtime.fakes import Bench, Client, running

CONFIG = """
plugins: [scripted]
window: {events: 100}
sources:
  - {type: scripted, id: news, subscriber: {subscribe_timeout_ms: 1000}}
"""


@asynccontextmanager
async def gateway(folder: Path, text: str = CONFIG, **plugins: object) -> AsyncIterator[tuple[Bench, Script]]:
    scripted = ScriptedSources(replayable=True)
    async with running(folder, text, scripted=scripted, **plugins) as bench:
        yield bench, scripted["news"]


def begin(
    start: Start = StartAt.EARLIEST,
    *,
    credit: int | None = None,
    overflow: OverflowPolicy | None = OverflowPolicy.REPLAY,
) -> Open:
    mode = Mode.PUSH if credit is None else Mode.PULL
    return Open("news", "news", lambda info: names(), mode, credit or 0, overflow=overflow, start=start)


async def publish(script: Script, events: int, *, size: int = 50, timestamp: int = -1) -> None:
    for _ in range(events // size):
        await script.publish([b"x"] * size, timestamp=timestamp)


def state(client: Client) -> SubscriptionState:
    return client.connection.subscriptions["news"].state


async def test_from_the_first_event_into_what_is_live(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 1000)
        client = bench.connect()
        client.does(begin())
        await trio.sleep(0.5)
        assert client.offsets == list(range(1000))
        assert state(client) is SubscriptionState.LIVE
        await publish(script, 50)
        assert client.offsets == list(range(1050))
        assert script.history.opened == 1
        (opened,) = client.told(Opened)
        assert isinstance(opened, Opened)
        assert opened.positions == {"0": 0}


async def test_who_reads_history_has_part_in_the_rounds(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 1000)
        budget = bench.gateway._round_budget
        budget.serve(client := bench.connect())
        await trio.sleep(0.5)
        began = budget.number
        assert budget.shared_in < began
        client.does(begin())
        await trio.sleep(0.5)
        assert client.offsets == list(range(1000))
        assert budget.shared_in >= began


async def test_a_client_that_fell_out_of_the_window_misses_nothing(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with gateway(tmp_path) as (bench, script):
        client = bench.connect()
        client.does(begin(StartAt.LATEST))
        client.socket.take = lambda size: 0
        await publish(script, 1000)
        assert state(client) is SubscriptionState.HISTORY_WAITING
        await trio.sleep(0.5)
        assert script.history.opened == 0, "nobody reads for one that cannot be sent to"
        client.socket.take = lambda size: size
        client.socket.drain()
        await trio.sleep(0.5)
        assert client.offsets == list(range(1000))
        assert all(notice.dropped == 0 for notice in client.told(Lagged) if isinstance(notice, Lagged))
        runner = next(iter(bench.gateway.runners()))
        assert runner.hub.events_replayed >= 900
        assert runner.hub.replaying == 0


async def test_by_time_and_by_positions(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 500, timestamp=1)
        await publish(script, 500, timestamp=2)
        clients = [bench.connect() for _ in range(3)]
        clients[0].does(begin(AtTime(2)))
        clients[1].does(begin(AtPositions({"0": 700})))
        clients[2].does(begin(AtTime(3)))
        await trio.sleep(0.5)
        assert [client.offsets[:1] for client in clients] == [[500], [700], []]
        assert [len(client.offsets) for client in clients] == [500, 300, 0]
        assert all(state(client) is SubscriptionState.LIVE for client in clients)


async def test_positions_in_the_window_need_no_history(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 1000)
        script.history.hold()
        client = bench.connect()
        client.does(begin(AtPositions({"0": 930})))
        assert client.offsets == list(range(930, 1000))
        assert state(client) is SubscriptionState.LIVE


async def test_what_is_gone_is_refused_or_skipped_as_asked(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 1000)
        script.history.delete(0, 400)
        refused, beyond, unknown, skipping = (bench.connect() for _ in range(4))
        refused.does(begin(AtPositions({"0": 100})))
        beyond.does(begin(AtPositions({"0": 1001})))
        unknown.does(begin(AtPositions({"7": 1})))
        skipping.does(begin(AtPositions({"0": 100}, skip_missing=True)))
        await trio.sleep(0.5)
        for client, why in ((refused, "gone"), (beyond, "before the one"), (unknown, "no partition 7")):
            (failed,) = client.told(OpenFailed)
            assert isinstance(failed, OpenFailed)
            assert failed.code == "positions"
            assert why in failed.message
            assert '{"0": 400} to {"0": 1000}' in failed.message
        assert skipping.offsets == list(range(400, 1000))
        lag = skipping.told(Lagged)[0]
        assert isinstance(lag, Lagged)
        assert (lag.dropped, lag.ranges) == (None, {0: (100, 399)})


async def test_the_right_to_replay(tmp_path: Path, autojump_clock: MockClock) -> None:
    class NoReplay:
        from kiwi_gw.api import hookimpl

        @hookimpl
        def authorize(self, identity: Identity, action: Action, source: object) -> Refusal | None:
            return Refusal("forbidden", "not you") if action is Action.REPLAY else None

    text = CONFIG.replace("[scripted]", "[scripted, rules]")
    async with gateway(tmp_path, text, rules=NoReplay()) as (bench, script):
        await publish(script, 1000)
        client, other = bench.connect(), bench.connect()
        client.does(begin())
        other.does(begin(StartAt.LATEST))
        assert client.refusals == ["forbidden"]
        (failed,) = client.told(OpenFailed)
        assert isinstance(failed, OpenFailed)
        assert failed.message == 'not you: to begin in the past needs the right "replay"'
        assert (other.refusals, other.opened) == ([], 1)


async def test_a_start_that_takes_too_long(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 1000)
        script.history.hold()
        client, cancelled, patient = (bench.connect() for _ in range(3))
        client.does(begin())
        cancelled.does(begin(), Cancel("news"))
        await trio.sleep(0.9)
        assert client.refusals == []
        patient.does(begin(credit=2), AddCredit("news", 3))
        await trio.sleep(0.4)
        assert client.refusals == ["failed"]
        assert (cancelled.refusals, cancelled.opened) == ([], 0)
        script.history.release()
        await trio.sleep(0.5)
        assert patient.offsets == [0, 1, 2, 3, 4]
        assert (client.opened, cancelled.opened) == (0, 0)


@pytest.mark.slow
async def test_a_herd_shares_one_reader(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 5_000, size=1000)
        herd = [bench.connect() for _ in range(40)]
        for number, client in enumerate(herd):
            client.does(begin(AtPositions({"0": 100 + number % 7})))
            await trio.sleep(0.01)  # they come back by and by
        await trio.sleep(0.5)
        for number, client in enumerate(herd):
            assert client.offsets == list(range(100 + number % 7, 5_000))
        assert script.history.opened == 1
        assert script.history.read_events <= 4_900
        assert script.history.asked == 1


async def test_those_who_come_later_share_what_was_read(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 20_000, size=1000)
        for _ in range(3):
            client = bench.connect()
            client.does(begin(AtPositions({"0": 100})))
            await trio.sleep(LINGER_SECONDS * 0.9)  # the others are long through
            assert client.offsets == list(range(100, 20_000))
        assert script.history.opened == 1
        assert script.history.read_events == 18_900  # the window always holds the last batch
        await trio.sleep(LINGER_SECONDS * 1.1)
        assert next(iter(bench.gateway.runners())).hub.history.readers == []


async def test_a_client_that_stands_still_gives_its_place_away(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 5_000, size=1000)
        slow, fast = bench.connect(), bench.connect()
        slow.does(begin(credit=10))
        fast.does(begin())
        await trio.sleep(5)
        assert state(fast) is SubscriptionState.LIVE
        assert fast.offsets == list(range(5_000))
        await trio.sleep(1)
        assert state(slow) is SubscriptionState.HISTORY_WAITING
        slow.does(AddCredit("news", 10))
        await trio.sleep(0.5)
        assert slow.offsets == list(range(20))
        slow.does(AddCredit("news", 1_000_000))
        await trio.sleep(5)
        assert slow.offsets == list(range(5_000))


async def test_those_who_await_their_turns_lose_no_place_to_one_that_has_read_everything(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    text = CONFIG.replace("events: 100", "events: 100, history_events: 500")
    async with gateway(tmp_path, text) as (bench, script):
        await publish(script, 5_000)
        waiting, fast = bench.connect(), bench.connect()
        waiting.does(begin(credit=10))
        await trio.sleep(1.2 * GATHER_SECONDS)
        assert len(waiting.offsets) == 10
        waiting.socket.awaits_turn = True
        waiting.does(AddCredit("news", 10))
        fast.does(begin())
        await trio.sleep(4 * PATIENCE_SECONDS)
        assert state(waiting) is SubscriptionState.HISTORY
        assert len(fast.offsets) <= 510
        await trio.sleep(20 * PATIENCE_SECONDS)
        assert fast.offsets == list(range(5_000)), "it is not waited for ever"
        waiting.socket.awaits_turn = False
        waiting.does(AddCredit("news", 10))
        await trio.sleep(1)
        assert waiting.offsets == list(range(30))


@pytest.mark.slow
async def test_readers_take_turns(tmp_path: Path, autojump_clock: MockClock) -> None:
    text = CONFIG.replace("events: 100", "events: 100, history_readers: 1")
    async with gateway(tmp_path, text) as (bench, script):
        await publish(script, 100_000, size=5000)
        first, second = bench.connect(), bench.connect()
        # As fast as it is read it would be through at once: it takes what it is given by and by.
        first.does(begin(credit=1))
        second.does(begin(AtPositions({"0": 80_000}), credit=1))
        for _ in range(20):
            for client in (first, second):
                client.does(AddCredit("news", 500))
            await trio.sleep(0.2)
        assert len(first.offsets) > 1000
        assert len(second.offsets) > 1000
        assert script.history.opened > 2
        for client in (first, second):
            client.does(AddCredit("news", 1_000_000))
        await trio.sleep(10)
        assert first.offsets == list(range(100_000))
        assert second.offsets == list(range(80_000, 100_000))


async def test_a_reader_that_nobody_reads_makes_room_for_those_who_wait(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    text = CONFIG.replace("events: 100", "events: 100, history_readers: 1, history_events: 500")
    async with gateway(tmp_path, text) as (bench, script):
        await publish(script, 5_000)
        for _ in range(2):
            client = bench.connect()
            client.does(begin())
            await trio.sleep(0.5)
            assert len(client.offsets) == 5_000
        assert script.history.opened == 2


async def test_a_reader_that_fails_is_opened_again(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 5_000, size=1000)
        client = bench.connect()
        client.does(begin(credit=0))
        await trio.sleep(0.5)
        script.history.fail(OSError("no route"), OSError("no route"), OSError("no route"))
        client.does(AddCredit("news", 1_000_000))
        await trio.sleep(5)
        assert client.offsets == list(range(5_000))
        assert next(iter(bench.gateway.runners())).history.failures == 3


async def test_a_source_that_is_restarted_goes_on_with_its_history(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 5_000, size=1000)
        client = bench.connect()
        client.does(begin(credit=500))
        await trio.sleep(0.3)
        assert state(client) is SubscriptionState.HISTORY
        await script.fail(OSError("gone"))
        await trio.sleep(0.5)
        assert state(client) is SubscriptionState.HISTORY_WAITING
        client.does(AddCredit("news", 1_000_000))
        await trio.sleep(2)
        assert script.runs == 2
        assert client.offsets == list(range(5_000))


async def test_history_that_finds_the_source_changed(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 1000)
        client = bench.connect()
        client.does(begin(credit=0))
        await trio.sleep(0.5)
        script.history.fail(SourceChanged("it was created again"))
        client.does(AddCredit("news", 1))
        await trio.sleep(1)
        assert client.ends == ["changed"]
        assert script.runs == 2


async def test_a_finite_source_is_read_to_its_end(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 1000)
        client = bench.connect()
        client.does(begin(credit=10))
        await trio.sleep(0.5)
        await script.end()
        await trio.sleep(0.5)
        assert client.ends == []
        client.does(AddCredit("news", 1_000_000))
        await trio.sleep(1)
        assert client.offsets == list(range(1000))
        assert client.ends == ["ended"]


async def test_an_ended_source_still_serves_its_history(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 1000)
        await script.end()
        await trio.sleep(0.5)
        for start, first in (
            (StartAt.EARLIEST, 0),
            (AtPositions({"0": 990}), 990),
            (AtPositions({"0": 3}), 3),
        ):
            client = bench.connect()
            client.does(begin(start))
            await trio.sleep(1)
            assert client.offsets == list(range(first, 1000))
            assert client.ends == ["ended"]
        late = bench.connect()
        late.does(begin(StartAt.LATEST))
        assert late.refusals == ["ended"]
        assert next(iter(bench.gateway.runners())).hub.subscribers == 0


async def test_block_holds_the_source_until_its_client_has_room(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    text = CONFIG.replace("subscribe_timeout_ms: 1000", "overflow: block, buffer_capacity: 60")
    async with gateway(tmp_path, text) as (bench, script), trio.open_nursery() as nursery:
        client, other = bench.connect(), bench.connect()
        client.does(begin(StartAt.LATEST, overflow=None))
        other.does(begin(StartAt.LATEST, overflow=OverflowPolicy.DROP_OLDEST))
        client.socket.take = lambda size: 0
        nursery.start_soon(lambda: publish(script, 200))
        await trio.sleep(15)
        hub = next(iter(bench.gateway.runners())).hub
        assert hub.events_in == 50
        assert hub.held_by == [str(client.connection)]
        (item,) = map(source_item, bench.gateway.runners())
        assert item["heldBy"] == hub.held_by
        client.socket.take = lambda size: size
        client.socket.drain()
        await trio.sleep(0.5)
        assert client.offsets == other.offsets == list(range(200))
        assert hub.held_by == []


async def test_block_holds_the_source_within_a_batch_that_its_window_would_not_hold(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    text = CONFIG.replace("subscribe_timeout_ms: 1000", "overflow: block")
    async with gateway(tmp_path, text) as (bench, script), trio.open_nursery() as nursery:
        client = bench.connect()
        client.does(begin(StartAt.LATEST, overflow=None))
        client.socket.take = lambda size: 0
        nursery.start_soon(lambda: publish(script, 2500, size=2500))
        await trio.sleep(15)
        hub = next(iter(bench.gateway.runners())).hub
        assert hub.events_in == PIECE_EVENTS
        assert hub.held_by == [str(client.connection)]
        client.socket.take = lambda size: size
        client.socket.drain()
        await trio.sleep(0.5)
        assert client.offsets == list(range(2500))


async def test_block_lets_the_source_go_when_its_client_grants_no_credit_or_leaves(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    text = CONFIG.replace("subscribe_timeout_ms: 1000", "allow: [block], buffer_capacity: 60")
    async with gateway(tmp_path, text) as (bench, script), trio.open_nursery() as nursery:
        client, other = bench.connect(), bench.connect()
        client.does(begin(StartAt.LATEST, credit=0, overflow=OverflowPolicy.BLOCK))
        nursery.start_soon(lambda: publish(script, 100))
        await trio.sleep(29)
        hub = next(iter(bench.gateway.runners())).hub
        assert hub.events_in == 50
        await trio.sleep(2)
        assert hub.events_in == 100
        client.leave()
        other.does(begin(StartAt.LATEST, overflow=OverflowPolicy.BLOCK))
        other.socket.take = lambda size: 0
        nursery.start_soon(lambda: publish(script, 100))
        await trio.sleep(10)
        assert hub.events_in == 150
        other.leave()
        await trio.sleep(0.5)
        assert hub.events_in == 200


class Late:
    """A lineage that knows positions only after it has been asked `looks` times about them."""

    def __init__(self, looks: dict[int, int]) -> None:
        self.looks = looks
        self.asked = 0

    def marks(self, positions: Positions) -> dict[str, object]:
        return {}

    def knows(self, given: object) -> bool:
        return not self.unknown(given)

    async def learn(self, given: Sequence[object]) -> None:
        self.asked += 1
        for one in given:
            self.looks[self._epoch(one)] -= 1

    def unknown(self, given: object) -> str:
        return f"nobody knows of {self._epoch(given)}" if self.looks[self._epoch(given)] > 0 else ""

    def refuted(self, given: object) -> str | None:
        return None

    def _epoch(self, given: object) -> int:
        return cast("Positions", given)[0]


async def test_who_brings_no_positions_does_not_wait_for_those_that_are_not_known(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Nor does one whose positions are known wait for another's to become so."""

    class Slow(Late):
        async def learn(self, given: Sequence[object]) -> None:
            await super().learn(given)
            await trio.sleep(0.1 if any(self._epoch(one) == 1 for one in given) else 0)

    async with gateway(tmp_path) as (bench, script):
        await publish(script, 100)
        hub = bench.gateway.hub("news")
        assert hub is not None
        hub.lineage_source = cast("HasLineage", SimpleNamespace(lineage=Slow({1: 10**6, 3: 1})))
        bench.connect().does(begin(AtPositions({"0": 1})))
        await trio.sleep(0.05)  # that is being asked now
        client = bench.connect()
        client.does(begin(StartAt.EARLIEST))
        await trio.sleep(0.01)
        assert state(client) is not SubscriptionState.OPENING
        await trio.sleep(0.1)  # and now it waits to be asked again
        other = bench.connect()
        other.does(begin(AtPositions({"0": 3})))
        await trio.sleep(0.01)
        assert state(other) is not SubscriptionState.OPENING


async def test_positions_of_an_unknown_history_wait_and_are_then_refused_for_now(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Those that become known in time are good, and nobody waits for those that do not."""
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 100)
        late = Late({1: 10**6, 2: 3, 3: 1})
        hub = bench.gateway.hub("news")
        assert hub is not None
        hub.lineage_source = cast("HasLineage", SimpleNamespace(lineage=late))
        clients = {epoch: bench.connect() for epoch in late.looks}
        for epoch, client in clients.items():
            client.does(begin(AtPositions({"0": epoch})))
        await trio.sleep(0.3)
        assert state(clients[3]) is SubscriptionState.LIVE
        assert state(clients[2]) is SubscriptionState.OPENING
        await trio.sleep(0.4)
        assert state(clients[2]) is SubscriptionState.LIVE
        assert state(clients[1]) is SubscriptionState.OPENING
        await trio.sleep(1)
        (failed,) = clients[1].told(OpenFailed)
        assert isinstance(failed, OpenFailed)
        assert failed.code == "failed"
        told = "the source has not said where that is within 1 s: nobody knows of 1; try again"
        assert failed.message == told
        asked = late.asked
        assert asked <= 6
        await trio.sleep(5)
        assert late.asked == asked, "nobody asks for a client that was refused"


@pytest.mark.parametrize("start", [StartAt.EARLIEST, StartAt.LATEST, AtPositions({"0": 990}), AtTime(0)])
async def test_until_the_end_is_until_where_the_origin_was_when_that_was_asked_for(
    tmp_path: Path, autojump_clock: MockClock, start: Start
) -> None:
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 1000, timestamp=5)
        script.history.moved({0: 1_020})  # the origin has more than has come from it
        client = bench.connect()
        script.history.hold()
        client.does(replace(begin(start), until=Until.END))
        assert client.told(Opened) == [], "nothing is known of its end yet"
        script.history.release()
        await trio.sleep(0.5)
        await publish(script, 50)
        await publish(script, 50)
        await trio.sleep(0.5)
        first = 1000 if start is StartAt.LATEST else 990 if isinstance(start, AtPositions) else 0
        (ended,) = client.told(Ended)
        assert isinstance(ended, Ended)
        assert ended.reason is CloseReason.UNTIL
        assert client.offsets == list(range(first, 1_020))


async def test_until_the_end_of_an_empty_source_is_over_at_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with gateway(tmp_path) as (bench, _):
        client = bench.connect()
        client.does(replace(begin(), until=Until.END))
        await trio.sleep(0.5)
        assert [type(notice) for notice in client.session.notices if isinstance(notice, Opened | Ended)] == [
            Opened,
            Ended,
        ]
        assert client.offsets == []


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (AtOffset(990), 990),
        (AtOffset(0), 3),  # the first that there is
        (AtOffset(5_000), 1_000),
        (AtOffset(990, frozenset({0, 7})), 990),
        (AtOffset(990, frozenset({7})), 1_000),
        (AtOffset(990, frozenset()), 1_000),
    ],
)
async def test_from_an_offset(tmp_path: Path, autojump_clock: MockClock, start: AtOffset, first: int) -> None:
    async with gateway(tmp_path) as (bench, script):
        await publish(script, 1000)
        script.history.delete(0, 3)
        client = bench.connect()
        client.does(begin(start))
        await trio.sleep(0.5)
        await publish(script, 50)
        await trio.sleep(0.5)
        assert client.offsets == list(range(first, 1_050))
        assert all(notice.dropped == 0 for notice in client.told(Lagged) if isinstance(notice, Lagged))
