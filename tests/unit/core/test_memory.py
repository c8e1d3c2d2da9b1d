"""What things weigh, measured."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.publishing import publish
from kiwi_gw.core.window import ENTRY_OVERHEAD, MemoryBudget, Window, WindowEntry
from kiwi_gw.model import Batch
from tests.unit.core.fakes import Client, World, names

pytestmark = pytest.mark.cost


def ignore(entry: WindowEntry) -> None:
    """Ignore what is evicted."""


def weigh(make: Callable[[], object]) -> int:
    """Return the bytes that are held after `make`, by what it returns and by what it did."""
    gc.collect()
    tracemalloc.start()
    try:
        held = make()
        gc.collect()
        size = tracemalloc.get_traced_memory()[0]
        del held
        return size
    finally:
        tracemalloc.stop()


def test_a_stalled_subscription_costs_a_few_hundred_bytes_however_much_it_misses() -> None:
    def run(count: int) -> tuple[int, int]:
        world, owner, form = World(HubLimits(window_events=200)), Client(), names()
        owner.heard = lambda subscription, notice: owner.notices.clear()

        def stall() -> object:
            return [world.subscribe(owner, form, credit=0) for _ in range(count)]

        def publish() -> object:
            for _ in range(50):
                world.produce(20)  # five times the window
            world.memo.forget(world.hub.window.newest)  # type: ignore[arg-type]
            return None

        sizes = weigh(stall), weigh(publish)
        assert world.hub.behind == count
        return sizes

    count = 1000
    (one, held), (many, held_by_many) = run(1), run(count)
    assert (many - one) / count < 600
    assert (held_by_many - held) / count < 200  # its place in the hub's dicts; of the events nothing


def test_entry_overhead_is_what_an_entry_costs_beside_its_columns() -> None:
    partitions, entries = 4, 2000
    window = Window(entries, 1 << 40, MemoryBudget(1 << 40), dict.fromkeys(range(partitions), 0))
    column = [1000]

    def fill() -> object:
        for number in range(entries):
            starts = {partition: 1000 * number + partition for partition in range(partitions)}
            window.append(Batch(starts, column, column, {"key": column, "value": column}, 0), ignore)
        return window

    measured = weigh(fill) / entries
    assert 0.75 * ENTRY_OVERHEAD < measured < 1.1 * ENTRY_OVERHEAD, measured


def test_an_encoding_costs_what_the_memo_says() -> None:
    world, stalled, form = World(), Client(lambda size: 0), names()
    quick = Client()
    world.subscribe(quick, form)
    world.subscribe(stalled, form, credit=0)
    column = [0] * 500
    sent = len(quick.writer.wire)

    def encode() -> object:
        for _ in range(20):
            first = world.next[0]
            world.next[0] += len(column)
            offsets = range(first, world.next[0])
            for _ in publish(world.hub, Batch({0: first}, column, offsets, {}, 0)):
                pass
        return world

    measured = weigh(encode) - (len(quick.writer.wire) - sent) - 20 * ENTRY_OVERHEAD
    assert 0.85 * measured < world.memo.bytes < 1.15 * measured, (measured, world.memo.bytes)
