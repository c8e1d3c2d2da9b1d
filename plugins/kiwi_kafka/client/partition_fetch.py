"""How far one partition has been fetched, and what of it waits to be read."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from kiwi_kafka.client.fetch_session import FetchAnswer
from kiwi_kafka.client.fetched_records import FetchedRecords, whole_batches
from kiwi_kafka.ports import CorruptRecordsError, FetchedPartition, TopicPartition

_AHEAD: Final = 2
"""Answers of which records may wait."""
_TIMES_CUT: Final = 100
"""So often in a row an answer may hold no whole batch of a partition: other partitions come first."""


class PartitionFetch:
    """Take answers, undecoded, and hand out records.

    position: of the next record to hand out. fetched: of the next one to fetch. problem: what is wrong behind
    what waits. wants_more: whether more is to be fetched; after a problem it is not, until it is sought.
    """

    def __init__(self, tp: TopicPartition, offset: int) -> None:
        self.tp = tp
        self.is_paused = False
        self.from_replica = False
        self._epoch = -1
        self._answers: deque[FetchedRecords] = deque()
        self.position = self.fetched = offset
        self.problem: Exception | None = None
        self._is_stopped = False
        self._times_cut = 0

    @property
    def wants_more(self) -> bool:
        return not (self.is_paused or self._is_stopped)

    @property
    def is_full(self) -> bool:
        """Return whether so much waits that nothing more is to be fetched for now."""
        return len(self._answers) >= _AHEAD

    @property
    def has_something(self) -> bool:
        """Return whether records or a problem wait."""
        return bool(self._answers) or self.problem is not None

    def seek(self, offset: int) -> bool:
        """Go on from there. Returns whether it changes what is to be fetched."""
        if offset == self.position and not self._is_stopped:
            return False
        self.position = self.fetched = offset
        self._answers.clear()
        self.problem, self._is_stopped, self._times_cut = None, False, 0
        return True

    def pause(self) -> None:
        """Fetch nothing more; what waits is fetched again."""
        self.is_paused = True
        self.fetched = self.position
        self._answers.clear()

    def accept(self, answer: FetchAnswer) -> None:
        """Keep what was fetched from `fetched` on."""
        if not answer.data:
            return
        end, size = whole_batches(answer.data, answer.offset)
        if end == answer.offset:
            self._times_cut += 1
            if self._times_cut >= _TIMES_CUT:
                self.stop(CorruptRecordsError(self.tp, f"no batch begins at offset {end}"))
            return
        self._times_cut = 0
        self.fetched = end
        records = FetchedRecords(bytes(answer.data[:size]), answer.offset, answer.aborted)
        self._answers.append(records)

    def stop(self, problem: Exception) -> None:
        """Fetch nothing more: this is wrong with it, behind what waits."""
        self.problem = problem
        self._is_stopped = True

    def take(self, most: int) -> FetchedPartition | None:
        """Return what waits, at most `most` records, decoded now; None if something is wrong before any."""
        taken: list[Any] = []
        began = self.position
        while self._answers and len(taken) < most:
            answer = self._answers[0]
            try:
                records = answer.take(most - len(taken))
            except Exception as error:  # noqa: BLE001
                # A decompressor's own exception, or what a nonsensical record made the decoder do.
                self._answers.clear()
                self.stop(CorruptRecordsError(self.tp, f"{type(error).__name__}: {error}"))
                break
            taken = taken + records if taken else records
            self.position, self._epoch = answer.next, answer.epoch
            if not answer.has_more:
                self._answers.popleft()
        if self.position == began and not taken:
            return None
        return FetchedPartition(self.tp.partition, taken, self.position, self._epoch)
