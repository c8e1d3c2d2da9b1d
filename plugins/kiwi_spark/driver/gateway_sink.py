"""Brings the rows of every micro-batch to the gateway, and holds Spark until they were taken.

A batch counts as a whole or not at all (see `gateway/batches.py`), so all of it is here before the gateway
has any: its size has a bound. A larger one is refused, never cut. Spark's tasks hold in the JVM all that they
return, before anything could be counted here; so where nothing bounds what a batch has, its size is asked for
first, which Spark answers without holding it. Elsewhere Spark itself ends a job whose tasks return too much
(`spark.driver.maxResultSize`); it cannot bound what one task alone returns.
"""

from __future__ import annotations

import itertools
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext, StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from kiwi_spark.driver.error_classification import QueryError
from kiwi_spark.protocol.messages import (
    MAX_PAYLOAD,
    ROWS_BYTES,
    VERSION,
    BatchRows,
    BatchTaken,
    BeginBatch,
    EndBatch,
    Hello,
    Message,
    MessageReader,
    WireError,
    frame_of,
)
from kiwi_spark.protocol.query_spec import QuerySpec

_RECEIVE_BYTES: Final = 1024 * 1024
_ROW: Final = 8
"""Bytes of Arrow beside the texts of a row: where they end."""
_REFUSED_BY_SPARK: Final = "is bigger than spark.driver.maxResultSize"
_POOL: Final = "spark.scheduler.pool"
_numbers = itertools.count()
_say_once = threading.Lock()


class GatewayConnection:
    """Messages in both directions. Any thread may send and close; one at a time may receive."""

    def __init__(self, path: str, token: str, role: str) -> None:
        """Connect, and say who this is. OSError: the gateway is not there."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._reader = MessageReader()
        self._waiting: deque[Message] = deque()
        self._send_lock = threading.Lock()
        try:
            self._socket.connect(path)
            self.send(Hello(version=VERSION, token=token, role=role))
        except BaseException:
            self._socket.close()
            raise

    def send(self, message: Message) -> None:
        """OSError: the gateway is gone. WireError: the message is too large."""
        frame = frame_of(message)
        with self._send_lock:
            self._socket.sendall(frame)

    def receive(self) -> Message | None:
        """Return the next message; None at the end. OSError: it broke. WireError: that was none."""
        while not self._waiting:
            data = self._socket.recv(_RECEIVE_BYTES)
            if not data:
                return None
            self._waiting.extend(self._reader.feed(data))
        return self._waiting.popleft()

    def stop_receiving(self) -> None:
        """Have `receive` return None."""
        with suppress(OSError):  # it has ended already
            self._socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """End the connection, also for a thread that waits in `receive`."""
        with suppress(OSError):  # the other side was first
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class RowsConnection(GatewayConnection):
    """The connection for the rows of one run. Used by one thread at a time; `close` may come from any: one
    that waits in `deliver` then gets QueryError."""

    def deliver(self, query: str, batch: int, timestamp: int, rows: pa.Table) -> None:
        """Send a whole batch; return when the gateway has taken it. Raises QueryError."""
        try:
            self.send(BeginBatch(query=query, batch=batch, timestamp=timestamp))
            for part in parts_of(rows):
                self.send(part)
            self.send(EndBatch(rows=rows.num_rows))
            answer = self.receive()
        except (OSError, WireError) as error:
            raise QueryError("gone", f"the gateway does not take batch {batch}: {error}") from error
        if answer != BatchTaken(batch=batch):
            raise QueryError("gone", f"the gateway does not take batch {batch}: its answer is {answer}")


def parts_of(rows: pa.Table) -> Iterator[BatchRows]:
    """Cut rows into parts of about ROWS_BYTES each, in their order. Raises QueryError."""
    if rows.num_rows == 0:
        return
    step = max(1, rows.num_rows * ROWS_BYTES // max(1, rows.nbytes))
    for first in range(0, rows.num_rows, step):
        yield from _halved(rows.slice(first, step))


def _halved(rows: pa.Table) -> Iterator[BatchRows]:
    """One part, or as many as it takes where rows are much larger than the others."""
    if rows.nbytes > 2 * ROWS_BYTES and rows.num_rows > 1:
        half = rows.num_rows // 2
        yield from _halved(rows.slice(0, half))
        yield from _halved(rows.slice(half))
        return
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_table(rows)
    arrow = out.getvalue().to_pybytes()
    if len(arrow) > MAX_PAYLOAD:
        raise QueryError(
            "query", f"a row of {rows.nbytes} bytes is larger than {MAX_PAYLOAD} and cannot be delivered"
        )
    yield BatchRows(arrow=arrow)


@contextmanager
def scheduler_pool(context: SparkContext) -> Iterator[None]:
    """Serve what the thread of a batch runs in this block as one that has come now.

    Theory of operation. When more queries are busy than there are cores, Spark's FAIR scheduler compares
    pools: the one that runs fewer tasks is served first, and where they run equally many, the one whose name
    comes first in the alphabet. With few cores they nearly always do, as the core that becomes free is one
    that has just finished a task: with a pool for every query, those with the last names are served only when
    all others have nothing to do. So every batch has a pool of its own, and these are named in the order in
    which batches begin: among equals the batch that has waited longest is served first, and the next batch of
    a query comes behind those that the others have begun meanwhile.

    Spark keeps a pool for ever once it has seen its name, and sorts all of them whenever a core is free. So a
    pool is taken away again when its batch is over.
    """
    # Digits enough for a thousand years of a thousand batches a second: names are compared as text.
    name = f"batch {next(_numbers):014d}"
    before = context.getLocalProperty(_POOL)
    context.setLocalProperty(_POOL, name)
    try:
        yield
    finally:
        context.setLocalProperty(_POOL, before)  # type: ignore[arg-type]  # None removes it
        _forget(context, name)


def _forget(context: SparkContext, name: str) -> None:
    """Take the pool away, if Spark has made it."""
    java: Any = context._jsc.sc()
    try:
        root = java.taskScheduler().rootPool()
        pool = root.getSchedulableByName(name)
        if pool is not None:
            root.removeSchedulable(pool)
    except Py4JError as error:  # another Spark, which has them elsewhere
        if _say_once.acquire(blocking=False):
            print(f"pools of the scheduler stay: {error}", file=sys.stderr, flush=True)


class BatchSink(ABC):
    """A function for `foreachBatch`, called in one thread at a time. failure: what it raised, for what comes
    out of `foreachBatch` is Spark's account of it."""

    failure: BaseException | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        try:
            spark = frame.sparkSession.sparkContext
            query: Any = spark.getLocalProperty("sql.streaming.queryId")
            with scheduler_pool(spark):
                self.take(frame, query, batch)
        except BaseException as error:
            self.failure = error
            raise

    @abstractmethod
    def take(self, frame: DataFrame, query: str, batch: int) -> None:
        """Bring a batch to where it belongs. query: Spark's id of it, which its checkpoint carries."""


