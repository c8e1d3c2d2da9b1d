"""The hot path alone and the same every time: batches as Kafka's plugin makes them, encoded and sent to
subscribers whose sockets take everything, so that nothing but the gateway's own work is counted.

`python -m benchmarks hot-path` takes its time by protocol; `python -m benchmarks instructions` counts the
instructions of

    python -m benchmarks.hot_path BATCHES [SUBSCRIBERS [EVENTS]]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from benchmarks import records
from kiwi_gw.core.commands import Open
from kiwi_gw.core.encoding import EncodingMemo, keyed_format
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.notices import Notice
from kiwi_gw.core.publishing import publish
from kiwi_gw.core.round_budget import RoundBudget
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.window import MemoryBudget
from kiwi_gw.dialects.encoder import MAX_EVENT_BYTES
from kiwi_gw.dialects.kiwi.results import kiwi_wire
from kiwi_gw.dialects.zetta import ZettaDialect
from kiwi_gw.dialects.zetta.events import StreamMember, events_wire
from kiwi_gw.dialects.zetta.topic_filters import filter_of, parse_topic
from kiwi_gw.edge.transports import Bytes
from kiwi_gw.edge.websocket_writer import WebSocketWriter
from kiwi_gw.model import Batch, SourceInfo, WireFormat
from kiwi_gw.runtime.delivery_turns import DeliveryTurns
from kiwi_kafka.event_schema import event_schema

_SIZE = 128
_PARTITIONS = 4
_MIB = 1024 * 1024
INFO = SourceInfo("flights", "kafka", event_schema())
_STREAM = ZettaDialect().stream(INFO)

Form = Callable[[int], WireFormat]
"""The form of events for the subscriber of that number."""


class Memory:
    """Take everything at once and forget it, in place of a socket."""

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
    """Take notices and do nothing."""

    def notify(self, subscription: Subscription, notice: Notice) -> None:
        pass


def no_task(task: Callable[[], Awaitable[object]]) -> None:
    raise AssertionError("the hot path starts no task")


def zero() -> float:
    return 0.0


def batch(number: int, events: int) -> Batch:
    """Return the `number`-th batch of a topic: so many events (a multiple of 4), a run of every partition."""
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


def _zetta(number: int) -> WireFormat:
    """Return the form for a client whose only topic has this id."""
    members = [StreamMember(number, filter_of(parse_topic("kiwi-gw/kafka/flights/events")))]
    return events_wire(_STREAM, members, multiple=False, max_event_bytes=MAX_EVENT_BYTES)


WAYS: Final[Mapping[str, Form]] = {
    "kiwi": lambda subscriber: kiwi_wire(INFO),
    "zetta": lambda subscriber: _zetta(1),
    "zetta, different ids": lambda subscriber: _zetta(subscriber + 1),
}
"""By protocol; the second one with the same id for everyone, and with another one for each."""


def _subscribe(hub: SourceHub, number: int, form: WireFormat) -> Subscription:
    command = Open(number, INFO.id, lambda info: form)
    writer = WebSocketWriter(Memory(), no_task, zero, DeliveryTurns(RoundBudget(), lambda: False))
    return hub.subscribe(command, keyed_format(form), writer, Nobody())


def send(form: Form, batches: int, subscribers: int, events: int) -> float:
    """Return the seconds of CPU time that it takes to encode and send so many batches of so many events.

    Raises:
        RuntimeError: a subscriber was not sent every event.
    """
    budget = MemoryBudget(512 * _MIB)
    hub = SourceHub(INFO, HubLimits(), EncodingMemo(64 * _MIB, budget), budget, zero)
    hub.started(dict.fromkeys(range(_PARTITIONS), 0))
    made = [batch(number, events) for number in range(batches)]
    readers = [_subscribe(hub, number, form(number)) for number in range(subscribers)]
    began = time.process_time()
    for item in made:
        for _ in publish(hub, item):
            pass
    spent = time.process_time() - began
    sent = [reader.delivery for reader in readers]
    if any(item.matched != batches * events or item.decode_errors for item in sent):
        raise RuntimeError("not everyone was sent everything")
    return spent


def main(batches: int, subscribers: int = 100, events: int = 400) -> None:
    send(WAYS["kiwi"], batches, subscribers, events)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
