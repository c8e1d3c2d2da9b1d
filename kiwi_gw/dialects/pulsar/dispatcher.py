"""Who of a subscription's consumers gets which message, and what becomes of those that are not acknowledged.

Theory of operation. The dispatcher is told which partitions this gateway has, and what was read of them. It
holds every message with its bytes until that is acknowledged: first in a queue, then *pending* at a consumer,
and in the queue again where it comes back (a timeout, `negative`, a consumer that goes, an answer that was
aborted). What was read first goes first, so what comes back comes before what is new.

`shared` and the two types with one consumer at a time have one queue. `key_shared` has one for each key:
while a message of a key is pending, the key is its consumer's, and nobody else is served from that queue.
Messages without a key have one that is nobody's. Of the queues that a consumer may have, it gets the one
whose first message was read first: so no key keeps others from being served.

Nothing here knows a clock, a task or Kafka: times are parameters (seconds).
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from operator import itemgetter
from typing import Final

from kiwi_gw.dialects.pulsar.message_queues import Consumer, Message, MessageQueue, Place, ReadyQueues
from kiwi_gw.dialects.pulsar.partition_cursor import PartitionCursor

MOST_MESSAGES: Final = 10_000
MOST_BYTES: Final = 16 << 20
"""What one subscription holds, with the objects that it is made of."""
MESSAGE_BYTES: Final = 400
"""Of the objects of one message, beside its payload."""
_QUEUE_BYTES: Final = 300
"""The same of the queue of a key, beside that."""

_order: Final = itemgetter(0)


class SubscriptionType(enum.Enum):
    """Say how the consumers of a subscription share its messages."""

    SHARED = "shared"  # by turns
    KEY_SHARED = "key_shared"  # and a key stays with its consumer while any of it is pending
    FAILOVER = "failover"  # the oldest gets all of them
    EXCLUSIVE = "exclusive"  # there is only one

    @property
    def shares(self) -> bool:
        """Return whether several consumers are served."""
        return self in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Say what came of an acknowledgement. changed: partitions whose cursors moved. moved: places in
    partitions that this gateway does not have. unread: places that were not read yet."""

    changed: frozenset[int]
    moved: Sequence[Place]
    unread: Sequence[Place]


