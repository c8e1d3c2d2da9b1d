"""The hot path alone and the same every time: batches as Kafka's plugin makes them, encoded and sent to
subscribers whose sockets take everything. For counting instructions; nothing here is timed.

    python -m benchmarks.hot_path BATCHES [SUBSCRIBERS [EVENTS]]
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence

from benchmarks import records
from kiwi_gw.core.encoding import EncodingMemo, wire
from kiwi_gw.core.feed import Feed, FeedLimits, Request
from kiwi_gw.core.notices import Notice
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.window import Budget
from kiwi_gw.dialects.kiwi.results import kiwi_wire
from kiwi_gw.edge.outlet import Outlet
from kiwi_gw.edge.transports import Bytes
from kiwi_gw.model import Batch, Mode, SourceInfo
from kiwi_kafka.shape import event_shape

_SIZE = 128
_PARTITIONS = 4
_MIB = 1024 * 1024


class Memory:
    """A socket that takes everything at once and forgets it."""

    broken = False
    pending = False

    def try_send(self, data: Bytes) -> int:
        return len(data)

    def try_send_many(self, buffers: Sequence[Bytes]) -> int:
        return sum(map(len, buffers))

    def flush(self) -> bool:
        return True

    def unanswered(self) -> float | None:
        return None

    async def wait_writable(self) -> None:
        raise AssertionError("it is always writable")


class Nobody:
    """Is told, and does nothing."""

    def notify(self, subscription: Subscription, notice: Notice) -> None:
        pass


def no_task(task: Callable[[], Awaitable[object]]) -> None:
    raise AssertionError("the hot path starts no task")


def zero() -> float:
    return 0.0


def batch(number: int, events: int) -> Batch:
    """The `number`-th batch of a topic, of so many events in turn of every partition."""
    each = events // _PARTITIONS
    first = number * each
    partitions = [partition for partition in range(_PARTITIONS) for _ in range(each)]
    offsets = [first + index for _ in range(_PARTITIONS) for index in range(each)]
    values = [
        records.value(offset * _PARTITIONS + partition, _SIZE)
        for partition, offset in zip(partitions, offsets, strict=True)
    ]
    columns: dict[str, Sequence[object]] = {
        "key": [records.key(partition) for partition in partitions],
        "value": values,
        "timestamp": [1_700_000_000_000 + offset for offset in offsets],
    }
    starts = dict.fromkeys(range(_PARTITIONS), first)
    return Batch(starts, partitions, offsets, columns, cost=events * (_SIZE + 64))


def main(batches: int, subscribers: int = 100, events: int = 400) -> int:
    """Returns how many events were sent."""
    budget = Budget(512 * _MIB)
    info = SourceInfo("flights", "kafka", event_shape())
    feed = Feed(info, FeedLimits(), EncodingMemo(64 * _MIB, budget), budget, zero)
    feed.started(dict.fromkeys(range(_PARTITIONS), 0))
    item = wire(kiwi_wire(info), None)
    outlets = [Outlet(Memory(), no_task, zero) for _ in range(subscribers)]
    for outlet in outlets:
        feed.subscribe(Request(object(), item, Mode.PUSH, 0, {}), outlet, Nobody())
    for number in range(batches):
        for _ in feed.publish(batch(number, events)):
            pass
    if any(outlet.sent_bytes != outlets[0].sent_bytes for outlet in outlets):
        raise AssertionError("not everyone was sent everything")
    return batches * events * subscribers


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
