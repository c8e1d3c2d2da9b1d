"""A signal that wakes a task that waits for something to do."""

from __future__ import annotations

import trio


class Wakeup:
    """Wake the one task that waits; set before it waits, its next `wait` returns at once."""

    def __init__(self) -> None:
        self._event = trio.Event()

    @property
    def is_set(self) -> bool:
        """Return whether it was set since it was last cleared or waited for."""
        return self._event.is_set()

    def set(self) -> None:
        """Wake the task, or have it not wait the next time. Any number of times counts once."""
        self._event.set()

    def clear(self) -> None:
        """Forget that it was set: the task is about to look at everything anyway."""
        if self._event.is_set():
            self._event = trio.Event()

    async def wait(self) -> None:
        """Return when it is set, and clear it."""
        await self._event.wait()
        self.clear()
