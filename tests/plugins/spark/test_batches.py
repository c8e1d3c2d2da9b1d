"""Which batches of a query are committed, and where they are until they are published."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from kiwi_gw.api import SourceChanged, SourceFailed
from kiwi_spark.gateway import batches
from kiwi_spark.gateway.batches import (
    BatchSpool,
    IncomingBatches,
    SourceBatches,
    SpoolBudget,
)
from kiwi_spark.gateway.positions import MAX_ROWS, offset_of
from kiwi_spark.protocol.messages import (
    BatchRows,
    BatchTaken,
    BeginBatch,
    EndBatch,
    Message,
    QueryStarted,
    WireError,
)


class Counted:
    """Rows whose text says how many they are."""

    def __init__(self, rows: bytes) -> None:
        self.count = int(rows or b"0")


@pytest.fixture(autouse=True, scope="module")
def rows_are_counted_by_their_text() -> Iterator[None]:
    with patch.object(batches, "PackedRows", Counted):
        yield


def begin(batch: int, query: str = "q") -> BeginBatch:
    return BeginBatch(query=query, batch=batch, timestamp=7)


def started(next_batch: int, query: str = "q") -> QueryStarted:
    return QueryStarted(run=1, query=query, next_batch=next_batch)


def known(next_batch: int) -> SourceBatches:
    found = SourceBatches()
    found.resume(started(next_batch), None)
    return found


async def take(incoming: IncomingBatches, *messages: Message) -> int | None:
    """Return what the last one ends."""
    for message in messages:
        ended = await incoming.take(message)
    return ended


def at_once(taking: Coroutine[object, object, int | None]) -> int | None:
    """Return what it returns: with room in memory it waits for nothing."""
    with pytest.raises(StopIteration) as over:
        taking.send(None)
    found: int | None = over.value.value
    return found


def incoming(source: SourceBatches) -> IncomingBatches:
    return IncomingBatches(source, SpoolBudget(1_000))


def committed(source: SourceBatches) -> tuple[int, int, list[int], int | None]:
    """Return what is to be published, and let it be so."""
    found, source.committed = source.committed, None
    assert found is not None
    return found.batch, found.timestamp, found.spool.counts, found.lost_from


async def test_a_batch_counts_at_its_end() -> None:
    source = known(3)
    connection = incoming(source)
    assert await take(connection, begin(3), BatchRows(rows=b"2")) is None
    assert (source.next, source.committed) == (3, None)
    assert await take(connection, EndBatch(rows=2)) == 3
    assert source.next == 4
    assert committed(source) == (3, 7, [2], None)


async def test_one_that_was_cut_off_never_was() -> None:
    source, budget = known(3), SpoolBudget(1_000)
    connection = IncomingBatches(source, budget)
    await take(connection, begin(3), BatchRows(rows=b"2"))
    assert budget.used == 1
    assert connection.cut() == 3
    assert connection.cut() is None
    assert budget.used == 0
    source.resume(started(3), None)
    assert await take(incoming(source), begin(3), EndBatch(rows=0)) == 3
    assert committed(source) == (3, 7, [], None)


async def test_one_that_comes_again_is_acknowledged_and_dropped() -> None:
    source = known(0)
    await take(incoming(source), begin(0), EndBatch(rows=0))
    committed(source)
    source.resume(started(0), None)
    budget = SpoolBudget(1_000)
    again = IncomingBatches(source, budget)
    assert await take(again, begin(0), BatchRows(rows=b"9")) is None
    assert await take(again, EndBatch(rows=9)) == 0
    assert (source.committed, source.next, budget.used) == (None, 1, 0)


async def test_batches_that_never_came_are_named() -> None:
    source = known(2)
    source.resume(started(5), None)
    await take(incoming(source), begin(5), EndBatch(rows=0))
    assert committed(source) == (5, 7, [], 2)


def test_another_checkpoint_and_one_that_was_put_back() -> None:
    source = known(5)
    source.resume(started(4), None)  # Spark does not know yet that 4 was done
    with pytest.raises(SourceChanged, match="another one"):
        source.resume(started(5, "p"), None)
    with pytest.raises(SourceChanged, match="put back from batch 5 to 3"):
        source.resume(started(3), None)


def test_a_source_that_knows_no_more_than_its_position() -> None:
    source = SourceBatches()
    source.resume(started(3), {0: offset_of(3, 0)})
    assert source.next == 3
    with pytest.raises(SourceChanged, match="of batch 3 2 rows were taken, and Spark begins with batch 3"):
        SourceBatches().resume(started(3), {0: offset_of(3, 2)})


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([BatchRows(rows=b"")], "a BatchRows where a batch should begin"),
        ([EndBatch(rows=0)], "a EndBatch where"),
        ([begin(0), begin(0)], "within batch 0"),
        ([begin(0), BatchTaken(batch=0)], "a BatchTaken where"),
        ([begin(0, "p")], "another query"),
        ([begin(-1)], "the id -1"),
        ([begin(0), EndBatch(rows=1)], "ends after 0 rows and should have 1"),
    ],
)
async def test_what_does_not_belong_there(messages: list[Message], words: str) -> None:
    connection = incoming(known(0))
    for message in messages[:-1]:
        await connection.take(message)
    with pytest.raises(WireError, match=words):
        await connection.take(messages[-1])


async def test_more_rows_than_positions_can_name() -> None:
    connection = incoming(known(0))
    await take(connection, begin(0), BatchRows(rows=b"%d" % MAX_ROWS))
    with pytest.raises(SourceFailed, match="max_offsets"):
        await take(connection, BatchRows(rows=b"1"))


@given(st.lists(st.tuples(st.sampled_from(["whole", "cut", "repeat"]), st.integers(0, 3)), max_size=30))
def test_every_batch_is_committed_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    """Whatever is cut off and repeated: as Spark does it, from the last one that it knows to be done."""

    source, done, found = known(0), 0, []
    for step, rows in steps:
        source.resume(started(done), None)
        connection = incoming(source)
        assert at_once(take(connection, begin(done), BatchRows(rows=b"%d" % rows))) is None
        if step == "cut":
            connection.cut()
            continue
        assert at_once(take(connection, EndBatch(rows=rows))) == done
        if source.committed is not None:
            found.append(committed(source)[0])
        if step == "whole":  # else its acknowledgement is lost
            done += 1
    assert found == list(range(source.next))
    assert source.next - done in (0, 1)


async def test_a_spool_writes_what_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    budget = SpoolBudget(10)
    one, other = BatchSpool(budget), BatchSpool(budget)
    texts = [b"12345", b"1234567890" * 10, b"54321", b"x" * 100_000, b""]
    for text in texts:
        await one.add(text, len(text))
    await other.add(b"abc", 1)
    assert [one.read(index) for index in range(len(texts))] == texts
    assert one.counts == [len(text) for text in texts]
    assert [one.holds(index) for index in range(len(texts))] == [True, False, True, False, True]
    assert not other.holds(0)
    assert budget.used == 10
    assert os.listdir(tmp_path) == []  # the file has no name
    one.close()
    one.close()
    assert budget.used == 0
    assert other.read(0) == b"abc"
    other.close()


async def test_a_spool_is_read_while_it_is_written() -> None:
    spool = BatchSpool(SpoolBudget(0))
    texts = [bytes([number % 256]) * (1_000 + number) for number in range(1_000)]

    def read_all() -> None:
        while len(spool.counts) < len(texts):
            index = len(spool.counts) - 1
            assert spool.read(index) == texts[index]

    await spool.add(texts[0], 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, read_all)
        for text in texts[1:]:
            await spool.add(text, 1)
    spool.close()


async def test_no_room_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc")
    stage = BatchSpool(SpoolBudget(0))
    with pytest.raises(OSError):  # noqa: PT011  whatever the system says
        await stage.add(b"x", 1)
    assert stage.counts == []
    stage.close()
