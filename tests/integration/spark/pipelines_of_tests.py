"""What a user's own module has, for the tests of the driver."""

from __future__ import annotations

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
