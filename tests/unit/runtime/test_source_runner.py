"""One source: its batches, its restarts, its ends, and what it does when it is stopped."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from kiwi_gw.api import (
    Batch,
    EventSchema,
    Field,
    FieldEncoding,
    Positions,
    Publisher,
    Source,
    SourceChanged,
    SourceFailed,
    SourceInfo,
)
from kiwi_gw.core.commands import Open
from kiwi_gw.core.encoding import EncodingMemo, keyed_format
from kiwi_gw.core.hub_limits import HubLimits, HubState
from kiwi_gw.core.notices import Opened, SourceDegraded
from kiwi_gw.core.round_budget import SHARED_ROUNDS, RoundBudget
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.window import MemoryBudget
from kiwi_gw.model import CloseReason, Encoded, WireFormat
from kiwi_gw.runtime.fan_out_pace import FanOutPace
from kiwi_gw.runtime.source_runner import FIRST_PAUSE, LONGEST_PAUSE, SourceRunner
from tests.unit.core.fakes import Client, World
from tests.unit.runtime.fakes import SHAPE, batch, settled

Logged = Callable[[str], list[EventDict]]
Act = Callable[[Publisher, Positions | None], object]


class Acts:
    """A source each of whose runs does the next thing. starts: what each was given, and when."""

    def __init__(self, *acts: object) -> None:
        self._acts = list(acts)
        self.starts: list[tuple[float, Positions | None]] = []

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        self.starts.append((trio.current_time(), start))
        act = self._acts.pop(0) if len(self._acts) > 1 else self._acts[0]
        if isinstance(act, BaseException):
            raise act
        await act(publisher, start)  # type: ignore[operator]


class OneStepAtATime(FanOutPace):
    """Gives way after each step of a batch. given: how often it has."""

    def __init__(self) -> None:
        self.round = RoundBudget()
        super().__init__(trio.current_time, self.round)
        self.given = 0

    def slice_seconds(self, most: float) -> float:
        return 0.0

    async def give_way(self) -> None:
        self.given += 1
        await trio.lowlevel.checkpoint()


class Bench:
    def __init__(self, source: Source, shape: EventSchema = SHAPE, pace: FanOutPace | None = None) -> None:
        budget = MemoryBudget(1 << 40)
        info = SourceInfo("news", "fake", shape)
        self.hub = SourceHub(info, HubLimits(), EncodingMemo(1 << 30, budget), budget, trio.current_time)
        self.changes: list[str] = []
        self.entered = self.left = 0
        self.source = source
        pace = pace or FanOutPace(trio.current_time, RoundBudget())
        self.runner = SourceRunner(self.hub, self._build, self.changes.append, pace)

    def subscribe(self, client: Client) -> None:
        form = WireFormat("news", lambda batch: Encoded(b"", [0] * len(batch)))
        self.hub.subscribe(Open("news", "news", lambda info: form), keyed_format(form), client.writer, client)

    @asynccontextmanager
    async def _build(self) -> AsyncIterator[Source]:
        self.entered += 1
        try:
            yield self.source
        finally:
            self.left += 1


async def two_events(publisher: Publisher, start: Positions | None) -> None:
    first = start[0] if start else 0
    if start is None:
        await publisher.ready({0: 0})
    await publisher.publish(batch(first, 2))


async def forever(publisher: Publisher, start: Positions | None) -> None:
    await publisher.ready({0: 0} if start is None else start)
    await trio.sleep_forever()


async def test_a_finite_source_ends_its_feed(autojump_clock: MockClock) -> None:
    bench = Bench(Acts(two_events))
    await bench.runner.run()
    assert bench.hub.state is HubState.ENDED
    assert bench.hub.window.head == 2
    assert bench.runner.restarts == 0
    assert bench.runner.done.is_set()
    assert bench.entered == bench.left == 1


async def test_a_batch_is_sent_at_the_pace_of_fan_out(autojump_clock: MockClock) -> None:
    async def to_many(publisher: Publisher, start: Positions | None) -> None:
        await publisher.ready({0: 0})
        for _ in range(40):
            bench.subscribe(Client())
        await publisher.publish(batch(0, 1))

    pace = OneStepAtATime()
    bench = Bench(Acts(to_many), pace=pace)
    await bench.runner.run()
    assert pace.given == 3, "after 16 subscribers, after 32 and at the end"


async def test_the_rounds_are_those_of_readers_too_where_there_are_any(autojump_clock: MockClock) -> None:
    shared: list[bool] = []

    async def to_none_then_to_one(publisher: Publisher, start: Positions | None) -> None:
        await publisher.ready({0: 0})
        pace.round.serve(writer)
        pace.round.number += SHARED_ROUNDS + 1
        await publisher.publish(batch(0, 1))
        shared.append(pace.round.is_shared())
        bench.subscribe(Client())
        await publisher.publish(batch(1, 1))
        shared.append(pace.round.is_shared())

    writer, pace = object(), OneStepAtATime()
    bench = Bench(Acts(to_none_then_to_one), pace=pace)
    await bench.runner.run()
    assert shared == [False, True]


async def test_a_source_that_says_again_what_its_values_are_made_of_stays_as_it_is(
    autojump_clock: MockClock,
) -> None:
    seen: list[SourceInfo] = []

    async def described(publisher: Publisher, start: Positions | None) -> None:
        for members in ("a INT", "".join(["a ", "INT"]), "b INT"):
            publisher.describe(members)
            seen.append(bench.hub.info)
        with pytest.raises(ValueError, match="there is no type FOO"):
            publisher.describe("a FOO")
        await two_events(publisher, start)

    bench = Bench(Acts(described))
    await bench.runner.run()
    assert seen[0] is seen[1]
    assert [info.members for info in seen] == ["a INT", "a INT", "b INT"]
    assert bench.hub.info is seen[2]


async def test_subscribers_are_told_what_keeps_a_source_from_its_origin(
    autojump_clock: MockClock, logged: Logged
) -> None:
    async def cut_off(publisher: Publisher, start: Positions | None) -> None:
        await publisher.ready({0: 0} if start is None else start)
        publisher.report_degraded("the well is dry")
        publisher.report_degraded("the well is dry")
        await trio.sleep(10)
        publisher.report_degraded("")
        await trio.sleep(10)
        raise OSError("the address of a broker")

    bench = Bench(Acts(cut_off, forever))
    live, late = Client(), Client()
    bench.subscribe(live)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.runner.run)
        await trio.sleep(5)
        bench.subscribe(late)
        assert [type(notice) for notice in late.notices] == [Opened, SourceDegraded]
        assert troubles(live) == troubles(late) == ["the well is dry"]
        await trio.sleep(10)
        assert troubles(live) == troubles(late) == ["the well is dry", ""]
        await trio.sleep(10)
        failed = ["the well is dry", "", "the source has failed and is started again", ""]
        assert troubles(live) == troubles(late) == failed
        nursery.cancel_scope.cancel()


async def test_all_who_waited_for_a_source_begin_before_its_first_event_and_others_have_turns_between(
    autojump_clock: MockClock,
) -> None:
    seen: list[int] = []

    async def busy(publisher: Publisher, start: Positions | None) -> None:
        await publisher.ready({0: 0})
        seen.append(opened())
        await trio.sleep_forever()

    def opened() -> int:
        return sum(type(notice) is Opened for client in clients for notice in client.notices)

    bench = Bench(Acts(busy))
    now = itertools.count(0.0, 0.004)  # whoever looks at the clock finds it 4 ms later
    bench.hub._clock = lambda: next(now)
    clients = [Client() for _ in range(50)]
    for client in clients:
        bench.subscribe(client)
    turns: set[int] = set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.runner.run)
        while not seen:
            await trio.lowlevel.checkpoint()
            turns.add(opened())
        nursery.cancel_scope.cancel()
    assert seen == [50]
    assert len(turns) > 10


def troubles(client: Client) -> list[str]:
    return [notice.message for notice in client.notices if isinstance(notice, SourceDegraded)]


async def test_a_source_that_raises_goes_on_behind_what_was_taken(
    autojump_clock: MockClock, logged: Logged
) -> None:
    async def two_and_fail(publisher: Publisher, start: Positions | None) -> None:
        await two_events(publisher, start)
        raise OSError("gone")

    bench = Bench(Acts(two_and_fail, two_and_fail, two_events))
    await bench.runner.run()
    assert [start for _, start in bench.source.starts] == [None, {0: 2}, {0: 4}]  # type: ignore[attr-defined]
    assert bench.hub.window.head == 6
    assert bench.runner.restarts == 2
    assert bench.runner.last_error == "OSError: gone"
    assert len(logged("source raised; it is restarted")) == 2
    assert bench.entered == bench.left == 3


async def test_one_that_was_never_ready_begins_anew(autojump_clock: MockClock) -> None:
    bench = Bench(Acts(OSError("no route"), two_events))
    await bench.runner.run()
    assert [start for _, start in bench.source.starts] == [None, None]  # type: ignore[attr-defined]


async def test_pauses_grow_to_half_a_minute_and_begin_anew_after_a_long_run(
    autojump_clock: MockClock,
) -> None:
    async def long(publisher: Publisher, start: Positions | None) -> None:
        await trio.sleep(LONGEST_PAUSE + 1)
        raise OSError("after a while")

    bench = Bench(Acts(*[OSError("no")] * 9, long, OSError("no"), two_events))
    await bench.runner.run()
    times = [when for when, _ in bench.source.starts]  # type: ignore[attr-defined]
    pauses = [after - before for before, after in pairwise(times)]
    pauses[9] -= LONGEST_PAUSE + 1
    wanted = [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 0.5, 1]
    assert all(most / 2 <= pause <= most for pause, most in zip(pauses, wanted, strict=True)), pauses


FAULTS = [
    ValueError("boom"),
    SystemExit(1),
    asyncio.CancelledError(),
    ExceptionGroup("", [ValueError("boom")]),
    BaseExceptionGroup("", [SystemExit(1), ValueError("boom")]),
]


@pytest.mark.parametrize("error", FAULTS, ids=repr)
async def test_whatever_it_raises_it_is_restarted(autojump_clock: MockClock, error: BaseException) -> None:
    bench = Bench(Acts(error, two_events))
    await bench.runner.run()
    assert bench.runner.restarts == 1
    assert bench.runner.last_error
    assert bench.hub.state is HubState.ENDED


async def test_an_error_that_cannot_be_printed_is_an_error(autojump_clock: MockClock) -> None:
    class Unprintable(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise RuntimeError("not even that")

    bench = Bench(Acts(Unprintable(), two_events))
    await bench.runner.run()
    assert "Unprintable" in bench.runner.last_error


@pytest.mark.parametrize("wrap", [lambda e: e, lambda e: ExceptionGroup("", [e])], ids=["bare", "nursery"])
async def test_one_that_can_never_work_is_not_restarted(
    autojump_clock: MockClock, wrap: Callable[[Exception], Exception]
) -> None:
    bench = Bench(Acts(wrap(SourceFailed("no such table"))))
    await bench.runner.run()
    assert (bench.hub.state, bench.hub.end_message) == (HubState.FAILED, "no such table")
    assert (bench.runner.restarts, bench.runner.last_error) == (0, "no such table")


@pytest.mark.parametrize("wrap", [lambda e: e, lambda e: ExceptionGroup("", [e])], ids=["bare", "nursery"])
async def test_one_that_has_changed_is_told_of_at_once(
    autojump_clock: MockClock, wrap: Callable[[Exception], Exception]
) -> None:
    async def change(publisher: Publisher, start: Positions | None) -> None:
        await trio.sleep(10)
        raise wrap(SourceChanged("more partitions"))

    bench = Bench(Acts(change))
    await bench.runner.run()
    assert bench.changes == ["more partitions"]
    assert trio.current_time() == 10
    assert bench.hub.state is HubState.STARTING  # its hub is the gateway's business


async def test_one_that_always_says_that_it_has_changed_does_not_keep_us_busy(
    autojump_clock: MockClock,
) -> None:
    bench = Bench(Acts(SourceChanged("again")))
    await bench.runner.run()
    assert bench.changes == ["again"]
    assert trio.current_time() == FIRST_PAUSE


# --- being stopped -----------------------------------------------------------------------------


async def stopped(bench: Bench) -> None:
    """Run it, remove its hub as the gateway does, and wait for its end."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.runner.run)
        await settled()
        bench.runner.stop()
        bench.hub.removed(CloseReason.ALTERED, "altered", 5)
        await bench.runner.done.wait()


