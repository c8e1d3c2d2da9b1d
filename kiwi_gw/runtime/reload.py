"""Applies a changed configuration file to the running gateway.

The files are looked at a few times a second instead of being watched by the kernel: that finds a rename,
a symlink that is swapped, and a file that is cut and written again alike, on every file system, and costs
one `stat` per file. A change is taken up when it has stood still for one look, so a file that is half
written is not read. One that is empty is never taken up: whoever cut it is about to write it, and would not
want every source to be removed before.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import structlog
import trio

from kiwi_gw.config import Loaded, load_again
from kiwi_gw.errors import ConfigError, Problem
from kiwi_gw.runtime.faults import fault
from kiwi_gw.runtime.gateway import Gateway

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.2

_NOTHING = hashlib.sha256().hexdigest()

_Stamps = dict[Path, tuple[int, int, int] | None]


class Reloader:
    """applied, refused: how many reloads there were. applied_at: wall clock of the last good one.

    The function that it is given is told of every configuration that was applied. Make it at once after the
    configuration was loaded: changes of the files are noticed from then on.
    """

    def __init__(self, gateway: Gateway, applied: Callable[[Loaded], None]) -> None:
        self._gateway = gateway
        self._applied = applied
        self.applied = 0
        self.refused = 0
        self.applied_at = time.time()
        self._seen = self._stamps()  # of the files as they were read last

    async def watch(self) -> None:
        """Look at the files for ever."""
        pending = self._stamps()
        while True:
            await trio.sleep(LOOK_SECONDS)
            now = self._stamps()
            if now != self._seen and now == pending:
                self.reload()
            pending = now

    def reload(self) -> bool:
        """Read the file again and change over; False, with the reasons in the log, if it cannot be used."""
        before = self._stamps()
        try:
            return self._reload()
        finally:
            # What changes while it is read must be found by the next look, so it counts as of before.
            self._seen = {path: before.get(path, stamp) for path, stamp in self._stamps().items()}

    def _reload(self) -> bool:
        if self._gateway.draining:
            log.info("configuration not read: the gateway is about to stop")
            return False
        try:
            loaded = _not_empty(load_again(self._gateway.loaded))
            difference = self._gateway.apply(loaded)
        except ConfigError as error:
            self.refused += 1
            for problem in error.problems:
                log.error("configuration refused; the old one stays", problem=str(problem))
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
