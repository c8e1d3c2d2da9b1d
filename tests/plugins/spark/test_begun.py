"""Whether a batch was begun before, from Spark's own files in a checkpoint."""

from __future__ import annotations

from kiwi_spark.driver.to_topic import Begun, begun

OFFSETS = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1758000000123,"conf":{}}\n{"flights":{"0":7}}'


class Files(dict[str, str]):
    def read(self, path: str) -> str | None:
        return self.get(path)


def test_a_batch_that_is_in_the_log_of_offsets_was_begun() -> None:
    files = Files({"s/0/offsets/0": OFFSETS, "s/0/offsets/1": OFFSETS})
    assert begun(files, "s/0", 1) == Begun(1, 1_758_000_000_123)
    assert begun(files, "s/0", 2) is None
    assert begun(Files(), "s/0", 0) is None


def test_a_log_without_the_time_means_that_everything_is_looked_at() -> None:
    assert begun(Files({"s/offsets/3": "v1"}), "s", 3) == Begun(3, 0)