@pytest.mark.parametrize(
    "error",
    [
        ValueError("cannot close"),
        SourceFailed("cannot close"),
        SourceChanged("something"),
        SystemExit(1),
        BaseExceptionGroup("", [SystemExit(1)]),
    ],
    ids=repr,
)
async def test_what_it_raises_while_it_is_stopped_is_logged_and_no_more(
    autojump_clock: MockClock, error: BaseException, logged: Logged
) -> None:
    async def clean_up(publisher: Publisher, start: Positions | None) -> None:
        try:
            await forever(publisher, start)
        finally:
            raise error

    bench = Bench(Acts(clean_up))
    await stopped(bench)
    assert bench.hub.state is HubState.REMOVED
    assert bench.hub.end_reason is CloseReason.ALTERED
    assert (bench.runner.restarts, bench.changes) == (0, [])
    assert len(bench.source.starts) == 1  # type: ignore[attr-defined]
    assert len(logged("source raised while it was stopped")) == 1


async def test_a_nursery_that_is_stopped_while_one_of_its_tasks_fails(
    autojump_clock: MockClock, logged: Logged
) -> None:
    """Cancellation and the fault come out as one group, which must not end the gateway."""

    async def fail_late() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("cannot close")

    async def run(publisher: Publisher, start: Positions | None) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_late)
            await forever(publisher, start)

    bench = Bench(Acts(run))
    await stopped(bench)
    assert len(logged("source raised while it was stopped")) == 1


