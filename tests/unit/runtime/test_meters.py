"""What is counted, and that it stays right when parts come and go."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from kiwi_gw.api import (
    Batch,
    Gap,
    HasStatistics,
    Positions,
    Publisher,
    SourceContext,
    SourceStatistics,
    Unreadable,
)
from kiwi_gw.core.commands import AddCredit, Cancel
from kiwi_gw.model import OverflowPolicy, Refusal, Token
from kiwi_gw.runtime.meters import OTHER, Histogram, Meters
from kiwi_gw.runtime.source_runner import SourceRunner
from tests.unit.runtime.fakes import Sources, batch, config, load_text, open_it, running, settled


def test_a_histogram_counts_a_value_at_its_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
        histogram.observe(value)
    assert (histogram.counts, histogram.sum) == ([2, 2, 1], 14.0)


def test_what_a_source_steps_over_is_counted_by_kind() -> None:
    meter = Meters(10).source("a")
    for unreadable in (Unreadable.DAMAGED, None, Unreadable.DAMAGED, Unreadable.TOO_LARGE):
        meter.published(Batch({0: 0}, [], [], {}, 0, Gap({0: (0, 4)}, None, unreadable)), 1, 0.0, 3.0)
    assert meter.unreadable == {"damaged": 2, "too_large": 1}
    assert meter.events == 0


def test_sources_beyond_the_bound_share_a_meter() -> None:
    meters = Meters(max_sources=2)
    first = meters.source("a")
    assert meters.source("b").label == "b"
    assert meters.source("c") is meters.source("d")
    assert meters.source("c").label == OTHER
    assert meters.source("a") is first
    assert [meter.label for meter in meters.sources()] == ["a", "b", OTHER]


@pytest.mark.parametrize(
    ("timestamps", "subscribers", "delays", "newest"),
    [
        ([1_000, 1_500], 1, 1, 1.5),
        ([1_000, 1_500], 0, 0, 1.5),  # nobody: nothing was delivered
        ([-1, -1], 1, 0, 3.0),  # the source does not know
        (None, 1, 0, 3.0),
    ],
)
def test_the_delay_of_a_batch(
    timestamps: list[int] | None, subscribers: int, delays: int, newest: float
) -> None:
    meter = Meters(10).source("a")
    columns = {} if timestamps is None else {"timestamp": timestamps}
    meter.published(Batch({0: 0}, [0, 0], [0, 1], columns, cost=70), subscribers, 0.002, 3.0)
    assert (meter.events, meter.bytes, meter.last_event) == (2, 70, newest)
    assert sum(meter.delivery_delay.counts) == delays
    assert meter.delivery_delay.sum == 2.0 * delays, "from the first event of the batch, the oldest"
    assert sum(meter.fanout.counts) == 1


def test_an_event_from_a_clock_that_is_ahead_was_delivered_at_once() -> None:
    meter = Meters(10).source("a")
    meter.published(Batch({0: 0}, [0], [0], {"timestamp": [9_000]}, cost=70), 1, 0.002, 3.0)
    assert (sum(meter.delivery_delay.counts), meter.delivery_delay.sum) == (1, 0.0)


async def test_a_subscribe_lasts_until_its_source_works(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def run(publisher: Publisher, start: Positions | None, context: SourceContext) -> None:
        await trio.sleep(3)
        await publisher.ready({0: 0})
        await trio.sleep_forever()

    async with running(tmp_path, config("a", "b"), fake=Sources({"a": run})) as bench:
        durations = bench.gateway.meters.command_durations
        client = bench.subscribe("a", "b", "nobody")
        assert durations["fake", "subscribe"].sum == 0.0
        assert sum(durations["fake", "subscribe"].counts) == 2, "b is open, and there is no third one"
        client.does(AddCredit("a", 1))
        await trio.sleep(5)
        assert durations["fake", "subscribe"].sum == pytest.approx(3.0)
        client.does(Cancel("b"))
        assert sum(durations["fake", "unsubscribe"].counts) == 1
        bench.subscribe("a").leave()
        client.leave()
        assert sum(sum(item.counts) for item in durations.values()) == sum(
            bench.gateway.meters.commands.values()
        ), "every command that is counted has its duration"


async def test_what_a_client_had_stays_counted_when_it_goes(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    more = trio.Event()

    async def run(publisher: Publisher, start: Positions | None, context: SourceContext) -> None:
        await publisher.ready({0: 0})
        await publisher.publish(batch(0, 3))
        await more.wait()
        await publisher.publish(batch(3, 2))
        await trio.sleep_forever()

    async with running(tmp_path, config("a"), fake=Sources({"a": run})) as bench:
        meter, meters = bench.gateway.meters.source("a"), bench.gateway.meters
        push, pull = bench.subscribe("a"), bench.connect()
        pull.does(open_it("a", credit=1), AddCredit("a", 1))
        more.set()
        await settled()
        assert meter.delivered == {}, "they are open: the subscriptions know it"
        push.leave()
        pull.does(Cancel("a"))
        assert meter.delivered == {"fake": 2 + 2}
        assert meter.delivered_bytes["fake"] == len(push.socket.wire) + len(pull.socket.wire)
        assert (meter.credits_granted, meter.credits_used) == (2, 2)
        assert meter.started == {"fake": 2}
        assert meter.ended == {"disconnected": 1, "unsubscribed": 1}
        assert meters.opened == {"fake": 2}
        assert meters.closed == {("fake", OTHER): 1}, "there was no close frame"
        assert meters.commands == {
            ("fake", "subscribe", "ok"): 2,
            ("fake", "request", "ok"): 1,
            ("fake", "unsubscribe", "ok"): 1,
        }
        assert (meter.events, sum(meter.fanout.counts)) == (5, 2)


async def test_what_was_refused_is_counted_as_that(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path, config("a"), fake=Sources()) as bench:
        client = bench.subscribe("nothing")
        assert client.refusals == ["unknown_source"]
        assert bench.gateway.meters.commands == {("fake", "subscribe", "refused"): 1}
        assert "nothing" not in [meter.label for meter in bench.gateway.meters.sources()]


async def test_what_a_source_that_was_replaced_dropped_stays_counted(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with running(tmp_path, config("a"), fake=Sources()) as bench:
        hub = bench.gateway.hub("a")
        assert hub is not None
        hub.dropped[OverflowPolicy.DROP_OLDEST] = 7
        hub.events_replayed = 5
        hub.lag_notices = 2
        bench.gateway.apply(load_text(tmp_path, config("a other"), {"fake": Sources()}))
        await trio.sleep(1)
        meter = bench.gateway.meters.source("a")
        assert (meter.dropped, meter.lag_notices, meter.replayed) == ({"drop_oldest": 7}, 2, 5)
        assert meter.restarts == {"altered": 1}


@pytest.mark.parametrize("code", [4999, 3000, 1006, 4402])
def test_a_code_that_a_client_made_up_is_no_label(code: int) -> None:
    meters = Meters(1)
    meters.connection_over("fake", code, 3.0, 10)
    ((dialect, label),) = meters.closed
    assert (dialect, label) == ("fake", str(code) if code in (1006, 4402) else OTHER)
    assert meters.sent_bytes == 10


class _Origin:
    """A source that says what the test wants."""

    def __init__(self, gauge: dict[str, SourceStatistics | Exception]) -> None:
        self._gauge = gauge

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        await publisher.ready({0: 0})
        await trio.sleep_forever()

    def statistics(self) -> SourceStatistics:
        found = self._gauge["now"]
        if isinstance(found, Exception):
            raise found
        return found


@pytest.mark.slow
async def test_a_source_stalls_while_it_is_behind_and_nothing_comes(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    gauge: dict[str, SourceStatistics | Exception] = {"now": SourceStatistics({0: 0})}
    sources = Sources()
    sources._build = lambda settings, context: _Origin(gauge)  # type: ignore[method-assign]
    async with running(tmp_path, config("a"), fake=sources) as bench:
        (runner,) = bench.gateway.runners()
        assert isinstance(runner, SourceRunner)
        assert isinstance(_Origin(gauge), HasStatistics)

        def stalled() -> float:
            return runner.stalled(trio.current_time())

        await trio.sleep(3_600)
        assert stalled() == 0, "an idle source does not stall"
        for trouble in (SourceStatistics({0: 5}), SourceStatistics({}, reachable=False)):
            gauge["now"] = trouble
            await trio.sleep(60)
            assert 58 < stalled() <= 60
            gauge["now"] = SourceStatistics({0: 0})
            await trio.sleep(2)
            assert stalled() == 0
        gauge["now"] = ValueError("broken")
        await trio.sleep(2)
        assert runner.statistics() is None


async def test_it_does_not_measure_what_nobody_wants(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def run(publisher: Publisher, start: Positions | None, context: SourceContext) -> None:
        await publisher.ready({0: 0})
        await publisher.publish(batch(0, 3))
        await trio.sleep_forever()

    text = config("a", more="metrics: {enabled: false}")
    async with running(tmp_path, text, fake=Sources({"a": run})) as bench:
        bench.subscribe("a")
        await trio.sleep(10)
        assert bench.gateway.meters.loop_lag.counts == Histogram().counts
        assert bench.gateway.meters.source("a").events == 0


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("invalid_token", "refused"),
        ("no_token", "missing"),
        ("too_many_failures", "throttled"),
        ("auth_timeout", "failed"),
    ],
)
def test_a_login_that_comes_to_nothing_is_counted_by_whose_fault_it_was(code: str, result: str) -> None:
    meters = Meters(10)
    meters.authentication_over(Token("t"), Refusal(code, "no"))
    assert dict(meters.auth) == {("token", result): 1}
