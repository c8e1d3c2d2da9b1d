"""How much processor time other processes have used (Linux)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def seconds(pid: int) -> float:
    """User and system time of a process so far. FileNotFoundError if there is none."""
    # The name, in parentheses, may hold anything: what is wanted stands behind the last one.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class Meter:
    """Processor time of named processes since the meter was made."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._begun = self._read()

    def used(self) -> dict[str, float]:
        now = self._read()
        return {name: round(now[name] - begun, 2) for name, begun in self._begun.items()}

    def _read(self) -> dict[str, float]:
        return {name: seconds(pid) for name, pid in self._pids.items()}