async def test_one_that_takes_cancellation_for_its_end_does_not_end_its_feed(
    autojump_clock: MockClock,
) -> None:
    async def swallow(publisher: Publisher, start: Positions | None) -> None:
        try:
            await forever(publisher, start)
        except BaseException:  # noqa: BLE001  as a careless plugin does
            return

    bench = Bench(Acts(swallow))
    await stopped(bench)
    assert bench.hub.end_reason is CloseReason.ALTERED


async def test_what_it_publishes_after_its_removal_reaches_nobody(autojump_clock: MockClock) -> None:
    async def late(publisher: Publisher, start: Positions | None) -> None:
        try:
            await forever(publisher, start)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
                await publisher.publish(batch(0, 5))

    bench = Bench(Acts(late))
    await stopped(bench)
    assert bench.hub.window.head == bench.hub.events_in == 0


async def test_it_is_stopped_in_its_pause(autojump_clock: MockClock) -> None:
    bench = Bench(Acts(OSError("no")))
    await stopped(bench)
    assert len(bench.source.starts) == 1  # type: ignore[attr-defined]
    assert trio.current_time() == 0


async def test_it_is_stopped_before_it_runs(autojump_clock: MockClock) -> None:
    bench = Bench(Acts(forever))
    bench.runner.stop()
    await bench.runner.run()
    assert bench.runner.done.is_set()


