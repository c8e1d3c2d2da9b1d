"""What stands in for the gateway beside plain PySpark: it reads rows from our sink in Spark and says so.

It does nothing else with them: no window, no events, no WebSockets. So what the gateway takes longer is the
gateway's own.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from benchmarks.latency import Around, Delays
from benchmarks.spark_queries import SparkQuery, Value
from benchmarks.workers.spark_reader import Grouped
from kiwi_spark.protocol.messages import (
    BatchRows,
    BatchTaken,
    BeginBatch,
    EndBatch,
    EndEpoch,
    Message,
    MessageReader,
    PlacedRows,
    frame_of,
)
from kiwi_spark.protocol.packed_rows import PackedRows

_RECEIVE_BYTES = 256 * 1024
_decode = msgspec.json.Decoder(Value).decode


class RowsTaker:
    """Take the rows of one query, in a thread of its own. path: the Unix socket on which it listens."""

    def __init__(self, query: SparkQuery) -> None:
        self._query = query
        self._groups = Grouped() if query.rows is None else None
        self._folder = tempfile.TemporaryDirectory()  # a short path: sockets have no others
        self.path = os.path.join(self._folder.name, "rows")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen(1)
        self._more = threading.Condition()
        self._have = 0
        self._batch = 0
        self._values: list[Value] = []
        self._times: list[int] = []
        self._thread = threading.Thread(target=self._take_all, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self._folder.cleanup()

    def wait(self, records: int, seconds: float) -> float | None:
        """Wait until the results of so many records are there. Returns when that was (seconds of the
        monotonic clock); None: they are not there after that time."""
        needed = records if self._query.rows is None else self._query.rows(records)
        with self._more:
            there = self._more.wait_for(lambda: self._have >= needed, seconds)
            return self._times[-1] / 1e9 if there else None

    def mark(self) -> int:
        """Return how many rows there are."""
        with self._more:
            return len(self._values)

    def result(self, first: int, records: int, checkpoints: Path) -> dict[str, Any]:
        """Return the delays of the rows from `first` on, and what is wrong with all of them."""
        fresh, around = Delays(), Around(checkpoints)
        with self._more:
            for value, at in zip(self._values[first:], self._times[first:], strict=True):
                if value.t:
                    fresh.add(at, [value.t])
                    around.add(at, value.t)
            faults = self._query.check(self._values, records)
        return {"fresh": fresh.said(), "around": around.said(), "faults": faults}

    def _take_all(self) -> None:
        connection, _ = self._listener.accept()
        reader = MessageReader()
        with connection:
            while data := connection.recv(_RECEIVE_BYTES):
                at = time.monotonic_ns()
                for message in reader.feed(data):
                    self._take(message, at, connection)

    def _take(self, message: Message, at: int, connection: socket.socket) -> None:
        match message:
            case BeginBatch():
                self._batch = message.batch
            case BatchRows():
                self._add(PackedRows(message.rows), at)
            case PlacedRows():
                self._add(PackedRows(message.rows, placed=True), at)
            case EndBatch():
                connection.sendall(frame_of(BatchTaken(batch=self._batch)))
            case EndEpoch():
                connection.sendall(frame_of(BatchTaken(batch=message.epoch)))

    def _add(self, rows: PackedRows, at: int) -> None:
        values = [_decode(text) for text in rows.values(0, rows.count) if text is not None]
        with self._more:
            self._values += values
            self._times += [at] * len(values)
            self._have += len(values)
            if self._groups is not None:
                for value in values:
                    self._have = self._groups.add(value)
            self._more.notify_all()
