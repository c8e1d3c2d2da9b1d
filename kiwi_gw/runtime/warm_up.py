"""What is loaded after the start, as nobody should wait for it who asks whether the gateway lives."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

import structlog
import trio

log = structlog.get_logger(__name__)

SOON_SECONDS: Final = 0.1
"""When it is loaded though no client has come: the first request for `/health` was answered by then."""

AGAIN_SECONDS: Final = 1.0
"""When it is tried again, where no file could be opened."""

_OUT_OF_DESCRIPTORS: Final = (os.strerror(errno.EMFILE), os.strerror(errno.ENFILE))


class WarmUp:
    """`run` loads it, in a thread: when the first client waits for it, or soon. Where no descriptor is left
    for its files, as soon as there are some."""

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
        while True:
            try:
                await trio.to_thread.run_sync(self._load)
            except (OSError, ImportError) as error:  # (a library that cannot be opened is an ImportError)
                if not any(words in str(error) for words in _OUT_OF_DESCRIPTORS):
                    raise
                log.warning("no descriptor is left to load what queries need; it is tried again")
                await trio.sleep(AGAIN_SECONDS)
            else:
                break
        self._done.set()
