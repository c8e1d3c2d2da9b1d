"""What is counted of queries, by source."""

from __future__ import annotations

from typing import Final

from kiwi_gw.api import MetricSpec, SourceMetrics
from kiwi_spark.protocol.messages import BatchProgress

PHASES: Final = {
    "spark_looking_seconds_total": (
        "Time that batches took to find what is new in their inputs.",
        ("latestOffset", "getBatch"),
    ),
    "spark_planning_seconds_total": ("Time that batches took to be planned.", ("queryPlanning",)),
    "spark_running_seconds_total": (
        "Time that batches took to be computed and taken by the gateway, or by Kafka.",
        ("addBatch",),
    ),
    "spark_checkpoint_seconds_total": (
        "Time that batches took to be noted in the checkpoint.",
        ("walCommit", "commitOffsets"),
    ),
}
"""Counters of where the time of batches goes: meaning, and Spark's names for the parts."""

SPARK_METRICS: Final = (
    MetricSpec("spark_query_up", "gauge", "1 while Spark runs the query of the source.", "smallest"),
    MetricSpec(
        "spark_batch_duration_seconds",
        "histogram",
        "How long Spark took for a micro-batch; in real time from one checkpoint to the next.",
        bounds=(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
    ),
    MetricSpec("spark_input_rows_total", "counter", "Rows that queries have read."),
    MetricSpec(
        "spark_bad_records_total", "counter", "Records that could not be decoded, dropped or made null."
    ),
    MetricSpec(
        "spark_watermark_timestamp_seconds",
        "gauge",
        "The watermark of the query: events before it come too late.",
        "smallest",
    ),
    MetricSpec("spark_state_rows", "gauge", "Rows that Spark keeps as the state of the query."),
    MetricSpec("spark_state_bytes", "gauge", "Memory of the state of the query."),
    MetricSpec(
        "spark_late_rows_total",
        "counter",
        "Rows that came behind the watermark, so that Spark left them out.",
    ),
    MetricSpec(
        "spark_behind_newest",
        "gauge",
        "Records behind the newest, of the Kafka partition of the inputs that has most of them.",
        "largest",
    ),
    *(MetricSpec(name, "counter", meaning) for name, (meaning, _) in PHASES.items()),
)


def count_batch(metrics: SourceMetrics, progress: BatchProgress) -> None:
    """Count a micro-batch that is done."""
    metrics.observe("spark_batch_duration_seconds", progress.seconds)
    metrics.add("spark_input_rows_total", progress.input_rows)
    metrics.add("spark_bad_records_total", progress.bad)
    metrics.add("spark_late_rows_total", progress.late)
    metrics.set("spark_state_rows", progress.state_rows)
    metrics.set("spark_state_bytes", progress.state_bytes)
    if progress.behind is not None:
        metrics.set("spark_behind_newest", progress.behind)
    for name, (_, parts) in PHASES.items():
        metrics.add(name, sum(progress.phases.get(part, 0) for part in parts))
    if progress.watermark is not None:
        metrics.set("spark_watermark_timestamp_seconds", progress.watermark / 1000)
