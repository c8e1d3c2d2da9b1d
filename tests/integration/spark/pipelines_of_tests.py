"""What a user's own module has, for the tests of the driver."""

from __future__ import annotations

import os

from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812


def _fails_at_50(number: int) -> int:
    if number == 50:
        raise ValueError("it is 50")
    return number


def failing(inputs: dict[str, DataFrame]) -> DataFrame:
    return inputs["flights"].select(F.udf(_fails_at_50, "int")("a").alias("a"))


def _is_late(delay: float) -> bool:
    return delay > 15


def late_flights(inputs: dict[str, DataFrame]) -> DataFrame:
    rows = inputs["flights"].filter(F.udf(_is_late, "boolean")("dep_delay"))
    return rows.select("carrier", "n", F.col("dep_delay").cast("decimal(8,2)").alias("delay"))


def doubled(inputs: dict[str, DataFrame]) -> DataFrame:
    return inputs["flights"].select((F.col("a") * 2).alias("a"))


def unwise(inputs: dict[str, DataFrame]) -> DataFrame:
    return inputs["trains"]


def _raises_while_there_is(path: str | None, number: int) -> int:
    if path and os.path.exists(path):
        raise ValueError(f"{path} is there")
    return number


def raising(inputs: dict[str, DataFrame]) -> DataFrame:
    """The column `a`; raises for a record whose `s` is the path of a file that is there."""
    guarded = F.udf(_raises_while_there_is, "int")
    return inputs["flights"].select(guarded("s", "a").alias("a"))


def _raises_at_first(number: int) -> int:
    task = TaskContext.get()
    if number == 90 and task is not None and task.attemptNumber() == 0:
        raise ValueError("it is tried again")
    return number


def large_at_second(inputs: dict[str, DataFrame]) -> DataFrame:
    """Rows of 1,000 bytes and more. The first attempt of a task raises behind the first 90 of them."""
    number = F.udf(_raises_at_first, "int")("a").alias("a")
    return inputs["flights"].select(number, F.repeat(F.lit("x"), F.lit(1000)).alias("s"))
