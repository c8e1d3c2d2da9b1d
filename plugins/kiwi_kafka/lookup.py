"""What is asked of the cluster about topics, as soon as it answers, however long that takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import structlog
import trio

from kiwi_gw.api import Extent, SourceChanged
from kiwi_kafka.lease import Lease
from kiwi_kafka.lineage import Lineage
from kiwi_kafka.link import Link
from kiwi_kafka.pause import Pauses
from kiwi_kafka.seam import Missing, Offsets, Place, Scout, TopicView, UnreachableError

log = structlog.get_logger("kiwi_kafka")

_LEADER_S = 0.1
"""Until brokers agree who leads a partition."""

_Ask = Callable[[Scout, TopicView], Awaitable[Offsets]]


class Lookup:
    """Asks the cluster. patience: seconds that a partition rests while no leader says whether its log is the
    one of before."""

    def __init__(self, link: Link, patience: float) -> None:
        self._link = link
        self._patience = patience
        self._mute: set[str] = set()  # topics of which the log has it that leaders never say where epochs end

    async def find(self, topic: str) -> TopicView:
        """The topic, as soon as it exists. Waits for ever and creates nothing."""
        pauses = Pauses(0.5, 5.0)
        told = False
        while True:
            view = await self.describe(topic)
            if isinstance(view, TopicView):
                if told:
                    log.info("kafka topic found", topic=topic)
                return view
            if not told:
                log.warning(
                    "no permission for kafka topic, waiting" if view.denied else "waiting for kafka topic",
                    topic=topic,
                )
                told = True
            await trio.sleep(pauses.next())

    async def describe(self, topic: str) -> TopicView | Missing:
        async def asked(scout: Scout) -> TopicView | Missing:
            return (await scout.describe([topic]))[topic]

        return await self._link.ask(asked)

    async def ends(self, topic: str) -> tuple[TopicView, dict[int, int]]:
        """The topic and the end of all its partitions: what a reader of committed records may read up to.

        Waits until every partition has a leader that answers.
        """
        pauses = Pauses(0.1, 2.0)
        while True:
            view = await self.find(topic)
            ends = await self.known_ends(view, stable=True)
            if len(ends) == len(view.leaders):
                return view, ends
            await trio.sleep(pauses.next())

    async def known_ends(self, view: TopicView, stable: bool = False) -> dict[int, int]:
        """The ends of those partitions whose leaders answer; `stable`: without open transactions."""
        return await self._known(view, lambda scout, view: scout.ends([view], stable))

    async def extent(self, lease: Lease) -> Extent:
        """What the cluster keeps of the lease's partitions. SourceChanged: the topic is another one."""
        # First the starts: one that has moved meanwhile is seen when it is read.
        first = await self._all(lease, lambda scout, view: scout.starts([view]))
        end = await self._all(lease, lambda scout, view: scout.ends([view], stable=True))
        return Extent(first, {p: max(first[p], offset) for p, offset in end.items()})

    async def since(self, lease: Lease, timestamp: int) -> dict[int, int]:
        """In every partition of the lease the first record at or after `timestamp` (ms), or the end.
        SourceChanged: the topic is another one."""
        end = await self._all(lease, lambda scout, view: scout.ends([view], stable=True))
        # Kafka gives negative numbers a meaning of their own, and has 64 bits.
        asked = min(max(timestamp, 0), 2**63 - 1)
        found = await self._all(lease, lambda scout, view: scout.since([view], asked))
        return {p: offset if offset >= 0 else end[p] for p, offset in found.items()}

    async def check(self, lease: Lease) -> None:
        """End the lease if its topic is another one by now."""
        view = await self.describe(lease.topic)
        if isinstance(view, TopicView) and view.is_another(lease.topic_id):
            lease.end(created_anew(lease.topic))

    async def unreadable(self, place: Place, offset: int) -> tuple[int, int] | None:
        view = await self._led(place)
        return await (await self._link.scout()).unreadable(view, place, offset)

    async def nothing_before(self, place: Place, offset: int) -> int | None:
        """If no record is kept from `offset` to the end: the end."""
        view = await self._led(place)
        return await (await self._link.scout()).nothing_before(view, place, offset)

    async def epoch_ends(self, view: TopicView, epochs: Mapping[int, int]) -> dict[int, int]:
        """Ask where the records of an epoch end, by partition. -1: the leader does not know, or never
        says."""

        async def asked(scout: Scout) -> Offsets:
            return await scout.epoch_ends(view, epochs)

        said = await self._link.ask(asked)
        if said.mute and view.name not in self._mute:
            self._mute.add(view.name)
            why = next(iter(said.mute.values()))
            log.warning("kafka does not say whether a log was cut off", topic=view.name, error=why)
        return {place.partition: said.known.get(place, -1) for place in (*said.known, *said.mute)}

    async def trace(self, view: TopicView, lineage: Lineage, positions: Mapping[int, int]) -> None:
        """Find out of which epoch the log is that has these positions. SourceChanged: it was cut off since
        the topic was read last."""
        before = {p: known for p in positions if (known := lineage.known(p)) is not None}
        if before:
            ends = await self.epoch_ends(view, {p: epoch for p, (epoch, _) in before.items()})
            for partition, end in ends.items():
                if 0 <= end < before[partition][1]:
                    lineage.end()
                    raise cut_off(view.name, partition, end, before[partition][1])
        epochs = {p: epoch for p in positions if (epoch := view.epochs.get(p, -1)) >= 0}
        for partition, end in (await self.epoch_ends(view, epochs)).items() if epochs else ():
            if end >= positions[partition]:
                lineage.adopt(partition, epochs[partition], positions[partition])

    async def find_range(self, lease: Lease, partition: int) -> None:
        """A position is not in the log: it was deleted (announce it, go on at the log's start), or the
        log ends before it (another topic of that name, or one that was cut off)."""
        topic = lease.topic
        unknown = 0.0
        while not lease.over:
            view = await self.describe(topic)
            if isinstance(view, TopicView) and partition in view.leaders:
                if view.is_another(lease.topic_id):
                    lease.end(created_anew(topic))
                    return
                began = trio.current_time()
                if not await self._is_one_log(lease, partition, view):
                    await trio.sleep(_LEADER_S)  # if it is over this is of no consequence
                    unknown += trio.current_time() - began
                    if unknown >= self._patience:
                        lease.end(_not_said(topic, partition, self._patience))
                    continue
                start = (await self._known(view, lambda scout, view: scout.starts([view]))).get(partition)
                end = (await self.known_ends(view)).get(partition)
                position = lease.next[partition]
                if end is not None and position > end:
                    lease.lineage.end()
                    lease.end(cut_off(topic, partition, end, position))
                    return
                if start is not None and end is not None:
                    if start > position:
                        log.warning(
                            "kafka records are gone",
                            topic=topic,
                            partition=partition,
                            first=position,
                            last=start - 1,
                        )
                    lease.skip(partition, max(start, position))
                    return
            await trio.sleep(0.5)

    # --- details ---

    async def _is_one_log(self, lease: Lease, partition: int, view: TopicView) -> bool:
        """Whether the leader's log is the one that was read so far. If it is another one the lease ends; else
        nobody knows yet."""
        known = lease.lineage.known(partition)
        if known is None:
            return True
        epoch, reached = known
        current, suspected = view.epochs.get(partition, -1), lease.lineage.suspected(partition)
        if current < 0:  # brokers that do not say
            lease.lineage.adopt(partition, suspected, reached)
            return True
        if current < suspected:
            return False  # this broker does not know of that leader yet
        end = (await self.epoch_ends(view, {partition: epoch})).get(partition)
        if end is None:
            return False
        if 0 <= end < reached:
            lease.lineage.end()
            lease.end(cut_off(lease.topic, partition, end, reached))
            return False
        lease.lineage.adopt(partition, current, reached)
        return True

    async def _led(self, place: Place) -> TopicView:
        view = await self.describe(place.topic)
        if isinstance(view, Missing) or view.leaders.get(place.partition, -1) < 0:
            raise UnreachableError(f"{place.topic}/{place.partition} has no leader")
        return view

    async def _known(self, view: TopicView, ask: _Ask) -> dict[int, int]:
        async def asked(scout: Scout) -> Mapping[Place, int]:
            return (await ask(scout, view)).known

        known = await self._link.ask(asked)
        return {p: known[Place(view.name, p)] for p in view.leaders if Place(view.name, p) in known}

    async def _all(self, lease: Lease, ask: _Ask) -> dict[int, int]:
        """Of every partition of the lease, as soon as all their leaders answer."""
        pauses = Pauses(0.1, 2.0)
        while True:
            view = await self.find(lease.topic)
            if view.is_another(lease.topic_id):
                raise created_anew(lease.topic)
            known = await self._known(view, ask)
            if lease.next.keys() <= known.keys():
                return {partition: known[partition] for partition in lease.next}
            await trio.sleep(pauses.next())


def cut_off(topic: str, partition: int, end: int, position: int) -> SourceChanged:
    """What is wrong where a log ends before a position in it."""
    return SourceChanged(
        f"partition {partition} of topic {topic!r} ends at offset {end}, before {position}: "
        "it was cut off or created anew"
    )


def _not_said(topic: str, partition: int, seconds: float) -> UnreachableError:
    """Say that a partition may not be read on, for nobody says what its log is. It may pass."""
    return UnreachableError(
        f"no leader of partition {partition} of topic {topic!r} has said within {seconds:g} s whether its "
        "log is the one that was read"
    )


def created_anew(topic: str) -> SourceChanged:
    """What is wrong where a topic's id is another one than it was."""
    return SourceChanged(f"topic {topic!r} has been deleted and created anew")
