"""The gateway with its event loop watched: how long one step of a task holds it.

    python -m benchmarks.workers.watched_gateway FILE run --config ...

On SIGUSR1 the longest steps since the previous one are written to FILE, in ms, with the names of their tasks:
`{"held": [ms, task], "computed": [ms, task], "steps": n}`. held: by the clock, without what the thread was
ready to run and waited for a processor; waiting for the interpreter's lock counts. computed: processor time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import trio

from kiwi_gw.cli import main as gateway


class Watch(trio.abc.Instrument):
    """Watch the thread in which it is made."""

    def __init__(self) -> None:
        thread = threading.get_native_id()
        self._schedule = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)
        self._began = self._now()
        self._held = self._computed = (0.0, "")
        self._steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = self._now()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        at, ran, queued = self._now()
        began, had_run, had_queued = self._began
        held, computed = at - began - (queued - had_queued), ran - had_run
        self._steps += 1
        if held > self._held[0]:
            self._held = held, task.name
        if computed > self._computed[0]:
            self._computed = computed, task.name

    def worst(self) -> dict[str, Any]:
        """Return the worst since it was asked last."""
        found = {
            "held": [self._held[0] / 1e6, self._held[1]],
            "computed": [self._computed[0] / 1e6, self._computed[1]],
            "steps": self._steps,
        }
        self._held = self._computed = (0.0, "")
        self._steps = 0
        return found

    def _now(self) -> tuple[int, int, int]:
        """Return the clock, processor time of the thread, and how long it has waited for a processor (ns)."""
        queued = int(os.pread(self._schedule, 80, 0).split()[1])
        return time.monotonic_ns(), time.thread_time_ns(), queued


def main() -> int:
    file = Path(sys.argv[1])
    watch = Watch()
    run = trio.run

    def watched(*args: Any, **keys: Any) -> Any:
        return run(*args, **{**keys, "instruments": [*keys.get("instruments", ()), watch]})

    def write(*_: object) -> None:
        part = file.with_suffix(".part")
        part.write_text(json.dumps(watch.worst()))
        part.rename(file)  # the process that waits for it finds it whole

    signal.signal(signal.SIGUSR1, write)
    trio.run = watched  # type: ignore[assignment]
    return gateway(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
