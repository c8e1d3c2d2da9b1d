"""The subscriptions of this process: each is a member of a Kafka consumer group, and shares what it has among
its consumers.

A subscription comes with its first consumer here, and goes a minute after its last one, or when its group is
over. Its cursor is Kafka's: nothing of it is kept here.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import Final

from kiwi_gw.api import Sharing
from kiwi_gw.dialect_api.reading import EventRun, GroupReader, GroupTerms, ReadingOver
from kiwi_gw.dialects.pulsar.dispatcher import Dispatcher, SubscriptionType
from kiwi_gw.dialects.pulsar.topics import ConsumedTopic
from kiwi_gw.dialects.pulsar.values import ReadAs
from kiwi_gw.model import Identity, Positions, StartAt

MOST_CONSUMERS: Final = 1_000
"""Of one subscription, here."""
MOST_BYTES: Final = 64 << 20
"""Of the messages that all subscriptions hold."""
OWN_BYTES: Final = MOST_BYTES // 800
"""Of these, what each may always have, an eighth for 100 of them: so those that hold much do not keep the
others from going on."""

IDLE_SECONDS: Final = 300.0
"""A consumer that asks for nothing for so long is removed."""
EMPTY_SECONDS: Final = 60.0
"""A subscription without consumers leaves its group after so long."""


@dataclass(slots=True)
class ConsumerInfo:
    """What is known of a consumer. identity: who made it, and nobody else may use it. used_at: when it last
    asked for something. busy: how many of its requests are under way."""

    name: str
    identity: Identity
    used_at: float
    busy: int = 0


@dataclass(slots=True, eq=False)
class Subscription:
    """Implement `kiwi_gw.dialect_api.GroupSink`.

    view: what stands for what was changed of its messages before anybody sees them (`GroupReader.view`); who
    sees others cannot be a consumer. read_as: what its messages are read as. empty_since: when its last
    consumer went; inf: it has had none. crowded: whether it would read if other subscriptions held less.
    """

    topic: ConsumedTopic
    name: str
    dispatcher: Dispatcher
    local: LocalSubscriptions
    view: object
    read_as: ReadAs
    reader: GroupReader = field(init=False)
    infos: dict[str, ConsumerInfo] = field(default_factory=dict)
    members: int = 0
    ended: ReadingOver | None = None
    uncommitted: set[int] = field(default_factory=set)
    empty_since: float = inf
    crowded: bool = False

    @property
    def kind(self) -> SubscriptionType:
        return self.dispatcher.kind

    # --- consumers -------------------------------------------------------------------------

    def add(self, consumer: str, info: ConsumerInfo, ack_seconds: float) -> None:
        """Have one more consumer. consumer: its id."""
        self.infos[consumer] = info
        self.dispatcher.add(consumer, ack_seconds)

    def remove(self, consumer: str) -> None:
        """Let one go; what it has comes back."""
        del self.infos[consumer]
        self.dispatcher.remove(consumer)
        self.empty_since = time.monotonic()
        self.reader.look()

    # --- for the reader of its group -------------------------------------------------------

    @property
    def pending(self) -> int:
        return self.dispatcher.pending

    @property
    def redelivered(self) -> int:
        return self.dispatcher.redelivered

    @property
    def offsets(self) -> Positions:
        return dict(self.dispatcher.read)

    @property
    def room(self) -> tuple[int, int]:
        messages, size = self.dispatcher.room
        most = self.local.room + max(OWN_BYTES - self.dispatcher.bytes, 0)
        self.crowded = not most
        return messages, min(size, most)

    def assigned(self, given: Mapping[int, tuple[int, str]], kept: frozenset[int], members: int) -> None:
        self.members = members
        for partition in [p for p in self.dispatcher.cursors if p not in kept]:
            self.dispatcher.revoke(partition)
            self.uncommitted.discard(partition)
        for partition, (offset, text) in given.items():
            self.dispatcher.assign(partition, offset, text)

    def read(self, runs: Sequence[EventRun], positions: Positions) -> None:
        dispatcher = self.dispatcher
        for run in runs:
            batch = run.batch
            keys = batch.columns.get("key")
            there = ((batch.partitions[index], index, fragment) for index, fragment in run.fragments)
            for partition, found in groupby(there, itemgetter(0)):
                indexes, fragments = zip(*(each[1:] for each in found), strict=True)
                offsets = [batch.offsets[index] for index in indexes]
                own = [None if keys is None else _key(keys[index]) for index in indexes]
                dispatcher.take(partition, offsets, own, [fragment[:-1] for fragment in fragments])
        for partition, offset in positions.items():
            if dispatcher.read_up_to(partition, offset):
                self.uncommitted.add(partition)

    def has(self, who: Hashable) -> bool:
        return self.dispatcher.has(str(who))

    def commits(self, partitions: Collection[int]) -> Mapping[int, tuple[int, str]]:
        return self.dispatcher.commits(partitions)

    def look(self, now: float) -> bool:
        if (late := self.dispatcher.expire(now)) or (self.crowded and self.local.room):
            self.reader.offer(late)
        if (view := self.reader.view) != self.view:
            self.view = view
            self._read_again()
        for consumer, info in list(self.infos.items()):
            if not info.busy and now - info.used_at >= IDLE_SECONDS:
                self.remove(consumer)
        # Where one has all of it, who has no consumers is in the way of the others.
        most = EMPTY_SECONDS if self.kind.shares else 0
        return bool(self.infos) or now - self.empty_since < most

    def _read_again(self) -> None:
        """Read what is not acknowledged as it is to be seen from now on; what is pending comes again."""
        for partition, (offset, text) in self.dispatcher.commits(list(self.dispatcher.cursors)).items():
            self.dispatcher.assign(partition, offset, text)
        self.reader.rewind()

    def over(self, over: ReadingOver) -> None:
        self.ended = over
        for partition in list(self.dispatcher.cursors):
            self.dispatcher.revoke(partition)
        self.infos.clear()
        self.dispatcher.consumers.clear()
        self.local.forget(self)


class LocalSubscriptions:
    """All subscriptions of this process, by topic and name."""

    def __init__(self) -> None:
        self._there: dict[tuple[str, str], Subscription] = {}

    def find(self, topic: ConsumedTopic, name: str) -> Subscription | None:
        """Return one that is here, and of this life of the topic."""
        found = self._there.get((topic.info.id, name))
        return found if found is not None and found.topic.life == topic.life else None

    @property
    def room(self) -> int:
        """Return how many bytes of messages there is still room for, beyond what each may always have."""
        held = (max(each.dispatcher.bytes - OWN_BYTES, 0) for each in self._there.values())
        return max(MOST_BYTES * 7 // 8 - sum(held), 0)

    def add(self, subscription: Subscription) -> None:
        self._there[subscription.topic.info.id, subscription.name] = subscription

    def forget(self, subscription: Subscription) -> None:
        key = subscription.topic.info.id, subscription.name
        if self._there.get(key) is subscription:
            del self._there[key]


def terms(topic: ConsumedTopic, name: str, kind: SubscriptionType, start: StartAt) -> GroupTerms:
    """Say of which group a subscription is a member: the type is the kind of its members, so that Kafka
    itself refuses one of another type."""
    sharing = Sharing.SPREAD if kind.shares else Sharing.ONE
    return GroupTerms(topic.group(name), f"kiwi-gw.{kind.value}", sharing, start)


def ack_seconds(milliseconds: int) -> float:
    """Return after how long messages come back; 0: never."""
    return milliseconds / 1000 or inf


def _key(key: object) -> bytes | None:
    return key if isinstance(key, bytes) else None
