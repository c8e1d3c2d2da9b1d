"""Says so when the event loop stands still, and where: a plugin that blocks holds up every client.

A thread asks the loop for a sign a few times a second. It counts only time for which it was itself awake, so
a process that was stopped (SIGSTOP, a suspended machine) has not held up anything.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import time
import traceback

import structlog
import trio

log = structlog.get_logger(__name__)

HELD_SECONDS = 1.0
_LOOK_SECONDS = 0.25


class LoopWatch:
    """`run` watches the loop that runs it. held_seconds: after how long a standstill is logged."""

    def __init__(self, held_seconds: float = HELD_SECONDS, look_seconds: float = _LOOK_SECONDS) -> None:
        self._held_seconds = held_seconds
        self._look_seconds = look_seconds
        self._over = threading.Event()
        self._turned = True

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled."""
        arguments = (trio.lowlevel.current_trio_token(), threading.get_ident())
        context = contextvars.copy_context()  # with what every line of this process's log says
        thread = threading.Thread(
            target=context.run, args=(self._look, *arguments), name="loop watch", daemon=True
        )
        thread.start()
        try:
            task_status.started()
            await trio.sleep_forever()
        finally:
            self._over.set()
            thread.join()  # it is waiting for just that

    def _turn(self) -> None:
        self._turned = True

    def _look(self, loop: trio.lowlevel.TrioToken, loops_thread: int) -> None:
        held, told = 0.0, False
        looked_at = time.monotonic()
        while not self._over.wait(self._look_seconds):
            now = time.monotonic()
            passed, looked_at = min(now - looked_at, 2 * self._look_seconds), now
            if self._turned:
                if told:
                    log.warning("event loop turns again", seconds=round(held, 1))
                held, told = 0.0, False
                self._turned = False
                loop.run_sync_soon(self._turn, idempotent=True)
                continue
            held += passed
            if held >= self._held_seconds and not told:
                told = True
                log.warning("event loop is held up", seconds=round(held, 1), stack=_stack(loops_thread))


def _stack(thread: int) -> str:
    """Where a thread is just now. Lines of code only: their values may be secret."""
    frame = sys._current_frames().get(thread)
    return "" if frame is None else "".join(traceback.format_stack(frame)).rstrip()
