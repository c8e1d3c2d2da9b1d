"""What other processes use, as the kernel tells it (Linux)."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process so far. FileNotFoundError if it does not run."""
    # The name, in parentheses, may hold anything: what is wanted stands behind the last one.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def family(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                stat = Path(f"/proc/{entry}/stat").read_text()
                parents[int(entry)] = int(stat.rpartition(")")[2].split()[1])
    found = [pid]
    for member in found:
        found += [child for child, parent in parents.items() if parent == member]
    return found


def resident_bytes(pid: int) -> int:
    """Return what a process has in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def descriptors(pid: int) -> int:
    """Return how many files and sockets a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def tcp_bytes() -> int:
    """Return the bytes in the kernel's buffers of all TCP sockets of this machine, of both ends."""
    for line in Path("/proc/net/sockstat").read_text().splitlines():
        words = line.split()
        if words[0] == "TCP:":
            return int(words[words.index("mem") + 1]) * _PAGE
    raise ValueError("/proc/net/sockstat has no line of TCP")


def pin(pid: int, cores: Collection[int]) -> None:
    """Let all threads of a process, and those that they will start, run on these cores only."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), cores)


class Meter:
    """Measure processor time of named processes, or of several under one name, since the meter was made."""

    def __init__(self, pids: Mapping[str, int | Collection[int]]) -> None:
        self._pids = {name: (pid,) if isinstance(pid, int) else tuple(pid) for name, pid in pids.items()}
        self._begun = self._read()

    def used(self) -> dict[str, float]:
        now = self._read()
        return {name: round(now[name] - begun, 2) for name, begun in self._begun.items()}

    def _read(self) -> dict[str, float]:
        return {name: sum(map(cpu_seconds, pids)) for name, pids in self._pids.items()}


class FamilyMeter:
    """Measure processor time of a process and all that descend from it, since the meter was made."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._begun = self._read()

    def used(self) -> float:
        """Return seconds. Of processes that have ended meanwhile it knows nothing."""
        now = self._read()
        return round(sum(seconds - self._begun.get(pid, 0.0) for pid, seconds in now.items()), 2)

    def _read(self) -> dict[int, float]:
        found = {}
        for pid in family(self._pid):
            with suppress(FileNotFoundError, ProcessLookupError):
                found[pid] = cpu_seconds(pid)
        return found
