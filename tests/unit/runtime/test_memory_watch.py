"""What is done when memory runs short, by figures that the tests make up (ROBUSTNESS, Default limits, C8)."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
from structlog.typing import EventDict

from kiwi_gw.config import LimitSettings
from kiwi_gw.core.encoding import EncodingMemo, keyed_format
from kiwi_gw.core.window import MemoryBudget, Window, WindowEntry
from kiwi_gw.model import AS_JSON, Batch
from kiwi_gw.query import decoded_batch
from kiwi_gw.runtime.memory_watch import BETWEEN, MemoryUse, MemoryWatch, Overload, read_memory
from tests.unit.core.fakes import names

LIMIT = 1_000_000


class Machine:
    """A window of 600 entries that weigh about 1,000 bytes each, all encoded, and a watch over it."""

    def __init__(self, workers: int = 1, **limits: int) -> None:
        self.percent: float | None = 10
        self.budget = MemoryBudget(800_000)
        self.memo = EncodingMemo(200_000, self.budget)
        self.window = Window(10_000, 10_000_000, self.budget, {0: 0})
        self.evicted: list[WindowEntry] = []
        self.watch = MemoryWatch(LimitSettings(**limits), workers, self.memo, self.budget, self._read)
        for offset in range(600):
            self.publish(offset)

    def publish(self, offset: int) -> None:
        batch = Batch({0: offset}, [0], [offset], {"value": [b"1"]}, cost=100)
        entry = self.window.append(batch, self._evict)
        self.memo.encoded(entry, keyed_format(names()))
        decoded_batch.decoded(batch, AS_JSON)

    def look(self, percent: float | None) -> Overload:
        self.percent = percent
        self.watch.look()
        return self.watch.level

    def _read(self) -> MemoryUse | None:
        return None if self.percent is None else MemoryUse(int(LIMIT * self.percent / 100), LIMIT)

    def _evict(self, entry: WindowEntry) -> None:
        self.memo.forget(entry)
        self.evicted.append(entry)


def test_memory_that_was_let_go_of_is_given_back_once_in_a_while() -> None:
    """What is counted is not: it is still in use."""
    budget, given_back = MemoryBudget(1 << 30), 0
    resident = 100 << 20

    def give_back() -> None:
        nonlocal given_back, resident
        given_back += 1
        resident = 90 << 20

    memo = EncodingMemo(0, budget)
    watch = MemoryWatch(LimitSettings(), 1, memo, budget, lambda: MemoryUse(resident, 1 << 40), give_back)

    def look(mebibytes: int, *, counted: int = 0, times: int = 1) -> int:
        nonlocal resident
        for _ in range(times):
            resident, budget.used = mebibytes << 20, counted << 20
            watch.look()
        return given_back

    assert look(100, times=2 * BETWEEN) == 0
    assert look(140, counted=40, times=2 * BETWEEN) == 0
    assert look(107) == 0
    assert look(108) == 1
    assert look(90, times=2) == 1
    assert look(200, times=BETWEEN - 3) == 1, "it was done just now"
    assert look(200) == 2
    assert look(190, times=BETWEEN) == 3, "what was in use then may be let go of now"
    assert look(190, times=3 * BETWEEN) == 3, "so much is in use"
    assert look(513, times=2 * BETWEEN) == 3, "it would take too long"
    assert look(512) == 4
    assert look(100, times=BETWEEN) == 5, "once more"
    assert look(130, times=BETWEEN) == 6, "also where it grows just behind that"


def test_what_is_taken_before_the_first_look_is_given_back_too() -> None:
    budget, given_back = MemoryBudget(1 << 30), []
    resident = 60 << 20
    memo = EncodingMemo(0, budget)
    read = lambda: MemoryUse(resident, 1 << 40)  # noqa: E731
    watch = MemoryWatch(LimitSettings(), 1, memo, budget, read, lambda: given_back.append(resident))
    resident = 90 << 20
    for _ in range(BETWEEN):
        watch.look()
    assert given_back == [90 << 20]


def test_levels_come_at_80_and_90_percent_and_go_5_points_lower() -> None:
    machine = Machine()
    seen = [machine.look(percent) for percent in (79.9, 80, 76, 89.9, 90, 85.1, 84.9, 75.1, 74.9, 80)]
    assert seen == [0, 1, 1, 1, 2, 2, 1, 1, 0, 1]


def test_encodings_go_first_and_windows_lose_a_quarter_a_second_while_that_is_not_enough() -> None:
    machine = Machine()
    encoded, held = machine.memo.bytes, machine.window.bytes
    assert encoded > 25_000
    machine.look(85)
    assert machine.memo.bytes <= 25_000  # an eighth of what was set aside
    assert machine.window.bytes == held
    sizes = []
    for _ in range(20):
        machine.look(85)
        sizes.append(machine.window.bytes)
    assert sizes[0] == pytest.approx(0.75 * held, abs=1_100)
    assert sizes[1] == pytest.approx(0.75 * sizes[0], abs=1_100)
    assert sizes[-1] == pytest.approx(600_000 / 8, abs=1_100)
    assert machine.window.newest is not None


def test_when_there_is_memory_again_windows_and_encodings_grow_again() -> None:
    machine = Machine()
    for _ in range(10):
        machine.look(95)
    small = machine.window.bytes
    machine.publish(600)
    assert machine.window.bytes <= small + 1_100
    machine.look(10)
    for offset in range(601, 1_000):
        machine.publish(offset)
    assert machine.window.bytes > 4 * small
    assert machine.memo.bytes > 25_000


def test_views_of_queries_are_given_up() -> None:
    machine = Machine()
    batch = Batch({0: 0}, [0], [0], {"value": [b"1"]}, cost=100)
    before = decoded_batch.decoded(batch, AS_JSON)
    assert decoded_batch.decoded(batch, AS_JSON) is before
    machine.look(85)
    assert decoded_batch.decoded(batch, AS_JSON) is not before


def test_either_can_be_switched_off() -> None:
    assert Machine(memory_shed_percent=0).look(85) is Overload.NONE
    assert Machine(memory_shed_percent=0).look(95) is Overload.REFUSING
    assert Machine(memory_refuse_percent=0).look(99) is Overload.SHEDDING
    assert Machine(memory_refuse_percent=0, memory_shed_percent=0).look(100) is Overload.NONE


def test_workers_share_what_there_is_and_a_limit_of_ones_own_is_the_processs() -> None:
    assert Machine(workers=4).look(20) is Overload.SHEDDING
    assert Machine(workers=4).look(19) is Overload.NONE
    assert Machine(workers=4, resident_bytes=LIMIT // 2).look(41) is Overload.SHEDDING


def test_the_log_has_a_line_for_every_change(log_lines: list[EventDict]) -> None:
    machine = Machine()
    for percent in (10, 85, 85, 95, 95, 86, 82, 10, 10):
        machine.look(percent)
    lines = [(line["event"], line["overload"]) for line in log_lines]
    assert lines == [
        ("memory runs short", "shedding"),
        ("memory runs short", "refusing"),
        ("memory is less short", "shedding"),
        ("memory is less short", "none"),
    ]
    assert log_lines[1]["resident_bytes"] == 950_000
    assert log_lines[1]["limit_bytes"] == LIMIT


def test_where_nobody_knows_it_is_off_and_said_so_once(log_lines: list[EventDict]) -> None:
    machine = Machine()
    for _ in range(3):
        assert machine.look(None) is Overload.NONE
    assert [line["event"][:21] for line in log_lines] == ["memory is not watched"]


# --- what Linux says ------------------------------------------------------------------------------


def linux(root: Path, groups: str, **limits: str) -> MemoryUse | None:
    """A machine of 1,000 KiB. limits: what is in files below /sys/fs/cgroup, `__` for a slash."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/statm").write_text("500 7 3 1 0 2 0\n")
    (root / "proc/self/cgroup").write_text(groups)
    (root / "proc/meminfo").write_text("MemTotal:        1000 kB\nMemFree:  10 kB\n")
    for name, text in limits.items():
        for short, full in (
            ("__", "/"),
            ("_in_", ".limit_in_"),
            ("max", "memory.max"),
            ("high", "memory.high"),
        ):
            name = name.replace(short, full)
        file = root / "sys/fs/cgroup" / name.replace("stat", "memory.stat")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return read_memory(root)


