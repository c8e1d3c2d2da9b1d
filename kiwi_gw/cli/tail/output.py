"""Standard output for a program that must not stand still when its reader does."""

from __future__ import annotations

import os
import stat
from typing import Final

import trio

_BACKLOG_BYTES: Final = 256 * 1024


class Output:
    """Writes to a file descriptor from a worker thread, in order, with a bounded backlog.

    While the reader of a pipe is slow, Trio goes on: pings are answered and Ctrl-C works. The descriptor
    is written directly, not through `sys.stdout`, whose lock a thread that is stuck in a write would
    still hold when the interpreter ends.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting = bytearray()
        self._changed = trio.lowlevel.ParkingLot()

    async def write(self, line: bytes) -> None:
        """Queue one line (its end is added); waits while 256 KiB are waiting already."""
        while len(self._waiting) > _BACKLOG_BYTES:
            await self._changed.park()
        self._waiting += line
        self._waiting += b"\n"
        self._changed.unpark_all()

    async def drain(self) -> None:
        """Return when everything queued was taken by the reader."""
        while self._waiting:
            await self._changed.park()

    async def run(self) -> None:
        """Write what is queued; return when the reader is gone."""
        while True:
            while not self._waiting:
                await self._changed.park()
            chunk = bytes(self._waiting)
            try:
                await trio.to_thread.run_sync(self._write_all, chunk, abandon_on_cancel=True)
            except BrokenPipeError:
                return
            del self._waiting[: len(chunk)]
            self._changed.unpark_all()

    async def wait_reader_gone(self) -> None:
        """Return when the reader of a pipe has closed it; never for anything that is not a pipe.

        Without it a quiet source would keep `tail | head` alive until its next event.
        """
        if not stat.S_ISFIFO(os.fstat(self._descriptor).st_mode):
            await trio.sleep_forever()
        # Nothing can be read from the writing end of a pipe: it turns "readable" by its error only.
        await trio.lowlevel.wait_readable(self._descriptor)

    def _write_all(self, chunk: bytes) -> None:
        view = memoryview(chunk)
        while view:
            view = view[os.write(self._descriptor, view) :]
