"""What is logged of records that cannot be decoded."""

from __future__ import annotations

import structlog
from trio.testing import MockClock

from kiwi_spark.bad_records import FIRST, SECONDS, BadRecords


async def test_the_first_at_once_and_then_one_line_a_minute(mock_clock: MockClock) -> None:
    bad = BadRecords("late")
    with structlog.testing.capture_logs() as lines:
        bad.seen(0, 0, "")
        for batch in range(1, FIRST + 1):
            bad.seen(batch, 2, f"input flights, partition 0 offset {batch}: {{nope")
        assert [(line["batch"], line["count"]) for line in lines] == [(n, 2) for n in range(1, FIRST + 1)]
        assert lines[0]["sample"] == "input flights, partition 0 offset 1: {nope"
        assert {line["source"] for line in lines} == {"late"}

        for batch in range(100):
            bad.seen(batch, 1, "more")
        assert len(lines) == FIRST
        mock_clock.jump(SECONDS)
        bad.seen(100, 1, "later")
        assert (lines[-1]["count"], lines[-1]["total"], lines[-1]["sample"]) == (
            101,
            2 * FIRST + 101,
            "later",
        )
        bad.seen(101, 1, "at once")
    assert len(lines) == FIRST + 1
    assert bad.total == 2 * FIRST + 102
