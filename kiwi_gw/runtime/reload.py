"""Applies a changed configuration file to the running gateway.

The files are looked at a few times a second instead of being watched by the kernel: that finds a rename,
a symlink that is swapped, and a file that is cut and written again alike, on every file system, and costs
one `stat` per file. A change is taken up when it has stood still for one look, so a file that is half
written is not read. One that is empty is never taken up: its writer is about to fill it, and would not
want every source to be removed before. Where a file could not be read (descriptors were used up, a secret is
not there yet) it is tried again, with pauses that grow, until it can be or is changed.

Reading and checking thousands of sources takes seconds, so that is done in a worker thread. It touches
nothing of the running gateway: it has a plugin manager of its own, and of the plugins it calls only the
hooks that declare something. What differs is then applied in one go, between two events.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import structlog
import trio

from kiwi_gw.backoff import Backoff
from kiwi_gw.config import ConfigDifference, LoadedConfig, load_again
from kiwi_gw.errors import ConfigError, Problem
from kiwi_gw.runtime.gateway import Gateway
from kiwi_gw.runtime.plugin_faults import FaultBarrier

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.2
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0

_NOTHING = hashlib.sha256().hexdigest()

_Stamps = dict[Path, tuple[int, int, int] | None]
_Load = Callable[[], LoadedConfig]


async def in_a_thread(load: _Load) -> LoadedConfig:
    """Run it where it does not hold up anybody. Cancelled, it is left to itself."""
    return await trio.to_thread.run_sync(load, abandon_on_cancel=True)


class Reloader:
    """applied, refused: how many reloads there were. applied_at: wall clock of the last good one.

    The function that it is given is called with every configuration that was applied. Make it at once after
    the configuration was loaded: changes of the files are noticed from then on.

    run: how the file is read and checked. reloading: entered while that is done.
    """

    def __init__(
        self,
        gateway: Gateway,
        applied: Callable[[LoadedConfig], None],
        run: Callable[[_Load], Awaitable[LoadedConfig]] = in_a_thread,
        reloading: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._reloading = reloading
        self._gateway = gateway
        self._applied = applied
        self._run = run
        self._one_at_a_time = trio.Lock()
        self._asked = trio.Event()
        self._again_at = math.inf
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE, jitter=0.0)
        self._complaint: tuple[Problem, ...] = ()
        self.applied = 0
        self.refused = 0
        self.applied_at = time.time()
        self._read_stamps = self._stamps()  # of the files as they were read last

    async def watch(self) -> None:
        """Look at the files for ever, and read them whenever that is asked for."""
        pending = self._stamps()
        while True:
            with trio.move_on_after(LOOK_SECONDS):
                await self._asked.wait()
            now = self._stamps()
            changed = now != self._read_stamps and now == pending
            pending = now
            if changed or self._asked.is_set():
                self._backoff.reset()
                self._complaint = ()
            elif trio.current_time() < self._again_at:
                continue
            self._asked = trio.Event()  # who asks from now on may mean a newer file
            await self.reload()

    def ask(self) -> None:
        """Have `watch` read the file again, as it is then; once, however often that is asked for before."""
        self._asked.set()

    async def reload(self) -> bool:
        """Read the file again and change over; False, with the reasons in the log, if it cannot be used.

        One at a time: what was written last is what is in use in the end.
        """
        async with self._one_at_a_time:
            before = self._stamps()
            self._again_at = math.inf
            try:
                with self._reloading():
                    return await self._reload()
            finally:
                # What changes while it is read must be found by the next look, so it counts as of before.
                self._read_stamps = {path: before.get(path, stamp) for path, stamp in self._stamps().items()}

    async def _reload(self) -> bool:
        difference = None
        with FaultBarrier() as barrier:
            difference = await self._change_over()
        if isinstance(barrier.error, ConfigError):
            self._refuse(barrier.error)
        elif barrier.error is not None:
            self.refused += 1
            log.error("configuration refused by a plugin; the old one stays", exc_info=barrier.error)
        if difference is None:
            return False
        with FaultBarrier() as barrier:
            self._applied(self._gateway.loaded)
        if barrier.error is not None:
            log.error("not all of the new configuration is in use", exc_info=barrier.error)
        self.applied += 1
        self.applied_at = time.time()
        log.info(
            "configuration applied",
            added=difference.added,
            removed=difference.removed,
            altered=difference.altered,
        )
        if difference.live:
            log.info("settings changed", keys=difference.live)
        for key in difference.restart_needed:
            log.warning("this change needs a restart to take effect", key=key)
        return True

    async def _change_over(self) -> ConfigDifference | None:
        """Read and check the file and apply it. None: not any more. Raises ConfigError."""
        gateway, running = self._gateway, self._gateway.loaded
        loaded = await self._run(lambda: _not_empty(load_again(running)))
        if problems := await gateway.reload_check.problems(running, loaded, gateway.runners()):
            raise ConfigError(problems)
        if gateway.draining:
            log.info("configuration not used: the gateway is about to stop")
            return None
        return gateway.apply(loaded)

    def _refuse(self, error: ConfigError) -> None:
        if error.unreadable:
            self._again_at = trio.current_time() + self._backoff.next()
        if error.problems == self._complaint:
            return  # tried again, and nothing is new
        self._complaint = error.problems
        self.refused += 1
        for problem in error.problems:
            log.error("configuration refused; the old one stays", problem=str(problem))

    def _stamps(self) -> _Stamps:
        loaded = self._gateway.loaded
        return {path: _look(path) for path in (loaded.path, *loaded.files)}


def _look(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None  # away for a moment (a rename), or for good: then the old configuration stays
    return found.st_ino, found.st_size, found.st_mtime_ns


def _not_empty(loaded: LoadedConfig) -> LoadedConfig:
    if loaded.text_hash == _NOTHING:
        raise ConfigError((Problem(str(loaded.path), 0, "", "is empty"),))
    return loaded
