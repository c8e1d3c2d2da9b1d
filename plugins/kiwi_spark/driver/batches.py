"""Brings the rows of every micro-batch to the gateway, and holds Spark until they were taken."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame

from kiwi_spark.driver.collecting import collected
from kiwi_spark.driver.turns import turn
from kiwi_spark.frames import MAX_MESSAGE, FrameReader, Message, WireError
from kiwi_spark.spec import Query
from kiwi_spark.wire import FRAMES, ROWS_BYTES, VERSION, Ack, Begin, End, Hello, Rows

_RECEIVE: Final = 65536


class Lost(Exception):  # noqa: N818  (it says what happened)
    """The gateway does not take the rows any longer: it went away, or the run is being stopped."""


class RowTooLarge(Exception):  # noqa: N818
    """One row is larger than what a frame may have."""


class RowsLink:
    """The `rows` connection of one run. Used by one thread at a time; `close` may come from any."""

    def __init__(self, path: str, token: str, role: str) -> None:
        """Connects. Raises OSError if the gateway is not there."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._reader = FrameReader(FRAMES)
        self._answers: list[Message] = []
        try:
            self._socket.connect(path)
            self._socket.sendall(FRAMES.encode(Hello(version=VERSION, token=token, role=role)))
        except BaseException:
            self._socket.close()
            raise

    def deliver(self, query: str, batch: int, timestamp: int, rows: pa.Table) -> None:
        """Sends a whole batch; returns when the gateway has taken it. Raises Lost, RowTooLarge."""
        try:
            self._socket.sendall(FRAMES.encode(Begin(query=query, batch=batch, timestamp=timestamp)))
            for frame in frames(rows):
                self._socket.sendall(frame)
            self._socket.sendall(FRAMES.encode(End(rows=rows.num_rows)))
            self._await_ack(batch)
        except (OSError, WireError) as error:
            raise Lost(f"the gateway does not take batch {batch}: {error}") from error

    def close(self) -> None:
        """Ends the connection; whoever waits in `deliver` gets Lost."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other side was first
            pass
        finally:
            self._socket.close()

    def _await_ack(self, batch: int) -> None:
        while not self._answers:
            data = self._socket.recv(_RECEIVE)
            if not data:
                raise Lost(f"the gateway closed the connection before it took batch {batch}")
            self._answers += self._reader.feed(data)
        answer = self._answers.pop(0)
        if answer != Ack(batch=batch):
            raise WireError(f"expected Ack of batch {batch}, not {answer}")


def frames(rows: pa.Table) -> Iterator[bytes]:
    """ROWS frames of about ROWS_BYTES each, together all the rows in their order."""
    if rows.num_rows == 0:
        return
    step = max(1, rows.num_rows * ROWS_BYTES // max(1, rows.nbytes))
    for first in range(0, rows.num_rows, step):
        yield from _frames_of(rows.slice(first, step))


def _frames_of(rows: pa.Table) -> Iterator[bytes]:
    """One frame, or as many as it takes where rows are much larger than the others."""
    if rows.nbytes > 2 * ROWS_BYTES and rows.num_rows > 1:
        half = rows.num_rows // 2
        yield from _frames_of(rows.slice(0, half))
        yield from _frames_of(rows.slice(half))
        return
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_table(rows)
    arrow = out.getvalue().to_pybytes()
    if len(arrow) >= MAX_MESSAGE:
        raise RowTooLarge(
            f"a row of {rows.nbytes} bytes is larger than {MAX_MESSAGE} and cannot be delivered"
        )
    yield FRAMES.encode(Rows(arrow=arrow))


class ToGateway:
    """The function given to `foreachBatch`. `query` is known when the query was started, before any batch
    can be; `failure` keeps the exception that Spark only has the text of."""

    def __init__(self, link: RowsLink, query: Query) -> None:
        self._link = link
        self._most = query.batch_bytes
        # What a batch reads of Kafka has a bound of records; of files, of all there is, and what a query has
        # kept from all batches, it has none.
        unbounded = not query.trigger or query.output_mode == "complete"
        unbounded = unbounded or any(one.stream for one in query.tables.values())
        # On disk what has no room: computed twice it would also be counted twice, and so would late rows.
        self._keep = StorageLevel.MEMORY_AND_DISK if unbounded else None
        self.failure: BaseException | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        try:
            spark = frame.sparkSession.sparkContext
            query: Any = spark.getLocalProperty("sql.streaming.queryId")
            with turn(spark):
                rows = collected(frame, self._most, self._keep)
            self._link.deliver(query, batch, time.time_ns() // 1_000_000, rows)
        except BaseException as error:
            self.failure = error
            raise
