from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.latency import Around, Delays, Notes, summed

MS = 1_000_000


def test_percentiles_are_those_of_all_delays() -> None:
    delays = Delays()
    delays.add(100 * MS, [(100 - after) * MS for after in range(1, 101)])
    assert delays.said() == {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 100.0, "max": 100.0}


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=200))
def test_the_median_is_right_to_ten_microseconds(lengths: list[int]) -> None:
    delays = Delays()
    delays.add(10**9, [10**9 - length for length in lengths])
    assert delays.percentile(0.5) == pytest.approx(statistics.median_low(lengths) / MS, abs=0.0101)


def test_nothing_was_counted() -> None:
    assert Delays().said() == {}
    with pytest.raises(ValueError, match="no delay"):
        Delays().percentile(0.5)


def test_events_count_when_they_are_whole_and_in_the_period_in_which_they_came() -> None:
    ends, times = [10, 20, 30, 40], [0, 1 * MS, 2 * MS, 3 * MS]
    notes = Notes(10)  # the first event came before the notes were begun
    notes.note(11 * MS, 25)  # the second, and half of the third
    notes.note(22 * MS, 40)
    periods = [Delays(), Delays()]
    notes.count(ends, times, periods, 10 * MS, 30 * MS)
    assert [one.count for one in periods] == [1, 2]
    assert periods[0].said()["max"] == 10.0
    assert periods[1].said()["max"] == 20.0
    told = summed(periods)
    assert told["p50"] == 19.0
    assert told["periods"] == [10.0, 20.0]


def test_the_longest_delay_near_a_checkpoint_and_elsewhere(tmp_path: Path) -> None:
    commits = tmp_path / "0" / "commits"
    commits.mkdir(parents=True)
    now, wall = time.monotonic_ns(), time.time_ns()
    for name, after in (("0", -60_000), ("1", 0), (".1.crc", 20_000)):
        file = commits / name
        file.touch()
        os.utime(file, ns=(wall + after * MS, wall + after * MS))
    around = Around(tmp_path)
    for made, delay in ((-9_000, 7), (-1_900, 30), (1_900, 90), (2_100, 8), (9_000, 5)):
        around.add(now + (made + delay) * MS, now + made * MS)
    assert around.said() == {"checkpoints": 1, "near": 90.0, "elsewhere": 8.0}


def test_nothing_is_near_a_checkpoint_where_there_is_none(tmp_path: Path) -> None:
    around = Around(tmp_path)
    assert around.said() == {"checkpoints": 0, "near": 0.0, "elsewhere": 0.0}
    around.add(5 * MS, 2 * MS)
    assert around.said() == {"checkpoints": 0, "near": 0.0, "elsewhere": 3.0}
