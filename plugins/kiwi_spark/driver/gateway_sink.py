"""Brings the rows of every micro-batch to the gateway, and holds Spark until they were taken.

A batch counts as a whole or not at all (see `gateway/batches.py`), so all of it is here before the gateway
has any: its size has a bound. A larger one is refused, never cut. Spark's tasks hold in the JVM all that they
return, before anything could be counted here; so where nothing bounds what a batch has, its size is asked for
first, which Spark answers without holding it. Elsewhere Spark itself ends a job whose tasks return too much
(`resolve.result_bytes`); it cannot bound what one task alone returns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from kiwi_spark.driver.connection import GatewayConnection
from kiwi_spark.driver.scheduler_pools import scheduler_pool
from kiwi_spark.protocol.messages import (
    MAX_PAYLOAD,
    ROWS_BYTES,
    BatchRows,
    BatchTaken,
    BeginBatch,
    EndBatch,
    WireError,
)
from kiwi_spark.protocol.query_spec import QuerySpec

_ROW: Final = 8
"""Bytes of Arrow beside the texts of a row: where they end."""
_REFUSED_BY_SPARK: Final = "is bigger than spark.driver.maxResultSize"


class DeliveryLost(Exception):  # noqa: N818  (it says what happened)
    """The gateway does not take the rows any longer: it went away, or the run is being stopped."""


class RowTooLarge(Exception):  # noqa: N818
    """One row is larger than what a frame may have."""


class BatchTooLarge(Exception):  # noqa: N818  (it says what happened)
    """A batch of results has more bytes than are allowed."""


class RowsConnection:
    """The connection for the rows of one run. Used by one thread at a time; `close` may come from any."""

    def __init__(self, path: str, token: str, role: str) -> None:
        """Connect. OSError: the gateway is not there."""
        self._connection = GatewayConnection(path, token, role)

    def deliver(self, query: str, batch: int, timestamp: int, rows: pa.Table) -> None:
        """Send a whole batch; return when the gateway has taken it. Raises DeliveryLost, RowTooLarge."""
        try:
            self._connection.send(BeginBatch(query=query, batch=batch, timestamp=timestamp))
            for part in parts_of(rows):
                self._connection.send(part)
            self._connection.send(EndBatch(rows=rows.num_rows))
            answer = self._connection.receive()
        except (OSError, WireError) as error:
            raise DeliveryLost(f"the gateway does not take batch {batch}: {error}") from error
        if answer != BatchTaken(batch=batch):
            raise DeliveryLost(f"the gateway does not take batch {batch}: its answer is {answer}")

    def close(self) -> None:
        """End the connection; a thread that waits in `deliver` gets DeliveryLost."""
        self._connection.close()


def parts_of(rows: pa.Table) -> Iterator[BatchRows]:
    """Cut rows into parts of about ROWS_BYTES each, in their order. Raises RowTooLarge."""
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
        raise RowTooLarge(
            f"a row of {rows.nbytes} bytes is larger than {MAX_PAYLOAD} and cannot be delivered"
        )
    yield BatchRows(arrow=arrow)


class GatewaySink:
    """The function given to `foreachBatch`. `query` is known when the query was started, before any batch
    can be; `failure` keeps the exception that Spark only has the text of."""

    def __init__(self, link: RowsConnection, query: QuerySpec) -> None:
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
            with scheduler_pool(spark):
                rows = collect_rows(frame, self._most, self._keep)
            self._link.deliver(query, batch, time.time_ns() // 1_000_000, rows)
        except BaseException as error:
            self.failure = error
            raise


def collect_rows(rows: DataFrame, most: int, keep: StorageLevel | None) -> pa.Table:
    """Collect all rows (`key` and `value`, JSON text). most: bytes of them. keep: where Spark keeps them
    while it is asked for their size, before they are collected; None: it is not asked.
    Raises BatchTooLarge."""
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


def _too_large(size: str, most: int) -> BatchTooLarge:
    return BatchTooLarge(
        f"a batch of results has {size}, and `spark.batch_bytes` allows {most:,}: nothing of it is sent. "
        "Allow more, and give Spark the memory for it (`spark.driver.memory`); or filter or aggregate more. "
        "Smaller batches (`max_offsets`, files with `stream: true`, `maxFilesPerTrigger`) need a new "
        "checkpoint, in another `spark.checkpoint_dir` or by another id: with the old one Spark repeats this "
        "batch as it was"
    )
