"""The history that positions in a topic belong to: its id, and the epochs of the leaders that had its log.

A log may be cut off (an election of a leader that lacks records that others had) and grow again: offsets then
mean other records, and nothing else shows it. Each leader has an epoch, a number that grows; brokers know
where the records of each epoch end (KIP-101, KIP-320). So an epoch is kept for each partition, with how far
the log reached under it. The log still reaches so far exactly if that epoch does not end before.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Protocol

import trio

from kiwi_gw.api import Positions
from kiwi_kafka.ports import NO_ID, FetchedPartition, TopicDescription
from kiwi_kafka.positions import EPOCHS, TOPIC, LineagePositions, topic_text

_MOST_ANSWERS = 4_096
"""More are forgotten when it is asked again: of a topic there are as many as it has partitions and epochs."""
_MOST_QUESTIONS = 16
"""So many in a row, then others have their turn: with each one epoch of every partition, the newest first."""
_AT_ONCE = 2_000
"""So many partitions are looked at before the event loop has its turn: about a millisecond."""
_OTHERS = "these offsets mean other records now"


class Cluster(Protocol):
    """Answer a lineage; implemented by `TopicLookup`."""

    async def find(self, topic: str) -> TopicDescription:
        """Return the topic, as soon as it exists."""

    async def epoch_end_offsets(self, info: TopicDescription, epochs: Mapping[int, int]) -> dict[int, int]:
        """Ask where the records of an epoch end, by partition; -1 where the leader does not know, or never
        says. Those are missing for which none answers."""


class TopicLineage:
    """Hold what is known of one topic, for all its sources, and over their restarts."""

    def __init__(self, cluster: Cluster, name: str, topic_id: bytes) -> None:
        self.topic_id = topic_id
        self.ended = False
        self._cluster = cluster
        self._name = name
        self._known: dict[int, tuple[int, int]] = {}
        self._suspected: dict[int, int] = {}
        self._newest: Mapping[int, int] | None = None  # epochs, when the cluster was asked last
        self._ends: dict[tuple[int, int], int] = {}  # by partition and epoch; -1: the leader does not know

    @property
    def life(self) -> int | None:
        """Return the end of the topic's id; None: this cluster has none."""
        return None if self.topic_id == NO_ID else int.from_bytes(self.topic_id[-6:], "big")

    # --- for what reads ---

    def known(self, partition: int) -> tuple[int, int] | None:
        """Return the epoch, and how far the log reached under it."""
        return self._known.get(partition)

    def suspected(self, partition: int) -> int:
        """Return the newest epoch of which records have come, if it needed verification; else -1."""
        return self._suspected.get(partition, -1)

    def needs_verification(self, part: FetchedPartition) -> bool:
        """Return whether it is of a later leader, whose log may not be the one that was read so far."""
        known = self._known.get(part.partition)
        if known is None or part.epoch <= known[0]:
            return False
        self._suspected[part.partition] = part.epoch
        return True

    def note(self, part: FetchedPartition) -> None:
        """Note what was read and needed no verification."""
        if part.epoch >= 0:
            self.adopt(part.partition, part.epoch, part.next)

    def adopt(self, partition: int, epoch: int, reached: int) -> None:
        """Note that the log of the leader with that epoch holds everything before that offset."""
        before = self._known.get(partition)
        if before is None or epoch > before[0]:
            self._ends.clear()
        old_epoch, old_reached = before or (epoch, reached)
        self._known[partition] = (max(epoch, old_epoch), max(reached, old_reached))

    def end(self) -> None:
        """End it: the log is another one by now, which gets a lineage of its own."""
        self.ended = True

    # --- `kiwi_gw.model.positions.Lineage` ---

    def marks(self, positions: Positions) -> Mapping[str, object]:
        marks: dict[str, object] = {} if self.topic_id == NO_ID else {TOPIC: topic_text(self.topic_id)}
        epochs = {
            str(partition): [self._known[partition][0], min(positions[partition], self._known[partition][1])]
            for partition in sorted(positions)
            if partition in self._known
        }
        return marks | ({EPOCHS: epochs} if epochs else {})

    def knows(self, given: Positions) -> bool:
        return next(self._open(given), None) is None

    async def learn(self, given: Sequence[Positions]) -> None:
        if len(self._ends) > _MOST_ANSWERS:
            self._ends.clear()
        unknown = [one async for one in _in_turns(given) if not self.knows(one)]
        if not unknown:
            return
        info = await self._cluster.find(self._name)
        self._newest = info.epochs
        wanted = await self._wanted(unknown)
        for _ in range(_MOST_QUESTIONS):
            asked = {partition: epochs[-1] for partition, epochs in wanted.items() if epochs}
            ends = await self._cluster.epoch_end_offsets(info, asked) if asked else {}
            for partition, end in ends.items():
                self._ends[partition, asked[partition]] = end
                wanted[partition].pop()
            if len(ends) < len(asked) or not asked:
                return

    def unknown(self, given: Positions) -> str:
        for partition, epoch in self._open(given):
            newest = -1 if self._newest is None else self._newest.get(partition, -1)
            of = f"partition {partition} of topic {self._name!r}"
            if epoch > newest >= 0:
                return f"brokers have not heard yet of epoch {epoch} of {of} (the newest is {newest})"
            return f"no leader has said where epoch {epoch} of {of} ends"
        return ""

    def refuted(self, given: Positions) -> str | None:
        if not isinstance(given, LineagePositions):
            return None
        if self._is_another(given):
            return f"topic {self._name!r} has been deleted and created anew since; {_OTHERS}"
        for partition, (epoch, offset) in given.epochs.items():
            end = self._ends.get((partition, epoch), -1)
            if 0 <= end < min(offset, given[partition]) and not self._settled(partition, epoch, offset):
                return f"partition {partition} of topic {self._name!r} was cut off since; {_OTHERS}"
        return None

    # --- details ---

    def _settled(self, partition: int, epoch: int, offset: int) -> bool:
        known = self._known.get(partition)
        return known is not None and epoch == known[0] and offset <= known[1]

    def _is_another(self, given: LineagePositions) -> bool:
        text = given.topic
        return text is not None and self.topic_id != NO_ID and text != topic_text(self.topic_id)

    def _open(self, given: Positions) -> Iterator[tuple[int, int]]:
        """Yield the partitions and epochs whose end is not known, and should be. Nothing can be learnt of
        partitions that are not there, or where brokers have no epochs."""
        if not isinstance(given, LineagePositions) or self._is_another(given):
            return
        newest, ends = self._newest, self._ends
        for partition, (epoch, offset) in given.epochs.items():
            if (
                (newest is None or newest.get(partition, -1) >= 0)
                and (partition, epoch) not in ends
                and not self._settled(partition, epoch, offset)
            ):
                yield partition, epoch

    async def _wanted(self, given: Sequence[Positions]) -> dict[int, list[int]]:
        """Collect the epochs to ask for, by partition, of all of them: the newest, in ascending order. Of an
        epoch that this broker has not heard of yet there is nothing to ask."""
        newest = self._newest or {}
        found: dict[int, list[int]] = {}
        async for one in _in_turns(given):
            for partition, epoch in self._open(one):
                epochs = found.setdefault(partition, [])
                if epoch <= newest.get(partition, -1) and epoch not in epochs:
                    insort(epochs, epoch)
                    del epochs[:-_MOST_QUESTIONS]
        return found


async def _in_turns(given: Sequence[Positions]) -> AsyncIterator[Positions]:
    """Yield each of them; now and then other tasks have their turn."""
    count = 0
    for one in given:
        yield one
        count += len(one)
        if count >= _AT_ONCE:
            count = 0
            await trio.lowlevel.checkpoint()
