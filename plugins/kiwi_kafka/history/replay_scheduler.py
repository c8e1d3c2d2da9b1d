"""The history readers that may have a consumer: a bounded number at a time, by turns when there are more."""

from __future__ import annotations

from typing import Protocol

import trio

_TURN_S = 1.0
"""How long a reader may keep its consumer while others wait. Making another consumer takes some 20 ms."""


class ScheduledReader(Protocol):
    """Have a turn, or want one."""

    @property
    def idle(self) -> bool:
        """Return whether no call waits for what it reads."""

    async def close(self) -> None:
        """Give the consumer back."""


class ReplayScheduler:
    def __init__(self, most: int) -> None:
        self._most = most
        self._since: dict[ScheduledReader, float] = {}
        self._waiting: dict[ScheduledReader, trio.Event] = {}

    async def acquire(self, reader: ScheduledReader) -> None:
        """Wait for the reader's turn, which lasts until `release`. First come, first served."""
        if reader in self._since:
            return
        given = self._waiting[reader] = trio.Event()
        try:
            self._call()
            while not given.is_set():
                await self._interrupt()
                with trio.move_on_after(_TURN_S):
                    await given.wait()
        except BaseException:
            self.release(reader)
            raise
        finally:
            self._waiting.pop(reader, None)

    def release(self, reader: ScheduledReader) -> None:
        """Let others have the place of a reader whose consumer is closed."""
        self._since.pop(reader, None)
        self._waiting.pop(reader, None)
        self._call()

    def should_yield(self, reader: ScheduledReader) -> bool:
        """Return whether the reader has had its turn and should let others have theirs."""
        return bool(self._waiting) and trio.current_time() - self._since.get(reader, 0.0) >= _TURN_S

    def _call(self) -> None:
        while self._waiting and len(self._since) < self._most:
            reader = next(iter(self._waiting))
            self._since[reader] = trio.current_time()
            self._waiting.pop(reader).set()

    async def _interrupt(self) -> None:
        """Take the turn of one that reads nothing now. It asks again when it does."""
        for reader in list(self._since):
            if reader.idle and self.should_yield(reader):
                self.release(reader)
                await reader.close()
                return