def test_the_machines_memory_is_the_limit_without_groups(tmp_path: Path) -> None:
    memory = linux(tmp_path, "")
    assert memory is not None
    assert memory.limit == 1_024_000
    assert memory.resident % 7 == 0


@pytest.mark.parametrize(
    ("groups", "limits", "limit"),
    [
        ("0::/\n", {"max": "5000"}, 5_000),
        ("0::/\n", {"max": "max"}, 1_024_000),
        ("0::/a/b\n", {"a__b__max": "max", "a__max": "7000", "max": "9000"}, 7_000),
        ("0::/not/shown\n", {"max": "6000"}, 6_000),
        ("0::/a\n", {"a__max": "99999999999"}, 1_024_000),
        ("3:cpu:/\n4:memory:/x\n", {"memory__x__memory_in_bytes": "8000"}, 8_000),
        ("3:cpu,cpuacct:/\n", {"memory__memory_in_bytes": "8000"}, 1_024_000),
        # The group above has less than that of the process, and so does one that only version 1 tells of.
        (
            "4:memory:/a/b\n",
            {"memory__a__b__memory_in_bytes": "8000", "memory__a__memory_in_bytes": "600"},
            600,
        ),
        (
            "4:memory:/docker/a\n",
            {"memory__memory_in_bytes": "8000", "memory__stat": "rss 5\nhierarchical_memory_limit 600\nx 3"},
            600,
        ),
        ("4:memory:/\n", {"memory__memory_in_bytes": "9223372036854771712"}, 1_024_000),
        # Both versions at once: memory is of the first.
        ("0::/u\n4:memory:/x\n", {"memory__x__memory_in_bytes": "8000"}, 8_000),
        ("0::/a/b\n", {"a__b__max": "9000", "a__high": "7000", "a__b__high": "max"}, 7_000),
        ("0::/../c\n", {"max": "5000"}, 5_000),  # seen from another namespace
        ("0::/a:b\n", {"a:b__max": "5000"}, 5_000),
        ("0::/\n", {"max": ""}, 1_024_000),
    ],
)
def test_the_least_limit_of_all_groups_is_what_counts(
    tmp_path: Path, groups: str, limits: dict[str, str], limit: int
) -> None:
    memory = linux(tmp_path, groups, **limits)
    assert memory is not None
    assert memory.limit == limit


def test_another_system_says_nothing(tmp_path: Path) -> None:
    assert read_memory(tmp_path) is None


def test_this_process_holds_something() -> None:
    memory = read_memory()
    assert memory is not None
    assert 1_000_000 < memory.resident < memory.limit


def test_garbage_of_old_objects_goes_when_memory_is_short() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.own = self

    old = Cycle()
    gone = weakref.ref(old)
    gc.collect()
    del old
    machine = Machine()
    machine.look(10)
    assert gone() is not None
    machine.look(91)
    assert gone() is None
