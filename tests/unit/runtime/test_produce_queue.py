"""Records on their way to one source, without a gateway: what it cannot take, its room, and its turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from kiwi_gw.core.commands import Produce
from kiwi_gw.core.round_budget import RoundBudget
from kiwi_gw.model import Outgoing, Published, Unpublished
from kiwi_gw.runtime import produce_queue
from kiwi_gw.runtime.fan_out_pace import SHORT_SLICE_SECONDS, FanOutPace
from kiwi_gw.runtime.meters import SourceMeter
from kiwi_gw.runtime.produce_queue import TURN_RECORDS, ProduceQueue, ProduceTicket
from kiwi_gw.runtime.produce_window import ProduceWindow
from tests.unit.runtime.fakes import settled

SECONDS = 4.0


class Writer:
    """A source that writes when its gate is open. calls: the records that were handed over together."""

    def __init__(self) -> None:
        self.calls: list[list[bytes | None]] = []
        self.gate = trio.Event()
        self.says: Callable[[int], object] = lambda number: Published(0, number)

    async def produce(self, records: Sequence[Outgoing], within: float) -> Sequence[object]:
        self.calls.append([record.value for record in records])
        await self.gate.wait()
        return [self.says(number) for number in range(len(records))]


class SlowWriter(Writer):
    """Takes a tenth of a second, whatever it writes."""

    async def produce(self, records: Sequence[Outgoing], within: float) -> Sequence[object]:
        self.gate = trio.Event()
        self.gate.set()
        await trio.sleep(0.1)
        return await super().produce(records, within)


class Connection:
    """One connection of many. told: each record of its own, with what became of it."""

    def __init__(self, queue: ProduceQueue) -> None:
        self.told: list[tuple[object, object]] = []
        self.then: Callable[[], None] = lambda: None
        self.window = ProduceWindow(self._answered)
        self._queue = queue

    def put(self, *texts: str) -> None:
        for text in texts:
            self.window.add(Produce(text, "a", Outgoing(None, text.encode())), self._queue, SECONDS, None)

    def _answered(self, tickets: Sequence[ProduceTicket]) -> None:
        self.told += [(ticket.handle, ticket.results[0]) for ticket in tickets]
        self.then()


class Place:
    """A queue before a source, or before what is none. meter: what is counted, if anything is."""

    def __init__(self, nursery: trio.Nursery, source: object, meter: SourceMeter | None) -> None:
        self.nursery, self.source, self.meter = nursery, source, meter
        self.pace = FanOutPace(trio.current_time, RoundBudget())
        self.queue = ProduceQueue(lambda: self.source, nursery.start_soon, self.pace, meter)

    def connect(self) -> Connection:
        return Connection(self.queue)


@asynccontextmanager
async def place(source: object, *, measured: bool = True) -> AsyncIterator[Place]:
    async with trio.open_nursery() as nursery:
        yield Place(nursery, source, SourceMeter("a") if measured else None)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("source", "retriable"), [(None, True), (object(), False)])
async def test_what_does_not_run_or_cannot_write_has_written_nothing(source: object, retriable: bool) -> None:
    async with place(source) as here:
        client = here.connect()
        client.put("1", "2")
        await settled()
        assert [handle for handle, _ in client.told] == ["1", "2"]
        for _, result in client.told:
            assert isinstance(result, Unpublished)
            assert (result.known, result.retriable) == (True, retriable)
            assert result.message.startswith("not written: ")
        assert here.meter is not None
        assert here.meter.produced == {"not_written": 2}


async def test_fan_out_gives_way_to_records_that_are_handed_over(autojump_clock: MockClock) -> None:
    async with place(None) as here:
        client = here.connect()
        client.put("1")
        await settled()
        assert here.pace.slice_seconds(1.0) == 1.0
        here.source = Writer()
        client.put("2")
        await settled()
        assert here.pace.slice_seconds(1.0) == SHORT_SLICE_SECONDS


async def test_a_source_that_was_away_writes_what_comes_once_it_runs() -> None:
    writer = Writer()
    writer.gate.set()
    async with place(None) as here:
        client = here.connect()
        client.put("1")
        await settled()
        here.source = writer
        client.put("2")
        await settled()
        assert writer.calls == [[b"2"]]
        assert client.told[1:] == [("2", Published(0, 0))]


async def test_results_that_are_none_leave_all_records_in_doubt(
    logged: Callable[[str], list[EventDict]],
) -> None:
    writer = Writer()
    writer.gate.set()
    writer.says = lambda number: Published(0, 0) if number == 0 else number
    async with place(writer) as here:
        client = here.connect()
        client.put("1", "2")
        await settled()
        assert [(result.known, result.retriable) for _, result in client.told] == [(False, True)] * 2  # type: ignore[attr-defined]
        assert len(logged("a source failed to write")) == 1
        assert here.meter is not None
        assert here.meter.produced == {"unknown": 2}


async def test_what_waited_behind_a_source_that_hangs_is_not_handed_over_late(
    autojump_clock: MockClock,
) -> None:
    writer = Writer()
    async with place(writer) as here:
        first, second = here.connect(), here.connect()
        first.put("1")
        await settled()
        second.put("2", "3")
        await trio.sleep(SECONDS + 1)
        assert writer.calls == [[b"1"]]
        assert [(result.known, result.retriable) for _, result in first.told] == [(False, True)]  # type: ignore[attr-defined]
        assert [(result.known, result.retriable) for _, result in second.told] == [(True, True)] * 2  # type: ignore[attr-defined]
        writer.gate.set()
        second.put("4")
        await settled()
        assert second.told[2:] == [("4", Published(0, 0))]


async def test_without_measuring_the_answers_are_the_same() -> None:
    writer = Writer()
    writer.gate.set()
    async with place(writer, measured=False) as here:
        client = here.connect()
        client.put("1", "2")
        await settled()
        assert client.told == [("1", Published(0, 0)), ("2", Published(0, 1))]


async def test_all_who_wait_for_room_of_a_source_are_read_again_when_there_is_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where another connection has taken it, and leaves."""
    monkeypatch.setattr(produce_queue, "MOST_BYTES", 4_000)
    writer = Writer()
    async with place(writer) as here:
        small, large, third = here.connect(), here.connect(), here.connect()
        small.put("1")
        await settled()
        large.put("x" * 4_000)
        third.put("3")
        waiting: list[str] = []

        async def wait(name: str, window: ProduceWindow) -> None:
            waiting.append(name)
            await window.wait_room()
            waiting.remove(name)

        here.nursery.start_soon(wait, "large", large.window)
        here.nursery.start_soon(wait, "third", third.window)
        await settled()
        assert sorted(waiting) == ["large", "third"]
        large.window.clear()
        await settled()
        assert waiting == []
        writer.gate.set()
        await settled()
        assert writer.calls == [[b"1"], [b"3"]]
        assert (large.told, third.told) == ([], [("3", Published(0, 0))])


