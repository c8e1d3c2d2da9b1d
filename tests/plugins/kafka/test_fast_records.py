"""Fast records are the records and positions that aiokafka's own way gives, from the same bytes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import aiokafka
import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st
from kiwi_kafka.client.internals import FastFetches, use_fast_records

TP = TopicPartition("t", 0)
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
_CODECS = (0, 1)  # none, gzip


@dataclass(frozen=True)
class Packed:
    """One batch: how many records, by whom (-1: no transaction), and what ends a transaction."""

    count: int
    producer: int = -1
    marker: bytes | None = None
    codec: int = 0


def pack(batches: Sequence[Packed]) -> tuple[bytes, list[tuple[int, int]]]:
    """The bytes, and the transactions that were aborted as (producer, first offset)."""
    data, offset = [], 0
    open_since: dict[int, int] = {}
    aborted = []
    for batch in batches:
        if batch.producer >= 0 and batch.marker is None:
            open_since.setdefault(batch.producer, offset)
        if batch.marker is not None:
            began = open_since.pop(batch.producer, None)
            if batch.marker == ABORT and began is not None:
                aborted.append((batch.producer, began))
        packed = build(batch)
        data.append(offset.to_bytes(8, "big") + packed[8:])
        offset += 1 if batch.marker is not None else batch.count
    for producer, began in open_since.items():  # beyond the last stable offset: the broker says so
        aborted.append((producer, began))
    return b"".join(data), aborted


def build(batch: Packed) -> bytes:
    builder = DefaultRecordBatchBuilder(2, batch.codec, batch.producer >= 0, batch.producer, 0, 0, 1 << 20)
    if batch.marker is not None:
        builder.append(0, 1, batch.marker, b"\0" * 6, [])
        built = bytearray(builder.build())
        built[22] |= 0x20  # attributes: a control batch
        return bytes(built)
    for n in range(batch.count):
        key = b"k%d" % n if n % 3 else None
        value = b"v" * (n % 5) if n % 4 else None
        builder.append(n, 1000 + n, key, value, [("h", b"1")] if n % 2 else [])
    return bytes(builder.build())


class State:
    """As much of a partition's state as a fetch uses."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.paused = False

    def consumed_to(self, position: int) -> None:
        self.position = position


def fetched(data: bytes, aborted: list[tuple[int, int]], start: int, crcs: bool = False) -> tuple[Any, State]:
    state = State(start)
    assignment = SimpleNamespace(active=True, state_value=lambda tp: state)
    # Control batches are made by hand above, so their sum is wrong: the sums have a test of their own.
    records = PartitionRecords(TP, MemoryRecords(data), aborted, start, None, None, crcs, 1)
    return FetchResult(TP, assignment=assignment, partition_records=records, backoff=0), state


def run_of(*args: Any, **options: Any) -> tuple[Any, State]:
    result, state = fetched(*args, **options)
    fetches = FastFetches()
    fetches[TP] = result
    assert fetches[TP] is result
    return result, state


def plain(records: Sequence[Any]) -> list[tuple[object, ...]]:
    return [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]


packed = st.one_of(
    st.builds(Packed, st.integers(1, 6), st.sampled_from([-1, 7, 8]), codec=st.sampled_from(_CODECS)),
    st.builds(Packed, st.just(1), st.sampled_from([7, 8]), st.sampled_from([ABORT, COMMIT])),
)


@given(
    batches=st.lists(packed, min_size=1, max_size=8),
    start=st.integers(0, 12),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
)
def test_as_aiokafka_reads_it(batches: list[Packed], start: int, sizes: list[int]) -> None:
    data, aborted = pack(batches)
    wanted, wanted_state = fetched(data, aborted, start)
    run, state = run_of(data, aborted, start)
    expected, got = [], []
    for turn in range(100):
        most = sizes[turn % len(sizes)]
        if wanted.has_more():
            expected += plain(wanted.getall(most))
        if run.has_more():
            records = plain(run.getall(most))
            assert len(records) <= most
            got += records
            assert state.position > got[-1][0] if got else True  # type: ignore[operator]
        assert len(got) == len(expected)
    assert got == expected
    assert state.position == wanted_state.position
    assert not run.has_more()


def test_all_at_once() -> None:
    run, state = run_of(*pack([Packed(5), Packed(4)]), 2)
    assert [record.offset for record in run.getall()] == [2, 3, 4, 5, 6, 7, 8]
    assert state.position == 9
    assert not run.has_more()
    assert run.getall() == []


@pytest.mark.parametrize("change", ["paused", "sought", "unassigned"])
def test_what_was_fetched_before_the_partition_changed_is_not_handed_out(change: str) -> None:
    run, state = run_of(*pack([Packed(9)]), 0)
    assert len(run.getall(2)) == 2
    state.paused = change == "paused"
    state.position = 0 if change == "sought" else 2
    run.getall.__self__._assignment.active = change != "unassigned"
    assert run.getall(2) == []
    assert not run.has_more()


def test_a_wrong_sum_is_found() -> None:
    data, aborted = pack([Packed(3), Packed(3)])
    rotten = bytearray(data)
    rotten[-1] ^= 1
    run, state = run_of(bytes(rotten), aborted, 0, crcs=True)
    assert len(run.getall(3)) == 3
    with pytest.raises(CorruptRecordException):
        run.getall(3)
    assert state.position == 3
    assert run.getall(3) == []
    # Fetched again from there, as the client does; what stands before it is read.
    run, state = run_of(bytes(rotten), aborted, 0, crcs=True)
    with pytest.raises(CorruptRecordException):
        run.getall(10)
    assert state.position == 0


@pytest.mark.parametrize("read", [0, 3, None])
def test_what_was_fetched_goes_with_its_last_reference(read: int | None) -> None:
    fetches = FastFetches()
    gc.collect()
    gc.disable()
    try:
        result, _ = fetched(*pack([Packed(5)]), 0)
        fetch = weakref.ref(result._partition_records)
        fetches[TP] = result
        if read != 0:
            result.getall(read)
        del result, fetches[TP]
        assert fetch() is None
    finally:
        gc.enable()


def test_another_version_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiokafka, "__version__", "0.15.0")
    fetcher = SimpleNamespace(_records="its own")
    assert not use_fast_records(fetcher)
    assert fetcher._records == "its own"
