"""How much memory the process holds of what it may have, and what is done when it is nearly all.

Looked at once a second. Above `memory_shed_percent` the encodings are given up, which are made again for
whoever needs them. While that is not enough, the windows lose a quarter of what they hold each second, down
to an eighth of what they may: who falls out of them reads on from the source's history, or is told what is
lost. Above `memory_refuse_percent` no new client is let in. Either ends 5 points lower, lest it come and go.

What the process lets go of, its C library keeps for later. Where much was let go of (what was read again for
clients that then stood still, for instance) it is told to give that back to the system.
"""

from __future__ import annotations

import ctypes
import enum
import gc
import math
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from kiwi_gw.config import LimitSettings
from kiwi_gw.core.encoding import EncodingMemo
from kiwi_gw.core.window import MemoryBudget
from kiwi_gw.query import decoded_batch

log = structlog.get_logger(__name__)

_LOWER = 5
"""Percent points."""

_KEPT, _LEAST = 0.75, 0.125
_NUMBER = re.compile(r"([0-9]+)")
_OF_ALL_ABOVE = re.compile(r"^hierarchical_memory_limit ([0-9]+)$", re.MULTILINE)
_ENCODINGS = 0.125

MUCH: Final = 8 << 20
"""So many bytes more than before, beside what is counted, may be some that nothing is in."""
BETWEEN: Final = 10
"""Looks from one time that memory is given back to the next."""
MOST_LOOKED_THROUGH: Final = 512 << 20
"""A larger process keeps what it has: the event loop stands still for 20 ms of 250 MiB."""


class MemoryUse(NamedTuple):
    """resident: bytes of this process that are in memory. limit: that all of its container may hold."""

    resident: int
    limit: int


class Overload(enum.IntEnum):
    """How short memory is, as the metric of the overload level says it."""

    NONE = 0
    SHEDDING = 1
    REFUSING = 2


class MemoryWatch:
    """level: how it is. limits: may be replaced at any time. workers: how many share what there is. read:
    gives None where that cannot be known, which is said once. give_back: has memory that nothing is in given
    back to the system."""

    def __init__(
        self,
        limits: LimitSettings,
        workers: int,
        encodings: EncodingMemo,
        budget: MemoryBudget,
        read: Callable[[], MemoryUse | None] | None = None,
        give_back: Callable[[], None] | None = None,
    ) -> None:
        self.limits = limits
        self.level = Overload.NONE
        self._workers = workers
        self._encodings = encodings
        self._budget = budget
        self._read = read or read_memory
        self._give_back = give_back or _give_back
        # Beside what is counted, since some was given back. From the start on: clients may come at once.
        now = self._read()
        self._least = math.inf if now is None else now.resident - budget.used
        self._looks = 0
        self._once_more = False
        self._told = False

    def look(self) -> None:
        """Call it about once a second."""
        memory = self._read()
        if memory is None:
            if not self._told:
                self._told = True
                log.warning("memory is not watched: this system does not say how much a process holds")
            return
        if memory.resident <= MOST_LOOKED_THROUGH:
            self._give_back_if_much(memory.resident - self._budget.used)
        limit = self.limits.resident_bytes or memory.limit // self._workers
        before, self.level = self.level, self._judge(100 * memory.resident / limit)
        if self.level is not before:
            say = log.info if self.level is Overload.NONE else log.warning
            words = {
                "overload": self.level.name.lower(),
                "resident_bytes": memory.resident,
                "limit_bytes": limit,
            }
            say("memory runs short" if self.level > before else "memory is less short", **words)
        if self.level:
            self._shed(first=not before)
        elif before:
            self._encodings.shrink(1)
            self._budget.shrink(1)

    def _give_back_if_much(self, beside: int) -> None:
        """Give memory back where there is much more of it than there was, and once more a while later: it may
        have been in use until then. beside: bytes beside what is counted."""
        self._looks += 1
        self._least = min(self._least, beside)
        much = beside - self._least >= MUCH
        if (much or self._once_more) and self._looks >= BETWEEN:
            self._give_back()
            if much:
                self._least = math.inf  # else a look behind it may be the first that sees much more
            self._looks, self._once_more = 0, much

    def _judge(self, percent: float) -> Overload:
        for level, threshold in (
            (Overload.REFUSING, self.limits.memory_refuse_percent),
            (Overload.SHEDDING, self.limits.memory_shed_percent),
        ):
            if threshold and percent >= threshold - (_LOWER if self.level >= level else 0):
                return level
        return Overload.NONE

    def _shed(self, *, first: bool) -> None:
        self._encodings.shrink(_ENCODINGS)
        decoded_batch.forget_all()
        if first:
            gc.collect()  # of old objects, too: see `garbage`
        else:
            self._budget.shrink(max(_LEAST, _KEPT * self._budget.fill_ratio))


def _give_back() -> None:
    """Have the C library give back what nothing is in. Others than glibc have no such call, and keep less."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def read_memory(root: Path = Path("/")) -> MemoryUse | None:
    """Ask Linux. None elsewhere. root: where its file systems are mounted."""
    try:
        resident = int((root / "proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        machine = (root / "proc/meminfo").read_text()
    except OSError:
        return None
    total = next(int(line.split()[1]) * 1024 for line in machine.splitlines() if line.startswith("MemTotal:"))
    return MemoryUse(resident, min([total, *_group_limits(root)]))


def _group_limits(root: Path) -> Iterator[int]:
    """Read those of the process's control groups and all that they are in (cgroups(7), version 2 and 1), as
    far as they can be seen from here. Beyond `memory.high` a process crawls, so that is a limit, too."""
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, names = root / "sys/fs/cgroup", ("memory.max", "memory.high")
        elif "memory" in controllers.split(","):
            mount, names = root / "sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.stat")
        else:
            continue
        # In a container the mount may show its own group only, which the path then does not lead to.
        inside = Path(path.lstrip("/"))
        for file in (mount / folder / name for folder in (inside, *inside.parents) for name in names):
            try:
                text = file.read_text().strip()
            except OSError:
                continue
            # Version 1 says there what the groups above allow, which a container may not see.
            found = _OF_ALL_ABOVE.search(text) if file.name == "memory.stat" else _NUMBER.fullmatch(text)
            if found is not None:
                yield int(found[1])
