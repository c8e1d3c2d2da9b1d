"""Brings the rows of a batch out of Spark, if they are not too many bytes.

A batch counts as a whole or not at all (see `kiwi_spark.inbox`), so it is all here before the gateway has any
of it: there is a bound to it. One that is larger is refused, and never cut. Spark's tasks hold in the JVM all
that they return, before anything could be counted here; so where nothing bounds what a batch has, its size
is asked for first, which Spark answers without holding it. Elsewhere Spark itself ends a job whose tasks
return too much (`resolve.result_bytes`); what one task alone returns it cannot bound.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

_ROW: Final = 8
"""Bytes of Arrow beside the texts of a row: where they end."""
_REFUSED_BY_SPARK: Final = "is bigger than spark.driver.maxResultSize"


class BatchTooLarge(Exception):  # noqa: N818  (it says what happened)
    """A batch of results has more bytes than are allowed."""


def collected(rows: DataFrame, most: int, keep: StorageLevel | None) -> pa.Table:
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
        "Smaller batches (`max_offsets`, `max_files`, files with `stream: true`) need a new checkpoint, in "
        "another `spark.checkpoint_dir` or by another id: with the old one Spark repeats this batch as it was"
    )
