"""The demo's pipeline in Python: config/demo.yml names it, and Spark's process imports it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LATE_MINUTES = 30


def late_flights(inputs: dict[str, DataFrame]) -> DataFrame:
    """Return the flights that left half an hour late or more, with the moment they left (`left_at`), and the
    one at which Kafka got their record (`produced`)."""
    from pyspark.sql import functions as f

    flights = inputs["flights"]
    late = flights.where(flights.dep_delay >= LATE_MINUTES)
    return late.select(
        "carrier",
        "flight",
        "origin",
        "dest",
        "dep_delay",
        "sched_dep",
        f.expr("timestampadd(MINUTE, dep_delay, sched_dep)").alias("left_at"),
        f.col("_timestamp").alias("produced"),
    )
