"""Applies a changed configuration file to the running gateway.

The files are looked at a few times a second instead of being watched by the kernel: that finds a rename,
a symlink that is swapped, and a file that is cut and written again alike, on every file system, and costs
one `stat` per file. A change is taken up when it has stood still for one look, so a file that is half
written is not read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import structlog
import trio

from kiwi_gw.config import Loaded, load_again
from kiwi_gw.errors import ConfigError
from kiwi_gw.runtime.gateway import Gateway

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.2

_Stamp = tuple[tuple[int, int, int] | None, ...]


class Reloader:
    """applied, refused: how many reloads there were. applied_at: wall clock of the last good one.

    The function that it is given is told of every configuration that was applied.
    """

    def __init__(self, gateway: Gateway, applied: Callable[[Loaded], None]) -> None:
        self._gateway = gateway
        self._applied = applied
        self.applied = 0
        self.refused = 0
        self.applied_at = time.time()

    async def watch(self) -> None:
        """Look at the files for ever."""
        known = pending = self._stamp()
        while True:
            await trio.sleep(LOOK_SECONDS)
            now = self._stamp()
            if now != known and now == pending:
                self.reload()
                known = pending = self._stamp()
            pending = now

    def reload(self) -> bool:
        """Read the file again and change over; False, with the reasons in the log, if it cannot be used."""
        try:
            loaded = load_again(self._gateway.loaded)
            difference = self._gateway.apply(loaded)
        except ConfigError as error:
            self.refused += 1
            for problem in error.problems:
                log.error("configuration refused; the old one stays", problem=str(problem))
            return False
        except Exception as error:
            self.refused += 1
            log.error("configuration refused by a plugin; the old one stays", exc_info=error)
            return False
        self._applied(loaded)
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

    def _stamp(self) -> _Stamp:
        loaded = self._gateway.loaded
        return tuple(_look(path) for path in (loaded.path, *loaded.files))


def _look(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None  # away for a moment (a rename), or for good: then the old configuration stays
    return found.st_ino, found.st_size, found.st_mtime_ns
