"""The fetches of one connection: a broker remembers what it is asked for, and is told what has changed.

With such a session (KIP-227) a fetch names the partitions whose offsets have changed since the one before,
and an answer those that have something; so the cost of both goes with the records, not with the partitions.
A broker that is too old for sessions (version below 7), or has no room for one, is asked for everything each
time. Layouts are those of the Kafka protocol guide, Fetch, versions 4 to 11. No I/O is done here.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from aiokafka import errors as kafka_errors

from kiwi_kafka.ports import TopicPartition, UnreachableError

API: Final = 1
FIRST_VERSION, LAST_VERSION = 4, 11
_WITH_LOG_START, _WITH_SESSIONS, _WITH_LEADER_EPOCH, _WITH_RACKS = 5, 7, 9, 11

_COMMITTED: Final = 1
_NO_SESSION: Final = 0
_BEGIN, _WITHOUT = 0, -1
"""Session epochs of a request that begins a session, and of one that is for itself."""
_LAST_EPOCH: Final = 2**31 - 1
_FORGOTTEN: Final = (
    kafka_errors.FetchSessionIdNotFound.errno,
    kafka_errors.InvalidFetchSessionEpoch.errno,
)

_INT, _SHORT = Struct(">i"), Struct(">h")
_OLD_HEAD, _HEAD = Struct(">iiiib"), Struct(">iiiibii")
_ANSWER_HEAD = Struct(">ihi")
_ABORTED = Struct(">qq")


class FetchAnswer(NamedTuple):
    """Hold what an answer says of one partition.

    offset: from which it was asked for. replica: a broker that is nearer and should be asked instead, or -1.
    aborted: producers and first offsets of aborted transactions.
    """

    tp: TopicPartition
    offset: int
    code: int
    replica: int
    aborted: list[tuple[int, int]]
    data: memoryview


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Bound one answer. wait_ms: how long a broker may hold a fetch for which it has fewer than `min_bytes`.
    once: its fetches are few, so that a session is not worth it."""

    wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_bytes: int
    rack: str = ""
    once: bool = False