class Dispatcher:
    """See the top of this file. cursors: by partition, of those that this gateway has. read: by partition, up
    to where it was read. messages: that it holds; bytes: about how much memory they take; pending: how many
    of them are. redelivered: how often one was given again. due: before that time nothing comes back
    (`expire`)."""

    def __init__(self, kind: SubscriptionType) -> None:
        self.kind = kind
        self.cursors: dict[int, PartitionCursor] = {}
        self.read: dict[int, int] = {}
        self.consumers: dict[str, Consumer] = {}
        self.bytes = 0
        self.messages = 0
        self.pending = 0
        self.redelivered = 0
        self.due = inf
        self._held: dict[int, dict[int, Message]] = {}
        self._queues: dict[bytes | None, MessageQueue] = {}
        self._free = ReadyQueues()  # that are nobody's
        self._numbers = count()

    # --- partitions, and what is read of them ------------------------------------------------

    def assign(self, partition: int, offset: int, text: str = "") -> None:
        """Have a partition from now on, and begin where a commit says."""
        self.revoke(partition)
        cursor = self.cursors[partition] = PartitionCursor(offset, text)
        self.read[partition] = cursor.position
        self._held[partition] = {}

    def revoke(self, partition: int) -> None:
        """Have a partition no more; its messages are forgotten."""
        self.cursors.pop(partition, None)
        self.read.pop(partition, None)
        for message in list(self._held.pop(partition, {}).values()):
            self._forget(message)

    @property
    def room(self) -> tuple[int, int]:
        """Return how many more messages and bytes may be read."""
        return max(MOST_MESSAGES - self.messages, 0), max(MOST_BYTES - self.bytes, 0)

    def take(
        self, partition: int, offsets: Iterable[int], keys: Iterable[bytes | None], payloads: Iterable[bytes]
    ) -> None:
        """Take messages that were read of a partition, in order. What lies between them does not exist; what
        was read before is left out."""
        cursor, held, reached = self.cursors[partition], self._held[partition], self.read[partition]
        by_key = self.kind is SubscriptionType.KEY_SHARED
        for offset, key, payload in zip(offsets, keys, payloads, strict=True):
            if offset < reached:
                continue
            if offset > reached:
                cursor.acknowledge(reached, offset)
            reached = offset + 1
            if cursor.has(offset):
                continue
            queue = self._queue(key if by_key else None)
            message = held[offset] = Message((partition, offset), next(self._numbers), payload, queue)
            self.messages += 1
            self.bytes += len(payload) + MESSAGE_BYTES
            self._put(message)
        self.read[partition] = reached

    def read_up_to(self, partition: int, offset: int) -> bool:
        """Take note that there is nothing more up to there. Returns whether the cursor moved."""
        reached = self.read[partition]
        if offset <= reached:
            return False
        self.read[partition] = offset
        return self.cursors[partition].acknowledge(reached, offset)

    # --- consumers -------------------------------------------------------------------------

    def add(self, name: str, ack_seconds: float = inf) -> None:
        """Have one more consumer, the newest."""
        self.consumers[name] = Consumer(name, ack_seconds)

    def remove(self, name: str) -> None:
        """Let one go; what it has not acknowledged comes back at once."""
        consumer = self.consumers.pop(name)
        self._give_back(consumer.pending.values())

    def is_served(self, name: str) -> bool:
        """Say whether a consumer gets messages, or waits for an older one to go."""
        return self.kind.shares or next(iter(self.consumers)) == name

    def has(self, name: str) -> bool:
        """Say whether something waits that a consumer may have."""
        consumer = self.consumers.get(name)
        if consumer is None:
            return True  # which it is to find out
        return self.is_served(name) and (consumer.own.first()[1] or self._free.first()[1]) is not None

    def fetch(
        self, name: str, most: int, most_bytes: int, now: float, room: float = inf
    ) -> Sequence[Message]:
        """Give a consumer messages, at most so many and so many bytes, or one, if that has no more bytes than
        there is room for."""
        consumer = self.consumers[name]
        found: list[Message] = []
        if not self.is_served(name):
            return found
        due = now + consumer.ack_seconds
        while len(found) < most:
            queue = min(consumer.own.first(), self._free.first(), key=_order)[1]
            if queue is None:
                break
            message = queue.first()
            most_bytes -= len(message.payload)
            if (found and most_bytes < 0) or len(message.payload) > room:
                break
            queue.take()
            message.owner, message.due = consumer, due
            self.redelivered += message.deliveries > 0
            message.deliveries += 1
            consumer.pending[message.place] = message
            queue.pending += 1
            self.pending += 1
            if queue.key is not None and queue.owner is None:
                self._free.drop(queue)
                queue.owner = consumer
            self._list(queue)
            found.append(message)
        if found:  # else those who wait would look as often as nothing comes back
            self.due = min(self.due, due)
        return found

    def give_back(self, name: str, messages: Iterable[Message]) -> None:
        """Have messages come back that were given to a consumer and did not arrive."""
        if (consumer := self.consumers.get(name)) is not None:
            self._give_back(message for message in messages if message.owner is consumer)

    def negative(self, places: Iterable[Place]) -> None:
        """Have messages come back that a consumer does not want; those that are not pending stay."""
        found = (self._held.get(partition, {}).get(offset) for partition, offset in places)
        self._give_back(message for message in found if message is not None)

    def expire(self, now: float) -> int:
        """Have those come back whose time is up. Returns how many there were."""
        if now < self.due:
            return 0
        late: list[Message] = []
        self.due = inf
        for consumer in self.consumers.values():
            for message in consumer.pending.values():
                if message.due > now:
                    self.due = min(self.due, message.due)
                    break
                late.append(message)
        self._give_back(late)
        return len(late)

    # --- acknowledging -----------------------------------------------------------------------

    def acknowledge(self, places: Collection[Place]) -> Acknowledged:
        """Acknowledge messages one by one. Twice is once."""
        moved = [place for place in places if place[0] not in self.cursors]
        unread = [place for place in places if place[1] >= self.read.get(place[0], inf)]
        changed = set()
        for partition, first, stop in _runs(place for place in places if place[0] in self.cursors):
            stop = min(stop, self.read[partition])
            held = self._held[partition]
            for offset in range(first, stop):
                if (message := held.pop(offset, None)) is not None:
                    self._forget(message)
            if self.cursors[partition].acknowledge(first, stop):
                changed.add(partition)
        return Acknowledged(frozenset(changed), moved, unread)

    def acknowledge_up_to(self, places: Collection[Place]) -> Acknowledged:
        """Acknowledge messages and all before them in their partitions."""
        furthest: dict[int, int] = {}
        for partition, offset in places:
            if partition in self.cursors and offset < self.read[partition]:
                furthest[partition] = max(offset, furthest.get(partition, 0))
        for partition, offset in furthest.items():
            held = self._held[partition]
            for before in [each for each in held if each <= offset]:
                self._forget(held.pop(before))
        changed = {
            partition
            for partition, offset in furthest.items()
            if self.cursors[partition].acknowledge(self.cursors[partition].position, offset + 1)
        }
        rest = self.acknowledge([place for place in places if place[1] > furthest.get(place[0], -1)])
        return Acknowledged(rest.changed | changed, rest.moved, rest.unread)

    def pending_of(self, partition: int) -> int:
        """Count what is delivered and not acknowledged."""
        return sum(message.owner is not None for message in self._held.get(partition, {}).values())

    def commits(self, partitions: Iterable[int]) -> Mapping[int, tuple[int, str]]:
        """Return what is to be committed of these."""
        there = (partition for partition in partitions if partition in self.cursors)
        return {p: (self.cursors[p].position, self.cursors[p].text) for p in there}

    # --- inside ----------------------------------------------------------------------------

    def _queue(self, key: bytes | None) -> MessageQueue:
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = MessageQueue(key)
            self.bytes += queue_bytes(key)
        return queue

    def _drop_queue(self, key: bytes) -> None:
        if self._queues.pop(key, None) is not None:
            self.bytes -= queue_bytes(key)

    def _put(self, message: Message) -> None:
        """Have a message wait."""
        message.queue.put(message)
        self._list(message.queue)

    def _list(self, queue: MessageQueue) -> None:
        """Have a queue be found by those who may have its messages."""
        ready = self._free if queue.owner is None else queue.owner.own
        if queue.waiting:
            ready.put(queue)
        else:
            ready.drop(queue)

    def _give_back(self, messages: Iterable[Message]) -> None:
        for message in list(messages):
            if message.owner is not None:
                self._take_off(message)
                self._put(message)

    def _take_off(self, message: Message) -> None:
        """Have a message be pending no more; its key is free when none of it is."""
        consumer, queue = message.owner, message.queue
        assert consumer is not None  # noqa: S101  it is pending
        del consumer.pending[message.place]
        message.owner = None
        self.pending -= 1
        queue.pending -= 1
        if queue.owner is not None and not queue.pending:
            queue.owner.own.drop(queue)
            queue.owner = None
            self._list(queue)

    def _forget(self, message: Message) -> None:
        """Hold a message no more."""
        queue = message.queue
        message.gone = True
        self.messages -= 1
        self.bytes -= len(message.payload) + MESSAGE_BYTES
        message.payload = b""  # it may be among those that wait, until it would be its turn
        if message.owner is not None:
            self._take_off(message)
        else:
            queue.drop()
            self._list(queue)
        if queue.key is not None and not queue.waiting and not queue.pending:
            self._drop_queue(queue.key)


def queue_bytes(key: bytes | None) -> int:
    """Return about how much memory the queue of a key takes. That of messages without one is always there."""
    return 0 if key is None else len(key) + _QUEUE_BYTES


def _runs(places: Iterable[Place]) -> Iterator[tuple[int, int, int]]:
    """Join neighbours: the partition, the first offset and the one behind the last."""
    before: tuple[int, int, int] | None = None
    for partition, offset in sorted(set(places)):
        if before is not None and before[0] == partition and before[2] == offset:
            before = partition, before[1], offset + 1
        else:
            if before is not None:
                yield before
            before = partition, offset, offset + 1
    if before is not None:
        yield before
