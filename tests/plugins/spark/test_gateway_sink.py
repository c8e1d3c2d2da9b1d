"""A batch as frames, and the talk on a rows connection, over a real Unix socket and without Spark."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from pyspark import StorageLevel

from kiwi_spark.driver import gateway_sink
from kiwi_spark.driver.error_classification import QueryError
from kiwi_spark.driver.gateway_sink import RowsConnection, parts_of
from kiwi_spark.protocol.messages import (
    MAX_MESSAGE,
    ROWS_BYTES,
    BatchRows,
    BatchTaken,
    BeginBatch,
    EndBatch,
    Hello,
    Message,
    MessageReader,
    frame_of,
)
from kiwi_spark.protocol.query_spec import QuerySpec, TableInput


def table(values: list[str | None]) -> pa.Table:
    return pa.table({"key": pa.nulls(len(values), pa.string()), "value": pa.array(values, pa.string())})


def read(parts: list[BatchRows]) -> pa.Table:
    return pa.concat_tables(pa.ipc.open_stream(part.arrow).read_all() for part in parts)


def largest(parts: list[BatchRows]) -> int:
    return max(len(frame_of(part)) for part in parts)


def test_no_rows_are_no_frame() -> None:
    assert list(parts_of(table([]))) == []


def test_frames_have_about_a_megabyte_and_all_rows_in_order() -> None:
    rows = table([f"{number:0100}" for number in range(50_000)])
    parts = list(parts_of(rows))
    assert read(parts).equals(rows)
    assert largest(parts) < 1.2 * ROWS_BYTES
    assert len(parts) < 2 * rows.nbytes / ROWS_BYTES


def test_a_few_large_rows_among_small_ones_make_no_large_frame() -> None:
    rows = table(["x"] * 5000 + ["y" * 3 * ROWS_BYTES] * 9 + [None] * 5000)
    parts = list(parts_of(rows))
    assert read(parts).equals(rows)
    assert largest(parts) < 4 * ROWS_BYTES


def test_a_row_larger_than_a_frame_is_an_error_in_words() -> None:
    with pytest.raises(
        QueryError, match="cannot be delivered", check=lambda error: error.error_kind == "query"
    ):
        list(parts_of(table(["x", "y" * MAX_MESSAGE])))


@pytest.mark.parametrize(
    ("more", "keep"),
    [
        ({}, None),
        ({"output_mode": "update"}, None),
        ({"output_mode": "complete"}, StorageLevel.MEMORY_AND_DISK),
        ({"trigger": ""}, StorageLevel.MEMORY_AND_DISK),
        ({"tables": {"t": TableInput(format="csv", stream=True)}}, StorageLevel.MEMORY_AND_DISK),
        ({"tables": {"t": TableInput(format="csv")}}, None),
    ],
)
def test_what_has_no_bound_is_asked_for_its_size_first_and_computed_once(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], keep: StorageLevel | None
) -> None:
    """The state of a `complete` query is as large as all batches before."""
    asked = []

    def collect_rows(rows: object, most: int, keep: StorageLevel | None) -> None:
        asked.append((most, keep))
        raise QueryError("gone", "enough")

    monkeypatch.setattr(gateway_sink, "scheduler_pool", lambda context: nullcontext())
    monkeypatch.setattr(gateway_sink, "collect_rows", collect_rows)
    sink = gateway_sink.GatewaySink(
        cast("RowsConnection", None), QuerySpec(source="s", batch_bytes=7, **more)
    )
    with pytest.raises(QueryError, match="enough", check=lambda error: error.error_kind == "gone"):
        sink(MagicMock(), 0)
    assert asked == [(7, keep)]


class Peer:
    """The gateway's side, in a thread: answers every End by `answer`, then closes if that is None."""

    def __init__(self, path: Path, answer: Callable[[int], Message | None]) -> None:
        self.path = str(path)
        self.seen: list[Message] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._answer = answer
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        reader, batch = MessageReader(), -1
        with connection:
            while data := connection.recv(65536):
                for message in reader.feed(data):
                    self.seen.append(message)
                    if isinstance(message, BeginBatch):
                        batch = message.batch
                    if isinstance(message, EndBatch):
                        answer = self._answer(batch)
                        if answer is None:
                            return
                        connection.sendall(frame_of(answer))

    def close(self) -> None:
        self._thread.join()
        self._listener.close()


def test_a_batch_is_begun_sent_ended_and_waits_to_be_taken(tmp_path: Path) -> None:
    peer = Peer(tmp_path / "s", lambda batch: BatchTaken(batch=batch))
    link = RowsConnection(peer.path, "secret", "7")
    link.deliver("q", 3, 99, table(["1", "2"]))
    link.deliver("q", 4, 100, table([]))
    link.close()
    peer.close()
    assert peer.seen[0] == Hello(version=1, token="secret", role="7")
    assert peer.seen[1] == BeginBatch(query="q", batch=3, timestamp=99)
    assert isinstance(peer.seen[2], BatchRows)
    assert peer.seen[3:] == [
        EndBatch(rows=2),
        BeginBatch(query="q", batch=4, timestamp=100),
        EndBatch(rows=0),
    ]


@pytest.mark.parametrize(
    "answer", [None, BatchTaken(batch=8), EndBatch(rows=1)], ids=["closed", "other batch", "nonsense"]
)
def test_a_batch_that_is_not_taken_is_lost(tmp_path: Path, answer: Message | None) -> None:
    peer = Peer(tmp_path / "s", lambda _: answer)
    link = RowsConnection(peer.path, "secret", "7")
    with pytest.raises(QueryError, match="batch 3", check=lambda error: error.error_kind == "gone"):
        link.deliver("q", 3, 99, table(["1"]))
    link.close()
    peer.close()


def test_closing_wakes_the_one_that_waits(tmp_path: Path) -> None:
    ended = threading.Event()

    def answer(batch: int) -> None:
        link.close()
        ended.wait()

    peer = Peer(tmp_path / "s", answer)
    link = RowsConnection(peer.path, "secret", "7")
    with pytest.raises(QueryError, check=lambda error: error.error_kind == "gone"):
        link.deliver("q", 3, 99, table(["1"]))
    ended.set()
    peer.close()
