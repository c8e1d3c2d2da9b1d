"""Whether a batch was begun before, from Spark's own files in a checkpoint."""

from __future__ import annotations

from kiwi_spark.driver.topic_sink import BegunBatch, find_begun_batch

OFFSETS = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1758000000123,"conf":{}}\n{"flights":{"0":7}}'


def test_a_batch_that_is_in_the_log_of_offsets_was_begun() -> None:
    read = {"s/0/offsets/0": OFFSETS, "s/0/offsets/1": OFFSETS}.get
    assert find_begun_batch(read, "s/0", 1) == BegunBatch(1, 1_758_000_000_123)
    assert find_begun_batch(read, "s/0", 2) is None
    assert find_begun_batch(lambda path: None, "s/0", 0) is None


def test_a_log_without_the_time_means_that_everything_is_looked_at() -> None:
    assert find_begun_batch({"s/offsets/3": "v1"}.get, "s", 3) == BegunBatch(3, 0)
