"""Of which history the positions in a topic are: its id, and the epochs of the leaders that had its log.

A log may be cut off (an election of a leader that lacks records that others had) and grow again: offsets then
mean other records, and nothing else shows it. Each leader has an epoch, a number that grows; brokers know
where the records of each epoch end (KIP-101, KIP-320). So what is kept here is, by partition, an epoch and
how far the log reached under it. It still reaches so far exactly if the end of that epoch is not before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import trio

from kiwi_gw.api import Positions
from kiwi_kafka.columns import Fetched
from kiwi_kafka.positions import EPOCHS, TOPIC, epochs_of, topic_text
from kiwi_kafka.seam import NO_ID, TopicView

_MOST_ANSWERS = 4_096
_LATE_LOOKS, _LATE_S = 3, 0.2
"""A broker may know of a new leader a moment later than another one."""
_OTHERS = "these offsets mean other records now"
_FUTURE = -1
"""The end of an epoch that has not been: nothing of it is in this log."""


class Cluster(Protocol):
    """Whom a lineage asks."""

    async def find(self, topic: str) -> TopicView:
        """The topic, as soon as it exists."""

    async def epoch_ends(self, view: TopicView, epochs: Mapping[int, int]) -> dict[int, int]:
        """Where the records of an epoch end, by partition; those are missing of which nobody knows."""


class Lineage:
    """What is known of one topic, for all its sources, and over their restarts."""

    def __init__(self, cluster: Cluster, name: str, topic_id: bytes) -> None:
        self.topic_id = topic_id
        self.over = False
        self._cluster = cluster
        self._name = name
        self._known: dict[int, tuple[int, int]] = {}
        self._suspected: dict[int, int] = {}
        self._ends: OrderedDict[tuple[int, int], int | None] = OrderedDict()

    # --- for what reads ---

    def known(self, partition: int) -> tuple[int, int] | None:
        """The epoch, and how far the log reached under it."""
        return self._known.get(partition)

    def suspected(self, partition: int) -> int:
        """The newest epoch of which records have come, if it was doubted; else -1."""
        return self._suspected.get(partition, -1)

    def doubts(self, part: Fetched) -> bool:
        """Whether it is of a later leader, whose log may not be the one that was read so far."""
        known = self._known.get(part.partition)
        if known is None or part.epoch <= known[0]:
            return False
        self._suspected[part.partition] = part.epoch
        return True

    def note(self, part: Fetched) -> None:
        """That was read, and not doubted."""
        if part.epoch >= 0:
            self.adopt(part.partition, part.epoch, part.next)

    def adopt(self, partition: int, epoch: int, reached: int) -> None:
        """The log of the leader with that epoch holds everything before that offset."""
        before = self._known.get(partition)
        if before is None or epoch > before[0]:
            self._ends.clear()
        old_epoch, old_reached = before or (epoch, reached)
        self._known[partition] = (max(epoch, old_epoch), max(reached, old_reached))

    def end(self) -> None:
        """The log is another one by now, which gets a lineage of its own: this is that of what was read."""
        self.over = True

    # --- `kiwi_gw.api.Lineage` ---

    def marks(self, positions: Positions) -> Mapping[str, object]:
        marks: dict[str, object] = {} if self.topic_id == NO_ID else {TOPIC: topic_text(self.topic_id)}
        epochs = {
            str(partition): [self._known[partition][0], min(positions[partition], self._known[partition][1])]
            for partition in sorted(positions)
            if partition in self._known
        }
        return marks | ({EPOCHS: epochs} if epochs else {})

    def knows(self, given: object) -> bool:
        if self._is_another(given):
            return True
        return all(self._settled(p, *mark) or (p, mark[0]) in self._ends for p, mark in _marks(given).items())

    async def learn(self, given: Sequence[object]) -> None:
        wanted = {
            (partition, mark[0])
            for one in given
            if not self.knows(one)
            for partition, mark in _marks(one).items()
            if not self._settled(partition, *mark)
        } - self._ends.keys()
        looks = 0
        while wanted:
            view = await self._cluster.find(self._name)
            future = {(p, epoch) for p, epoch in wanted if epoch > view.epochs.get(p, -1) >= 0}
            looks += 1
            if future and looks <= _LATE_LOOKS:
                await trio.sleep(_LATE_S)
                continue
            self._keep(dict.fromkeys(future, _FUTURE))
            wanted -= future
            # Of each partition one epoch at a time.
            asked = {partition: epoch for partition, epoch in sorted(wanted) if partition in view.leaders}
            ends = await self._cluster.epoch_ends(view, asked) if asked else {}
            self._keep({(p, epoch): ends.get(p) for p, epoch in asked.items()})
            self._keep({one: None for one in wanted if one[0] not in asked})
            wanted = {one for one in wanted if one not in self._ends}

    def refuted(self, given: object) -> str | None:
        if self._is_another(given):
            return f"topic {self._name!r} has been deleted and created anew since; {_OTHERS}"
        positions = cast("Mapping[str, object]", given)
        for partition, (epoch, offset) in _marks(given).items():
            end = None if self._settled(partition, epoch, offset) else self._ends.get((partition, epoch))
            here = positions.get(str(partition))
            if end is not None and isinstance(here, int) and end < min(here, offset):
                where = f"at offset {end}" if end != _FUTURE else "before"
                return f"partition {partition} of topic {self._name!r} was cut off {where} since; {_OTHERS}"
        return None

    # --- details ---

    def _settled(self, partition: int, epoch: int, offset: int) -> bool:
        known = self._known.get(partition)
        return known is not None and epoch == known[0] and offset <= known[1]

    def _is_another(self, given: object) -> bool:
        text = given.get(TOPIC) if isinstance(given, dict) else None
        return text is not None and self.topic_id != NO_ID and text != topic_text(self.topic_id)

    def _keep(self, ends: Mapping[tuple[int, int], int | None]) -> None:
        self._ends.update(ends)
        while len(self._ends) > _MOST_ANSWERS:
            self._ends.popitem(last=False)


def _marks(given: object) -> dict[int, tuple[int, int]]:
    return epochs_of(given) if isinstance(given, dict) else {}