async def test_the_end_of_everything_is_not_a_failure(
    autojump_clock: MockClock, log_lines: list[EventDict]
) -> None:
    bench = Bench(Acts(forever))
    with trio.move_on_after(1):
        await bench.runner.run()
    assert bench.runner.done.is_set()
    assert [line["event"] for line in log_lines] == ["source runs"]


# --- Publisher ---------------------------------------------------------------------------------------


async def test_publishing_before_ready_is_an_error(autojump_clock: MockClock) -> None:
    async def eager(publisher: Publisher, start: Positions | None) -> None:
        await publisher.publish(batch(0))

    bench = Bench(Acts(eager, two_events))
    await bench.runner.run()
    assert "publish was called before ready" in bench.runner.last_error
    assert bench.hub.window.head == 2


async def test_two_publishes_at_once_are_an_error_and_lose_nothing(autojump_clock: MockClock) -> None:
    """As the second would come between the pieces of the first."""

    async def both(publisher: Publisher, start: Positions | None) -> None:
        await publisher.ready({0: 0})
        begun = trio.Event()

        async def first() -> None:
            begun.set()
            await publisher.publish(batch(0, 3_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(first)
            await begun.wait()
            await publisher.publish(batch(3_000))

    bench = Bench(Acts(both, two_events))
    await bench.runner.run()
    assert "publish was called while another one was under way" in bench.runner.last_error
    assert bench.runner.restarts == 1
    assert bench.hub.positions == {0: 3_002}
    assert bench.hub.window.head == 3_002


async def test_a_repetition_is_an_error_and_reaches_nobody(autojump_clock: MockClock) -> None:
    async def stutter(publisher: Publisher, start: Positions | None) -> None:
        await two_events(publisher, start)
        await publisher.publish(batch(1))

    bench = Bench(Acts(stutter, two_events))
    await bench.runner.run()
    assert bench.runner.restarts == 1
    assert bench.hub.window.head == 4


@pytest.mark.parametrize(
    ("columns", "words"),
    [({"other": [1, 2]}, "lacks the columns value"), ({"value": [1]}, "columns of other lengths")],
)
async def test_a_batch_without_its_columns_is_the_sources_fault(
    autojump_clock: MockClock, columns: dict[str, list[int]], words: str
) -> None:
    async def broken(publisher: Publisher, start: Positions | None) -> None:
        await publisher.ready({0: 0})
        await publisher.publish(batch(0, 2, **columns))

    bench = Bench(Acts(broken, two_events))
    await bench.runner.run()
    assert words in bench.runner.last_error
    assert bench.hub.window.head == 2


async def test_columns_of_variants_must_be_there_and_partitions_need_not(autojump_clock: MockClock) -> None:
    fields = (
        Field("sourceType", FieldEncoding.SOURCE_TYPE),
        Field("offset", FieldEncoding.INT),
        Field("partition", FieldEncoding.INT),
    )
    shape = EventSchema(fields, {"nested": (Field("payload", FieldEncoding.BASE64, "raw"),)})

    async def run(publisher: Publisher, start: Positions | None) -> None:
        await publisher.ready({0: 0})
        await publisher.publish(Batch({0: 0}, [0], [0], {"raw": [b"x"]}, cost=1))
        await publisher.publish(batch(1))

    bench = Bench(Acts(run, SourceFailed("enough")), shape)
    await bench.runner.run()
    assert bench.hub.window.head == 1
    assert bench.runner.restarts == 1


async def test_a_lazy_source_starts_with_its_first_subscription(autojump_clock: MockClock) -> None:
    began: list[float] = []

    async def lazy(publisher: Publisher, start: Positions | None) -> None:
        await publisher.ready({0: 0})
        await publisher.wait_subscribed()
        began.append(trio.current_time())
        await publisher.wait_subscribed()
        began.append(trio.current_time())

    bench = Bench(Acts(lazy))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.runner.run)
        await trio.sleep(3)
        _subscribe(bench.hub).cancel()  # one that was gone before the source woke up
        await trio.sleep(3)
        assert began == []
        _subscribe(bench.hub)
    assert began == [6, 6]


def _subscribe(hub: SourceHub) -> Subscription:
    world = World(begin=False)
    world.hub = hub
    return world.subscribe(Client())
