"""What is loaded after the start, as nobody should wait for it who asks whether the gateway lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

SOON_SECONDS: Final = 0.1
"""When it is loaded though no client has come: the first request for `/health` was answered by then."""


class Preparation:
    """`run` loads it, in a thread: when the first client waits for it, or soon."""

    def __init__(self, load: Callable[[], object]) -> None:
        self._load = load
        self._wanted = trio.Event()
        self._done = trio.Event()

    @property
    def done(self) -> bool:
        return self._done.is_set()

    async def wait(self) -> None:
        """Return when it is loaded."""
        self._wanted.set()
        await self._done.wait()

    async def run(self) -> None:
        """Load it; return when it is."""
        with trio.move_on_after(SOON_SECONDS):
            await self._wanted.wait()
        await trio.to_thread.run_sync(self._load)
        self._done.set()