class FetchSession:
    """Make requests and read answers, by turns. version: of both, 4 to 11."""

    def __init__(self, version: int, limits: FetchLimits) -> None:
        self._version = version
        self._limits = limits
        self._offsets: dict[TopicPartition, int] = {}
        self._changed: set[TopicPartition] = set()
        self._removed: set[TopicPartition] = set()
        self._id, self._epoch = _NO_SESSION, _WITHOUT if limits.once else _BEGIN
        self._tail = b""
        if version >= _WITH_RACKS:
            rack = limits.rack.encode()
            self._tail = _SHORT.pack(len(rack)) + rack
        epoch, log_start = "i" * (version >= _WITH_LEADER_EPOCH), "q" * (version >= _WITH_LOG_START)
        self._asked = Struct(f">i{epoch}q{log_start}i")
        self._unknown_epoch = (-1,) * len(epoch)
        self._after_offset = (-1,) * len(log_start) + (limits.partition_bytes,)
        self._partition = Struct(f">ihqq{log_start}i")
        self._before_data = Struct(">ii" if version >= _WITH_RACKS else ">i")

    def __bool__(self) -> bool:
        """Return whether there is anything to ask for."""
        return bool(self._offsets)

    def fetch(self, tp: TopicPartition, offset: int) -> None:
        """Ask for the partition, from that offset on."""
        if self._offsets.get(tp) == offset:
            return
        # What had its turn goes to the end: brokers fill an answer in the order of the request.
        self._offsets.pop(tp, None)
        self._offsets[tp] = offset
        self._changed.add(tp)
        self._removed.discard(tp)

    def leave_out(self, tp: TopicPartition) -> None:
        """Ask for the partition no longer."""
        if self._offsets.pop(tp, None) is not None:
            self._changed.discard(tp)
            self._removed.add(tp)

    def request(self, wait_ms: int) -> bytes:
        """Return the body of the next request."""
        limits = self._limits
        wait = (-1, min(wait_ms, limits.wait_ms), limits.min_bytes, limits.max_bytes, _COMMITTED)
        if self._version < _WITH_SESSIONS:
            return _OLD_HEAD.pack(*wait) + self._named(self._offsets)
        goes_on = self._epoch > _BEGIN
        named = self._named(self._changed if goes_on else self._offsets)
        removed = _grouped(self._removed if goes_on else (), _only_numbers)
        self._changed.clear()
        self._removed.clear()
        return _HEAD.pack(*wait, self._id, self._epoch) + named + removed + self._tail

    def answer(self, data: memoryview) -> list[FetchAnswer]:
        """Read the answer to the last request. UnreachableError: the broker refuses it, or it is none."""
        try:
            return self._answers(data)
        except (ValueError, struct.error) as error:
            raise UnreachableError(f"the answer to a fetch cannot be read: {error}") from error

    def _answers(self, data: memoryview) -> list[FetchAnswer]:
        at = _INT.size  # the throttle time: the broker itself waits for so long
        if self._version >= _WITH_SESSIONS:
            _, code, session = _ANSWER_HEAD.unpack_from(data)
            at = _ANSWER_HEAD.size
            if code in _FORGOTTEN and self._epoch > _BEGIN:
                self._id, self._epoch = _NO_SESSION, _BEGIN
                return []
            if code:
                raise UnreachableError(kafka_errors.for_code(code).description)
            self._go_on(session)
        answers: list[FetchAnswer] = []
        (topics,) = _INT.unpack_from(data, at)
        at += _INT.size
        for _ in range(topics):
            (size,) = _SHORT.unpack_from(data, at)
            if size < 0:
                raise ValueError("a topic has no name")
            at += _SHORT.size
            topic = str(data[at : at + size], "utf-8")
            (partitions,) = _INT.unpack_from(data, at + size)
            at += size + _INT.size
            for _ in range(partitions):
                at = self._read_partition(data, at, topic, answers)
        return answers

    def _read_partition(self, data: memoryview, at: int, topic: str, answers: list[FetchAnswer]) -> int:
        partition, code, *_, transactions = self._partition.unpack_from(data, at)
        at += self._partition.size
        aborted = [_ABORTED.unpack_from(data, at + n * _ABORTED.size) for n in range(transactions)]
        at += _ABORTED.size * len(aborted)
        *replica, size = self._before_data.unpack_from(data, at)
        nearer: int = replica[0] if replica else -1
        at += self._before_data.size
        end: int = at + max(0, size)
        if end > len(data):
            raise ValueError("it ends too early")
        tp = TopicPartition(topic, partition)
        offset = self._offsets.get(tp)
        if offset is not None:
            answers.append(FetchAnswer(tp, offset, code, nearer, aborted, data[at:end]))
        return end

    def _go_on(self, session: int) -> None:
        if self._epoch == _WITHOUT:
            return
        self._id = session
        if session == _NO_SESSION:  # the broker has no room for one
            self._epoch = _BEGIN
        else:
            self._epoch = self._epoch % _LAST_EPOCH + 1

    def _named(self, tps: Iterable[TopicPartition]) -> bytes:
        return _grouped(tps, self._with_offsets)

    def _with_offsets(self, tps: list[TopicPartition]) -> bytes:
        pack, epoch, after, offsets = self._asked.pack, self._unknown_epoch, self._after_offset, self._offsets
        return b"".join([pack(tp.partition, *epoch, offsets[tp], *after) for tp in tps])


def _grouped(tps: Iterable[TopicPartition], pack: Callable[[list[TopicPartition]], bytes]) -> bytes:
    """Return an array of topics, each with an array of what `pack` makes of its partitions."""
    by_topic: defaultdict[str, list[TopicPartition]] = defaultdict(list)
    for tp in tps:
        by_topic[tp.topic].append(tp)
    parts = [_INT.pack(len(by_topic))]
    for topic, partitions in by_topic.items():
        name = topic.encode()
        parts += (_SHORT.pack(len(name)), name, _INT.pack(len(partitions)), pack(partitions))
    return b"".join(parts)


def _only_numbers(tps: list[TopicPartition]) -> bytes:
    return b"".join([_INT.pack(tp.partition) for tp in tps])
