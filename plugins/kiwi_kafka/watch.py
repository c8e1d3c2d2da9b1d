"""Looks after the topics of the live sources: are they still there, the same ones, as wide, and read?"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping

import structlog
import trio

from kiwi_gw.api import SourceChanged
from kiwi_kafka.lease import Lease
from kiwi_kafka.lookup import created_anew
from kiwi_kafka.seam import Missing, Place, Scout, TopicView
from kiwi_kafka.settings import KafkaSettings

log = structlog.get_logger("kiwi_kafka")

_TOPICS = 20
"""Topics that one look takes, in turns, so that a hundred of them cost little."""
_STALLED_S = 5.0
_GONE_AFTER = 2
"""A broker that has just started may not know a topic yet: so often it must be missing, in a row."""


class Watch:
    """`regrown(lease)`: its partitions have changed; `stalled(lease)`: its consumer does not move."""

    def __init__(
        self,
        settings: KafkaSettings,
        regrown: Callable[[Lease], None],
        stalled: Callable[[Lease], None],
        healed: Callable[[], None],
    ) -> None:
        self._discovers = settings.partition_discovery_enabled
        self._share = settings.probe_interval_ms / settings.partition_discovery_interval_ms
        self._regrown = regrown
        self._stalled = stalled
        self._healed = healed
        self._turns: deque[Lease] = deque()
        self._silent: frozenset[int] = frozenset()

    def add(self, lease: Lease) -> None:
        self._turns.appendleft(lease)

    def remove(self, lease: Lease) -> None:
        self._turns.remove(lease)

    async def look(self, scout: Scout) -> None:
        """One round: the next topics in turn. UnreachableError if no broker answers."""
        due = self._due()
        views = await scout.describe({lease.topic for lease in due})
        present = [view for view in views.values() if isinstance(view, TopicView)]
        for lease in due:
            if not lease.over:
                self._judge(lease, views[lease.topic])
        if not present:
            return
        ends = await scout.ends(present, stable=True)
        if self._silent - ends.silent:
            # A broker is back, or leads no longer. A consumer may not notice for `request_timeout_ms`.
            self._healed()
        self._silent = ends.silent
        now = trio.current_time()
        for lease in due:
            known = ((partition, ends.known.get(Place(lease.topic, partition))) for partition in lease.next)
            lease.ends.update((partition, end) for partition, end in known if end is not None)
            if not lease.over and self._is_stalled(lease, ends.known, now):
                log.warning("kafka consumer stands still, making another", topic=lease.topic)
                lease.stalls.clear()
                self._stalled(lease)

    def _due(self) -> list[Lease]:
        count = len(self._turns)
        every_interval = math.ceil(count * self._share) if self._discovers else 0
        count = max(_TOPICS, every_interval)
        due = [self._turns[i] for i in range(min(count, len(self._turns)))]
        self._turns.rotate(-len(due))
        return due

    def _judge(self, lease: Lease, view: TopicView | Missing) -> None:
        if isinstance(view, Missing):
            lease.missing += 1
            if lease.missing >= _GONE_AFTER:
                lease.end(SourceChanged(f"topic {lease.topic!r} has been deleted"))
                self._regrown(lease)
            else:
                self._turns.remove(lease)
                self._turns.appendleft(lease)  # look again next time
            return
        lease.missing = 0
        if view.is_another(lease.topic_id):
            lease.end(created_anew(lease.topic))
            self._regrown(lease)
            return
        added = lease.added(view.leaders)
        if added and self._discovers:
            if lease.follow:
                lease.grow(added)
            else:
                before, after = len(lease.next), len(view.leaders)
                lease.end(
                    SourceChanged(f"topic {lease.topic!r} has grown from {before} to {after} partitions")
                )
            self._regrown(lease)

    def _is_stalled(self, lease: Lease, ends: Mapping[Place, int], now: float) -> bool:
        stalled = False
        for partition, offset in lease.next.items():
            end = lease.goal(partition, ends.get(Place(lease.topic, partition), 0))
            if end <= offset or partition in lease.held or not lease.has_room:
                lease.stalls.pop(partition, None)
                continue
            seen, since = lease.stalls.get(partition, (-1, now))
            if seen != offset:
                lease.stalls[partition] = (offset, now)
            elif now - since >= _STALLED_S:
                stalled = True
        return stalled
