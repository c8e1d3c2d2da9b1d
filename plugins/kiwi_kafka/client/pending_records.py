"""Records that are being written together, and what became of each."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import trio

from kiwi_gw.api import Outgoing, Published, Unpublished
from kiwi_kafka.client.outgoing_batch import OutgoingBatch, batches_of, partition_of

Result = Published | Unpublished

_HASHED_BYTES: Final = 8_192
"""Of keys, which take 0.8 ms to hash. Behind them the next, however long, is hashed in a thread."""


class PendingRecords:
    """What is to be written, and what became of it.

    waiting: batches by partition, the first of each on its way; empty when all is dealt with. problem: what
    stands in the way now. doubted: of some nobody knows whether they were written.
    """

    def __init__(self, records: Sequence[Outgoing]) -> None:
        self.waiting: dict[int, deque[OutgoingBatch]] = {}
        self.problem = "the Kafka cluster does not answer"
        self.retriable = True
        self.doubted = False
        self._records: Sequence[Outgoing] | None = records
        self._results: list[Result | None] = [None] * len(records)

    async def place(self, partitions: Iterable[int]) -> None:
        """Choose the partition of each record, among these. Nothing happens the second time."""
        if self._records is None:
            return
        chosen: dict[int, tuple[list[int], list[Outgoing]]] = {known: ([], []) for known in partitions}
        any_of_them = random.choice(sorted(chosen))  # noqa: S311  (of records without a key: none is better)
        hashed = 0
        for place, record in enumerate(self._records):
            key, _, headers, timestamp, partition = record
            if partition is None:
                partition = any_of_them
                if key is not None:
                    hashed += len(key)
                    if hashed > _HASHED_BYTES:
                        hashed = 0
                        partition = await trio.to_thread.run_sync(partition_of, key, len(chosen))
                    else:
                        partition = partition_of(key, len(chosen))
            own = chosen.get(partition)
            if own is None:
                self._unfit(place, f"there is no partition {partition}")
            elif (headers or timestamp is not None) and (wrong := _mistake(record)):
                self._unfit(place, wrong)
            else:
                own[0].append(place)
                own[1].append(record)
        self.waiting = {
            partition: deque(batches_of(partition, *own)) for partition, own in chosen.items() if own[0]
        }
        self._records = None

    def written(self, batch: OutgoingBatch, offset: int) -> None:
        batch.in_doubt = False
        partition, results = batch.partition, self._results
        new = tuple.__new__  # half of what it takes by the name of the class
        for at, place in enumerate(batch.places, offset):
            results[place] = new(Published, (partition, at))
        self._over(batch)

    def unfit(self, batch: OutgoingBatch, why: str, at_fault: Collection[int] = ()) -> None:
        """Try it again without the records that are at fault, by their places in it; halves of it where that
        is not known, as not every record may be."""
        rest = [at for at in range(len(batch.places)) if at not in at_fault]
        if len(batch.places) == 1 or batch.in_doubt or not rest:
            self.unwritten(batch, why, retriable=False)
            return
        if len(rest) == len(batch.places):
            others = batch.halves()
        else:
            others = batch.only(rest)
            for at in set(range(len(batch.places))).difference(rest):  # a broker may name what is not there
                self._unfit(batch.places[at], why)
        batches = self.waiting[batch.partition]
        batches.popleft()
        batches.extendleft(reversed(others))

    def unwritten(self, batch: OutgoingBatch, why: str, *, retriable: bool) -> None:
        self._settle(batch, why, retriable=retriable)
        self._over(batch)

    def give_up_doubtful(self) -> None:
        """Give up those that may be written."""
        for batch in [batch for batch in self._batches() if batch.in_doubt]:
            self.unwritten(batch, "", retriable=True)

    def finish(self) -> list[Result]:
        """Return what became of them; what waits still is given up."""
        for batch in self._batches():
            self._settle(batch, self.problem, retriable=self.retriable)
        left = Unpublished(f"not written: {self.problem}", self.retriable, known=True)
        return [left if result is None else result for result in self._results]

    def _batches(self) -> Iterable[OutgoingBatch]:
        return (batch for batches in self.waiting.values() for batch in batches)

    def _settle(self, batch: OutgoingBatch, why: str, *, retriable: bool) -> None:
        result = Unpublished(f"not written: {why}", retriable, known=True)
        if batch.in_doubt:
            self.doubted = True
            result = Unpublished("not known whether it was written", retriable=True, known=False)
        for place in batch.places:
            self._results[place] = result

    def _unfit(self, place: int, wrong: str) -> None:
        self._results[place] = Unpublished(f"not written: {wrong}", retriable=False, known=True)

    def _over(self, batch: OutgoingBatch) -> None:
        batches = self.waiting[batch.partition]
        batches.remove(batch)
        if not batches:
            del self.waiting[batch.partition]


def _mistake(record: Outgoing) -> str:
    """Say what is wrong with a record, empty if nothing is."""
    if record.timestamp is not None and not 0 <= record.timestamp < 2**63:
        return "its timestamp is none"
    if record.headers:
        try:
            for name, _ in record.headers:
                name.encode()
        except UnicodeEncodeError:
            return "the name of a header is no text"
    return ""