class Request:
    """Has many records, as a request over HTTP."""

    def __init__(self, queue: ProduceQueue, name: str, count: int) -> None:
        records = [Outgoing(None, name.encode())] * TURN_RECORDS
        until = trio.current_time() + SECONDS
        self.tickets = [ProduceTicket(name, records, 1, None, until) for _ in range(count // TURN_RECORDS)]
        for ticket in self.tickets:
            queue.add(self, ticket)

    def settle(self) -> None: ...

    def make_room(self) -> None: ...


async def test_a_lone_record_goes_before_those_of_whoever_has_many(autojump_clock: MockClock) -> None:
    writer = SlowWriter()
    async with place(writer) as here:
        flood = here.connect()
        flood.put(*["f"] * 1_000)
        requests = [Request(here.queue, f"r{number}", 960) for number in range(16)]
        await trio.sleep(0.35)
        lone = here.connect()
        lone.put("1")
        await trio.sleep(0.2)
        assert [handle for handle, _ in lone.told] == ["1"], "with the next call"
        assert max(Counter(writer.calls[2]).values()) <= 2 * TURN_RECORDS, "everybody has turns"
        await trio.sleep(1)
        written = [sum(bool(ticket.results) for ticket in request.tickets) for request in requests]
        assert max(written) - min(written) <= 4, "that many turns while some had had none"
        assert len(flood.told) >= min(written) * TURN_RECORDS


async def test_what_is_late_is_answered_before_its_turn(autojump_clock: MockClock) -> None:
    async with place(SlowWriter()) as here:
        requests = [Request(here.queue, f"r{number}", 960) for number in range(40)]
        await trio.sleep(SECONDS)
        results = [result for one in requests for ticket in one.tickets for result in ticket.results]
        assert len(results) == 40 * 960
        assert {type(result) for result in results} == {Published, Unpublished}


async def test_others_have_their_turn_while_many_answers_are_given(mock_clock: MockClock) -> None:
    writer = Writer()
    order: list[object] = []
    async with place(writer) as here:
        clients = [here.connect() for _ in range(4)]

        async def other() -> None:
            order.append("other")

        def took_long(number: int) -> None:
            if not order:
                here.nursery.start_soon(other)
            order.append(number)
            mock_clock.jump(0.006)

        for number, client in enumerate(clients):
            client.then = lambda number=number: took_long(number)  # type: ignore[misc]
            client.put(str(number))
        writer.gate.set()
        await settled()
        assert [each for each in order if each != "other"] == [0, 1, 2, 3]
        assert order.index("other") < 3, "not behind the last one"
