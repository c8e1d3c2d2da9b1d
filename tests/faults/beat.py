"""A source inside the gateway that tells from within how it does: a plugin, named `tests.faults.beat:plugin`.

Every event says when it was published and what the process was like then, so one who subscribes to it sees
two things: how late events come, and whether the event loop was held up. Its clients are also the others
that must not notice a fault.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, cast

import trio

from kiwi_gw.api import (
    Batch,
    EventSchema,
    Field,
    FieldEncoding,
    Positions,
    Publisher,
    Section,
    SourceContext,
    SourceType,
    hookimpl,
)

_SHAPE = EventSchema(
    (
        Field("sourceId", FieldEncoding.SOURCE_ID),
        Field("partition", FieldEncoding.INT),
        Field("offset", FieldEncoding.INT),
        Field("at", FieldEncoding.VALUE),
        Field("blockedMs", FieldEncoding.VALUE),
        Field("blockedBy", FieldEncoding.VALUE),
        Field("tasks", FieldEncoding.INT),
        Field("descriptors", FieldEncoding.INT),
        Field("residentKib", FieldEncoding.INT),
        Field("objects", FieldEncoding.INT),
    )
)
_PAGE_KIB = resource.getpagesize() // 1024


class BeatSettings(Section):
    """Configure a source of type `beat`. objects: also count the garbage collector's objects (slow)."""

    type: Literal["beat"]
    id: str
    interval_ms: int = 10
    objects: bool = False


class LoopWatch(trio.abc.Instrument):
    """Measure the longest that one step of a task has held the event loop, and which task that was.

    Time for which the gateway was ready and another process had the processor is not the gateway's. A step
    that never slept is only charged with what it computed. One that slept (a system call that blocks, a lock
    that another thread has) is charged with all but what any thread waited for a processor. The beat's own
    steps do not count: they read /proc.
    """

    def __init__(self) -> None:
        self._worst = (0.0, "")
        self._began = (0.0, 0.0, 0)
        self._own = trio.lowlevel.current_task()
        self._queued = self._queued_so_far()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = _now()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        wall, computed, slept = (now - then for now, then in zip(_now(), self._began, strict=True))
        held = computed
        if slept and wall > _NOTABLE_S:
            held = max(computed, wall - (self._queued_so_far() - self._queued))
        if held > self._worst[0] and task is not self._own:
            self._worst = (held, task.name)

    def worst(self) -> tuple[float, str]:
        """Return seconds and task, since it was asked last."""
        worst, self._worst = self._worst, (0.0, "")
        self._queued = self._queued_so_far()
        return worst

    def _queued_so_far(self) -> float:
        """Return the seconds that threads of this process were ready to run and did not, added up."""
        queued = 0
        for thread in Path("/proc/self/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                queued += int((thread / "schedstat").read_text().split()[1])
        return queued / 1e9


_NOTABLE_S = 0.005


def _now() -> tuple[float, float, int]:
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return time.monotonic(), usage.ru_utime + usage.ru_stime, usage.ru_nvcsw


@contextmanager
def _watching():  # type: ignore[no-untyped-def]  # what `contextmanager` makes of it is what counts
    watch = LoopWatch()
    trio.lowlevel.add_instrument(watch)
    try:
        yield watch
    finally:
        trio.lowlevel.remove_instrument(watch)


class Beat:
    def __init__(self, settings: BeatSettings) -> None:
        self._settings = settings

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        offset = 0 if start is None else start.get(0, 0)
        await publisher.ready({0: offset})
        with _watching() as watch:
            due = trio.current_time()
            while True:
                due = max(due + self._settings.interval_ms / 1000, trio.current_time())
                await trio.sleep_until(due)
                state = self._state(watch)
                columns: dict[str, Sequence[Any]] = {name: (value,) for name, value in state.items()}
                await publisher.publish(Batch({0: offset}, (0,), (offset,), columns, cost=256))
                offset += 1

    def _state(self, watch: LoopWatch) -> dict[str, object]:
        with open("/proc/self/statm") as statm:
            resident = int(statm.read().split()[1]) * _PAGE_KIB
        objects = 0
        if self._settings.objects:
            gc.collect()
            objects = len(gc.get_objects())
            watch.worst()  # not the gateway's doing
        blocked, task = watch.worst()
        return {
            "at": time.monotonic(),
            "blockedMs": round(blocked * 1000, 3),
            "blockedBy": task,
            "tasks": trio.lowlevel.current_statistics().tasks_living,
            "descriptors": len(os.listdir("/proc/self/fd")),
            "residentKib": resident,
            "objects": objects,
        }


def _build(settings: Section, context: SourceContext) -> Beat:
    return Beat(cast(BeatSettings, settings))


@hookimpl
def source_types() -> list[SourceType]:
    return [SourceType("beat", BeatSettings, _build, _SHAPE)]


plugin = sys.modules[__name__]
