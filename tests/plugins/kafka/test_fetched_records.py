"""Fetched records are the records and positions that aiokafka's own way gives, from the same bytes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from kiwi_kafka.client.fetched_records import FetchedRecords, whole_batches
from tests.plugins.kafka.batches import ABORT, COMMIT, batch, emptied, marker, spoiled

TP = TopicPartition("t", 0)
_CODECS = (0, 1, 2, 3, 4)  # none, gzip, snappy, lz4, zstd


@dataclass(frozen=True)
class Packed:
    """One batch: how many records, by whom (-1: no transaction), and what ends a transaction.

    removed: which of them compaction took.
    """

    count: int
    producer: int = -1
    kind: bytes | None = None
    codec: int = 0
    removed: frozenset[int] = frozenset()

    def at(self, first: int, epoch: int = 0) -> bytes:
        if self.kind is not None:
            return marker(first, self.producer, self.kind)
        return batch(
            first,
            [b"v" * (n % 5) if n % 4 else None for n in range(self.count)],
            keys=[b"k%d" % n if n % 3 else None for n in range(self.count)],
            headers=[[("h", b"1")] if n % 2 else [] for n in range(self.count)],
            removed=self.removed,
            codec=self.codec,
            producer=self.producer,
            epoch=epoch,
        )


def pack(batches: Sequence[Packed]) -> tuple[bytes, list[tuple[int, int]]]:
    """The bytes, and the transactions that were aborted as (producer, first offset)."""
    data, offset = [], 0
    open_since: dict[int, int] = {}
    aborted = []
    for number, one in enumerate(batches):
        if one.producer >= 0 and one.kind is None:
            open_since.setdefault(one.producer, offset)
        if one.kind is not None:
            began = open_since.pop(one.producer, None)
            if one.kind == ABORT and began is not None:
                aborted.append((one.producer, began))
        data.append(one.at(offset, number))
        offset += one.count
    for producer, began in open_since.items():  # beyond the last stable offset: the broker says so
        aborted.append((producer, began))
    return b"".join(data), aborted


def plain(records: Iterable[Any]) -> list[tuple[object, ...]]:
    return [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]


def model(data: bytes, aborted: list[tuple[int, int]], start: int) -> PartitionRecords:
    return PartitionRecords(TP, MemoryRecords(data), aborted, start, None, None, True, 1)


_counts = st.integers(1, 6)
packed = st.one_of(
    st.builds(
        Packed,
        _counts,
        st.sampled_from([-1, 7, 8]),
        codec=st.sampled_from(_CODECS),
        removed=st.frozensets(st.integers(1, 5), max_size=5),  # never all: the first one stays
    ),
    st.builds(Packed, st.just(1), st.sampled_from([7, 8]), st.sampled_from([ABORT, COMMIT])),
)


@given(
    batches=st.lists(packed, min_size=1, max_size=8),
    start=st.integers(0, 12),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    cut=st.integers(0, 200),
)
def test_as_aiokafka_reads_it(batches: list[Packed], start: int, sizes: list[int], cut: int) -> None:
    """cut: how many bytes of the answer are missing at its end, where it had reached its size."""
    data, aborted = pack(batches)
    data = data[: len(data) - cut] if cut < len(data) else data
    wanted = model(data, aborted, start)
    # Of whole batches before `start`, which no broker sends, it makes records, and steps back.
    expected = plain(record for record in wanted if record.offset >= start)
    end = max(start, wanted.next_fetch_offset)
    run = FetchedRecords(data, start, aborted)
    got: list[tuple[object, ...]] = []
    positions = [run.next]
    for turn in range(100):
        if not run.has_more:
            break
        most = sizes[turn % len(sizes)]
        records = plain(run.take(most))
        assert len(records) <= most
        got += records
        assert len(records) == most or not run.has_more
        assert run.next > got[-1][0] if got else True  # type: ignore[operator]
        positions.append(run.next)
    assert got == expected
    assert positions == sorted(positions)
    assert run.next == end
    assert not run.has_more
    assert run.take(9) == []
    # Where the next fetch begins, before anything is decoded.
    assert whole_batches(data, start)[0] == end


def test_pieces_of_a_batch_and_the_epoch_of_each() -> None:
    run = FetchedRecords(*_args([Packed(5), Packed(4), Packed(1)], 2))
    assert run.epoch == -1
    assert [record.offset for record in run.take(2)] == [2, 3]
    assert (run.next, run.epoch, run.has_more) == (4, 0, True)
    assert [record.offset for record in run.take(3)] == [4, 5, 6]
    assert (run.next, run.epoch, run.has_more) == (7, 1, True)
    assert [record.offset for record in run.take(100)] == [7, 8, 9]
    assert (run.next, run.epoch, run.has_more) == (10, 2, False)


def test_a_format_without_epochs_has_none() -> None:
    builder = LegacyRecordBatchBuilder(1, 1, 1 << 20)
    for n in range(3):
        builder.append(n, 1000, None, b"v")
    data = (6).to_bytes(8, "big") + bytes(builder.build())[8:]  # compressed: the offset of the last
    run = FetchedRecords(data, 5, [])
    assert [record.offset for record in run.take(9)] == [5, 6]
    assert (run.next, run.epoch) == (7, -1)
    assert whole_batches(data, 5)[0] == 7


def _args(batches: Sequence[Packed], start: int) -> tuple[bytes, int, list[tuple[int, int]]]:
    data, aborted = pack(batches)
    return data, start, aborted


def test_formats_are_read_one_after_the_other() -> None:
    """The decoder cannot read both in one run; what follows is fetched again."""
    builder = LegacyRecordBatchBuilder(0, 0, 1 << 20)
    builder.append(0, None, None, None)
    old, new = bytes(builder.build()), batch(1, [b"v"] * 2)
    assert len(old) == 26
    assert whole_batches(old, 0) == (1, 26)
    assert whole_batches(old + new, 0) == (1, 26)
    assert whole_batches(new + old, 1) == (3, len(new))
    assert [record.value for record in FetchedRecords(old, 0, []).take(9)] == [None]


def test_the_end_of_a_batch_whose_last_records_are_gone_is_behind_them() -> None:
    run = FetchedRecords(*_args([Packed(6, removed=frozenset({2, 4, 5}))], 0))
    assert [record.offset for record in run.take(3)] == [0, 1, 3]
    assert run.next == 4
    assert run.take(1) == []
    assert (run.next, run.has_more) == (6, False)


@pytest.mark.parametrize("codec", _CODECS)
def test_a_wrong_sum_is_found(codec: int) -> None:
    data, aborted = pack([Packed(3), Packed(3, codec=codec)])
    rotten = spoiled(data, len(data) - 1)
    run = FetchedRecords(rotten, 0, aborted)
    assert len(run.take(3)) == 3
    with pytest.raises(CorruptRecordException):
        run.take(3)
    assert run.next == 3
    # In one go what is sound is taken, and what is not is never stepped over.
    run = FetchedRecords(rotten + batch(6, [b"v"] * 3), 0, aborted)
    assert len(run.take(10)) == 3
    for _ in range(2):
        with pytest.raises(CorruptRecordException):
            run.take(10)
    assert (run.next, run.has_more) == (3, True)
    with pytest.raises(CorruptRecordException):
        list(model(rotten, aborted, 0))


def test_a_marker_that_compaction_emptied_is_passed() -> None:
    data = batch(0, [b"v"]) + emptied(marker(1, 7, COMMIT)) + batch(2, [b"v"])
    run = FetchedRecords(data, 0, [])
    assert [record.offset for record in run.take(9)] == [0, 2]
    assert whole_batches(data, 0) == (3, len(data))


def test_the_end_of_bytes_that_are_no_batches() -> None:
    sound = batch(0, [b"v"] * 3)
    assert whole_batches(b"", 5)[0] == 5
    assert whole_batches(sound[:-1], 0)[0] == 0
    assert whole_batches(sound + sound[:20], 0)[0] == 3
    assert whole_batches(bytes(200), 7)[0] == 7  # a length of nothing
    assert whole_batches(sound, 9)[0] == 9  # of a batch that is behind us
    backwards = sound[:8] + (-12).to_bytes(4, "big", signed=True) + sound[12:]
    assert whole_batches(backwards, 0)[0] == 0


@pytest.mark.parametrize("read", [0, 3, 10])
def test_what_was_fetched_goes_with_its_last_reference(read: int) -> None:
    gc.collect()
    gc.disable()
    try:
        run = FetchedRecords(*_args([Packed(5)], 0))
        run.take(read)
        gone = weakref.ref(run)
        del run
        assert gone() is None
    finally:
        gc.enable()
