"""The `Publisher` in memory, as authors of plugins use it in tests of their own."""

from __future__ import annotations

import pytest
import trio

from kiwi_gw.api import Batch, EventSchema, Field, FieldEncoding, Publisher
from kiwi_gw.testing import MemoryPublisher

SHAPE = EventSchema((Field("n", FieldEncoding.INT),))


def one(number: int) -> Batch:
    return Batch({0: number}, [0], [number], {"n": [number]}, cost=8)


async def numbers_from_three(publisher: Publisher) -> None:
    await publisher.ready({0: 3})
    for number in range(3, 1000):
        await publisher.publish(one(number))


async def test_memory_publisher_keeps_what_was_published() -> None:
    out = MemoryPublisher(SHAPE)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(numbers_from_three, out)
            await out.wait_events(3)
            nursery.cancel_scope.cancel()
    assert out.ready_at == {0: 3}
    assert out.records[:2] == [
        {"n": 3, "partition": 0, "offset": 3},
        {"n": 4, "partition": 0, "offset": 4},
    ]
    assert out.positions == {0: 3 + out.events}


async def test_memory_publisher_holds_lazy_sources_back_until_somebody_subscribes() -> None:
    out = MemoryPublisher(subscribed=False)
    with trio.move_on_after(0):
        await out.wait_subscribed()
        pytest.fail("nobody has subscribed")
    out.subscribe()
    with trio.fail_after(1):
        await out.wait_subscribed()


async def test_memory_publisher_takes_what_follows_its_start_and_nothing_else() -> None:
    out = MemoryPublisher(SHAPE, {0: 5})
    await out.ready({0: 5})
    with pytest.raises(AssertionError, match="repeats events: the next one is 5"):
        await out.publish(one(4))
    assert str(out.broken).startswith("a batch begins at offset 4")
    assert out.events == 0
    await out.publish(one(5))
    assert out.positions == {0: 6}
