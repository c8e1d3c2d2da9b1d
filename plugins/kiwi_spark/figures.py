"""What is counted of queries, by source."""

from __future__ import annotations

from typing import Final

from kiwi_gw.api import Figure, Figures
from kiwi_spark.wire import Progress

FIGURES: Final = (
    Figure("spark_query_up", "gauge", "1 while Spark runs the query of the source.", "smallest"),
    Figure(
        "spark_batch_duration_seconds",
        "histogram",
        "How long Spark took for a micro-batch.",
        bounds=(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
    ),
    Figure("spark_input_rows_total", "counter", "Rows that queries have read."),
    Figure("spark_bad_records_total", "counter", "Records that could not be decoded, dropped or made null."),
    Figure(
        "spark_watermark_timestamp_seconds",
        "gauge",
        "The watermark of the query: events before it come too late.",
        "smallest",
    ),
    Figure("spark_state_rows", "gauge", "Rows that Spark keeps as the state of the query."),
)


def count_batch(figures: Figures, progress: Progress) -> None:
    """A micro-batch is done."""
    figures.observe("spark_batch_duration_seconds", progress.seconds)
    figures.add("spark_input_rows_total", progress.input_rows)
    figures.add("spark_bad_records_total", progress.bad)
    figures.set("spark_state_rows", progress.state_rows)
    if progress.watermark is not None:
        figures.set("spark_watermark_timestamp_seconds", progress.watermark / 1000)
