"""Applies a changed configuration file to the running gateway.

The files are looked at a few times a second instead of being watched by the kernel: that finds a rename,
a symlink that is swapped, and a file that is cut and written again alike, on every file system, and costs
one `stat` per file. A change is taken up when it has stood still for one look, so a file that is half
written is not read. One that is empty is never taken up: whoever cut it is about to write it, and would not
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
from pathlib import Path

import structlog
import trio

from kiwi_gw.config import Loaded, load_again
from kiwi_gw.errors import ConfigError, Problem
from kiwi_gw.runtime.faults import fault
from kiwi_gw.runtime.gateway import Gateway

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.2
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0

_NOTHING = hashlib.sha256().hexdigest()

_Stamps = dict[Path, tuple[int, int, int] | None]
_Load = Callable[[], Loaded]


async def in_a_thread(load: _Load) -> Loaded:
    """Run it where it does not hold up anybody. Cancelled, it is left to itself."""
    return await trio.to_thread.run_sync(load, abandon_on_cancel=True)


class Reloader:
    """applied, refused: how many reloads there were. applied_at: wall clock of the last good one.

    The function that it is given is told of every configuration that was applied. Make it at once after the
    configuration was loaded: changes of the files are noticed from then on.

    run: how the file is read and checked.
    """

    def __init__(
        self,
        gateway: Gateway,
        applied: Callable[[Loaded], None],
        run: Callable[[_Load], Awaitable[Loaded]] = in_a_thread,
    ) -> None:
        self._gateway = gateway
        self._applied = applied
        self._run = run
        self._one_at_a_time = trio.Lock()
        self._asked = trio.Event()
        self._again_at = math.inf
        self._pause = FIRST_PAUSE
        self._complaint: tuple[Problem, ...] = ()
        self.applied = 0
        self.refused = 0
        self.applied_at = time.time()
        self._seen = self._stamps()  # of the files as they were read last

    async def watch(self) -> None:
        """Look at the files for ever, and read them whenever that is asked for."""
        pending = self._stamps()
        while True:
            with trio.move_on_after(LOOK_SECONDS):
                await self._asked.wait()
            now = self._stamps()
            changed = now != self._seen and now == pending
            pending = now
            if changed or self._asked.is_set():
                self._pause, self._complaint = FIRST_PAUSE, ()
            elif trio.current_time() < self._again_at:
                continue
            self._asked = trio.Event()  # whoever asks from now on may mean a newer file
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
                return await self._reload()
            finally:
                # What changes while it is read must be found by the next look, so it counts as of before.
                self._seen = {path: before.get(path, stamp) for path, stamp in self._stamps().items()}

    async def _reload(self) -> bool:
        running = self._gateway.loaded
        try:
            loaded = await self._run(lambda: _not_empty(load_again(running)))
            gateway = self._gateway
            if problems := await gateway.vetting.problems(running, loaded, gateway.runners()):
                raise ConfigError(problems)  # noqa: TRY301
            if self._gateway.draining:
                log.info("configuration not used: the gateway is about to stop")
                return False
            difference = self._gateway.apply(loaded)
        except ConfigError as error:
            self._refuse(error)
            return False
        except BaseException as error:
            if fault(error) is None:
                raise
            self.refused += 1
            log.error("configuration refused by a plugin; the old one stays", exc_info=error)
            return False
        try:
            self._applied(loaded)
        except Exception as error:
            log.error("not all of the new configuration is in use", exc_info=error)
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

    def _refuse(self, error: ConfigError) -> None:
        if error.unreadable:
            self._again_at = trio.current_time() + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
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


def _not_empty(loaded: Loaded) -> Loaded:
    if loaded.text_hash == _NOTHING:
        raise ConfigError((Problem(str(loaded.path), 0, "", "is empty"),))
    return loaded
