"""The counter: when it counts, what it says, and where it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import trio
import trio.testing
from pydantic import ValidationError

from kiwi_counter import source_types
from kiwi_counter.counter import LARGEST, SCHEMA, CounterSettings
from kiwi_gw.api import Batch, PluginContext, Positions, Source, SourceContext
from kiwi_gw.dialects.kiwi.results import kiwi_wire
from kiwi_gw.model import SourceInfo
from tests.transcripts.recorded import texts


@dataclass
class FakeOut:
    """Notes when each event came. `hold`: how long a `publish` takes, by offset."""

    hold: dict[int, float] = field(default_factory=dict)
    ready_at: list[tuple[float, dict[int, int]]] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    somebody: trio.Event = field(default_factory=trio.Event)

    def expect(self, positions: Positions) -> None:
        raise AssertionError("a counter repeats nothing")

    async def ready(self, positions: Positions) -> None:
        await trio.lowlevel.checkpoint()
        self.ready_at.append((trio.current_time(), dict(positions)))

    async def publish(self, batch: Batch) -> None:
        assert self.ready_at
        self.batches.append(batch)
        self.times.append(trio.current_time())
        await trio.sleep(self.hold.get(batch.offsets[0], 0))

    def describe(self, members: str) -> None:
        raise AssertionError("what a counter counts is known before it runs")

    def report_degraded(self, message: str) -> None:
        raise AssertionError("a counter has no origin that it could be cut off from")

    @property
    def subscribed(self) -> bool:
        return self.somebody.is_set()

    async def wait_subscribed(self) -> None:
        await self.somebody.wait()

    @property
    def counts(self) -> list[object]:
        return [value for batch in self.batches for value in batch.column("count")]

    @property
    def offsets(self) -> list[int]:
        return [offset for batch in self.batches for offset in batch.offsets]


def counter(**settings: object) -> Source:
    (found,) = source_types()
    assert found.name == "counter"
    assert not found.common_description.replayable
    parsed = found.settings.model_validate({"type": "counter", "id": "ticks", **settings})
    return found.build(parsed, SourceContext("ticks", PluginContext({}), {}))


async def test_it_counts_from_min_at_once_to_max_and_ends(autojump_clock: trio.testing.MockClock) -> None:
    out, began = FakeOut(), trio.current_time()
    await counter(min=5, max=8, interval_ms=250).run(out, None)
    assert out.counts == [5, 6, 7, 8]
    assert out.offsets == [0, 1, 2, 3]
    assert [time - began for time in out.times] == pytest.approx([0, 0.25, 0.5, 0.75])
    assert out.ready_at == [(began, {0: 0})]
    assert trio.current_time() - began == pytest.approx(0.75)


async def test_one_event_where_max_is_min(autojump_clock: trio.testing.MockClock) -> None:
    out = FakeOut()
    await counter(min=3, max=3, interval_ms=1).run(out, None)
    assert out.counts == [3]


async def test_batches_say_where_they_are(autojump_clock: trio.testing.MockClock) -> None:
    out = FakeOut()
    await counter(min=0, max=2, interval_ms=1).run(out, None)
    assert [batch.starts for batch in out.batches] == [{0: 0}, {0: 1}, {0: 2}]
    assert [list(batch.partitions) for batch in out.batches] == [[0], [0], [0]]
    assert all(batch.cost > 0 for batch in out.batches)


async def test_without_max_it_never_ends(autojump_clock: trio.testing.MockClock) -> None:
    out = FakeOut()
    with trio.move_on_after(99.5):
        await counter(min=0, interval_ms=1_000).run(out, None)
    assert out.counts == list(range(100))


@pytest.mark.slow
async def test_it_does_not_drift(autojump_clock: trio.testing.MockClock) -> None:
    out, began = FakeOut(), trio.current_time()
    await counter(min=0, max=9_999, interval_ms=7).run(out, None)
    assert out.times[-1] - began == pytest.approx(9_999 * 0.007, abs=1e-9)


async def test_a_late_event_does_not_delay_those_after_it(autojump_clock: trio.testing.MockClock) -> None:
    out, began = FakeOut(hold={1: 2.5}), trio.current_time()
    await counter(min=0, max=5, interval_ms=1_000).run(out, None)
    assert [time - began for time in out.times] == pytest.approx([0, 1, 3.5, 3.5, 4, 5])
    assert out.counts == [0, 1, 2, 3, 4, 5]


async def test_a_lazy_one_starts_with_its_first_subscriber(autojump_clock: trio.testing.MockClock) -> None:
    out, began = FakeOut(), trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(counter(min=7, max=8, interval_ms=1_000, lazy=True).run, out, None)
        await trio.sleep(10)
        assert out.ready_at == [(began, {0: 0})]
        assert out.batches == []
        out.somebody.set()
    assert out.counts == [7, 8]
    assert [time - began for time in out.times] == pytest.approx([10, 11])


async def test_it_goes_on_where_it_was(autojump_clock: trio.testing.MockClock) -> None:
    out = FakeOut()
    await counter(min=10, max=14, interval_ms=1_000).run(out, {0: 3})
    assert out.ready_at[0][1] == {0: 3}
    assert (out.offsets, out.counts) == ([3, 4], [13, 14])


async def test_a_lazy_one_that_had_begun_does_not_wait_again(autojump_clock: trio.testing.MockClock) -> None:
    out = FakeOut()
    await counter(min=0, max=3, interval_ms=1, lazy=True).run(out, {0: 2})
    assert out.counts == [2, 3]


async def test_a_lazy_one_that_had_not_begun_waits(autojump_clock: trio.testing.MockClock) -> None:
    out = FakeOut()
    with trio.move_on_after(5):
        await counter(min=0, interval_ms=1, lazy=True).run(out, {0: 0})
    assert out.ready_at
    assert out.counts == []


async def test_restarted_after_its_end_it_ends_at_once(autojump_clock: trio.testing.MockClock) -> None:
    out = FakeOut()
    await counter(min=0, max=3, interval_ms=1).run(out, {0: 4})
    assert out.counts == []
    assert out.ready_at[0][1] == {0: 4}


async def test_it_can_be_cancelled_and_run_again(autojump_clock: trio.testing.MockClock) -> None:
    source, out = counter(min=0, max=5, interval_ms=1_000), FakeOut()
    with trio.move_on_after(2.5):
        await source.run(out, None)
    await source.run(out, {0: 3})
    assert out.counts == [0, 1, 2, 3, 4, 5]


async def test_what_clients_see(autojump_clock: trio.testing.MockClock) -> None:
    source, out = counter(min=5, max=5, interval_ms=1), FakeOut()
    await source.run(out, None)
    info = SourceInfo("ticks", "counter", SCHEMA)
    frames = [
        texts(kiwi_wire(info, envelope).encode(out.batches[0]).buffer) for envelope in ("flat", "nested")
    ]
    assert frames == [
        ['{"type":"RESULT","data":{"sourceId":"ticks","sourceType":"counter","count":5}}'],
        ['{"type":"RESULT","data":{"sourceType":"counter","sourceId":"ticks","count":5}}'],
    ]


async def test_the_largest_count_has_its_json(autojump_clock: trio.testing.MockClock) -> None:
    source, out = counter(min=LARGEST, max=LARGEST, interval_ms=1), FakeOut()
    await source.run(out, None)
    encoded = kiwi_wire(SourceInfo("ticks", "counter", SCHEMA)).encode(out.batches[0])
    assert b'"count":18446744073709551615}' in encoded.buffer


GOOD = {"type": "counter", "id": "ticks", "min": 0, "interval_ms": 1}


def test_the_originals_settings_are_understood() -> None:
    settings = CounterSettings.model_validate(GOOD)
    assert (settings.max, settings.lazy) == (None, False)
    settings = CounterSettings.model_validate({**GOOD, "max": 3, "lazy": True})
    assert (settings.max, settings.lazy) == (3, True)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"interval_ms": 0}, "greater than or equal to 1"),
        ({"interval_ms": -5}, "greater than or equal to 1"),
        ({"min": -1}, "greater than or equal to 0"),
        ({"min": 4, "max": 3}, r"max \(3\) must not be smaller than min \(4\)"),
        ({"max": LARGEST + 1}, "less than or equal to"),
        ({"step": 2}, "Extra inputs"),
        ({"type": "clock"}, "counter"),
        ({"id": ""}, "at least 1 character"),
    ],
)
def test_wrong_settings(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        CounterSettings.model_validate({**GOOD, **wrong})


@pytest.mark.parametrize("name", ["id", "min", "interval_ms"])
def test_what_a_counter_must_have(name: str) -> None:
    with pytest.raises(ValidationError, match=f"{name}\n  Field required"):
        CounterSettings.model_validate({key: value for key, value in GOOD.items() if key != name})
