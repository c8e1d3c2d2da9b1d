"""Brings the rows of a batch out of Spark, if they are not too many bytes.

A batch counts as a whole or not at all (see `kiwi_spark.inbox`), so it is all here before the gateway has any
of it: there is a bound to it. One that is larger is refused, and never cut. Spark's tasks hold in the JVM all
that they return, before anything could be counted here; so where nothing bounds what a batch reads, its size
is asked for first, which Spark answers without holding it.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

_ROW: Final = 8
"""Bytes of Arrow beside the texts of a row: where they end."""


class BatchTooLarge(Exception):  # noqa: N818  (it says what happened)
    """A batch of results has more bytes than are allowed."""


def collected(rows: DataFrame, most: int, *, ask_first: bool) -> pa.Table:
    """All rows (`key` and `value`, JSON text). most: bytes of them. ask_first: whether to ask Spark for their
    size before they are collected. Raises BatchTooLarge."""
    if not ask_first:
        return _checked(rows.toArrow(), most)
    # So that they are computed once; where there is no room for them they are again, and nothing is written.
    rows.persist(StorageLevel.MEMORY_ONLY)
    try:
        row = sum((F.coalesce(F.octet_length(one), F.lit(0)) for one in ("key", "value")), F.lit(_ROW))
        (found,) = rows.agg(F.sum(row.cast("bigint"))).collect()
        _check(found[0] or 0, most)
        return _checked(rows.toArrow(), most)
    finally:
        rows.unpersist()


def _checked(rows: pa.Table, most: int) -> pa.Table:
    _check(rows.nbytes, most)
    return rows


def _check(size: int, most: int) -> None:
    if size > most:
        raise BatchTooLarge(
            f"a batch of results has {size:,} bytes, and `spark.batch_bytes` allows {most:,}: nothing of it "
            "is sent. Filter or aggregate more; or make smaller batches (`max_offsets`, `max_files`, files "
            "with `stream: true`); or allow more, and give Spark the memory for it (`spark.driver.memory`)"
        )