class GatewaySink(BatchSink):
    """Brings every batch to the gateway."""

    def __init__(self, link: RowsConnection, query: QuerySpec) -> None:
        self._link = link
        self._most = query.batch_bytes
        # What a batch reads of Kafka has a bound of records; of files, of all there is, and what a query has
        # kept from all batches, it has none.
        unbounded = not query.trigger or query.output_mode == "complete"
        unbounded = unbounded or any(one.stream for one in query.tables.values())
        # On disk what has no room: computed twice it would also be counted twice, and so would late rows.
        self._keep = StorageLevel.MEMORY_AND_DISK if unbounded else None

    def take(self, frame: DataFrame, query: str, batch: int) -> None:
        rows = collect_rows(frame, self._most, self._keep)
        self._link.deliver(query, batch, time.time_ns() // 1_000_000, rows)


def collect_rows(rows: DataFrame, most: int, keep: StorageLevel | None) -> pa.Table:
    """Collect all rows (`key` and `value`, JSON text). most: bytes of them. keep: where Spark keeps them
    while it is asked for their size, before they are collected; None: it is not asked.
    Raises QueryError."""
    if keep is None:
        return _checked(rows, most)
    rows.persist(keep)
    try:
        row = sum((F.coalesce(F.octet_length(one), F.lit(0)) for one in ("key", "value")), F.lit(_ROW))
        (found,) = rows.agg(F.sum(row.cast("bigint"))).collect()
        _check(found[0] or 0, most)
        return _checked(rows, most)
    finally:
        rows.unpersist()


def _checked(rows: DataFrame, most: int) -> pa.Table:
    try:
        found = rows.toArrow()
    except Py4JJavaError as error:
        if _REFUSED_BY_SPARK in str(error):
            raise _too_large("more bytes than `spark.driver.maxResultSize` has room for", most) from error
        raise
    _check(found.nbytes, most)
    return found


def _check(size: int, most: int) -> None:
    if size > most:
        raise _too_large(f"{size:,} bytes", most)


def _too_large(size: str, most: int) -> QueryError:
    return QueryError(
        "query",
        f"a batch of results has {size}, and `spark.batch_bytes` allows {most:,}: nothing of it is sent. "
        "Allow more, and give Spark the memory for it (`spark.driver.memory`); or filter or aggregate more. "
        "Smaller batches (`max_offsets`, files with `stream: true`, `maxFilesPerTrigger`) need a new "
        "checkpoint, in another `spark.checkpoint_dir` or by another id: with the old one Spark repeats this "
        "batch as it was",
    )
