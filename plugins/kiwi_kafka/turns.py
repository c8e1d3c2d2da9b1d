"""Which replays may have a consumer: so many at a time, and by turns when there are more."""

from __future__ import annotations

from typing import Protocol

import trio

_TURN_S = 1.0
"""How long a replay may go on while others wait. Making another consumer takes some 20 ms."""


class Holder(Protocol):
    """One that has a turn, or wants one."""

    @property
    def idle(self) -> bool:
        """Whether nobody waits for what it reads."""

    async def close(self) -> None:
        """Give the consumer back."""


class Turns:
    def __init__(self, most: int) -> None:
        self._most = most
        self._since: dict[Holder, float] = {}
        self._waiting: dict[Holder, trio.Event] = {}

    async def take(self, holder: Holder) -> None:
        """Returns when it is the holder's turn, which lasts until `give`. First come, first served."""
        if holder in self._since:
            return
        given = self._waiting[holder] = trio.Event()
        try:
            self._call()
            while not given.is_set():
                await self._interrupt()
                with trio.move_on_after(_TURN_S):
                    await given.wait()
        except BaseException:
            self.give(holder)
            raise
        finally:
            self._waiting.pop(holder, None)

    def give(self, holder: Holder) -> None:
        """The holder, whose consumer is closed, needs none."""
        self._since.pop(holder, None)
        self._waiting.pop(holder, None)
        self._call()

    def is_over(self, holder: Holder) -> bool:
        """Whether the holder has had its turn and should let others have theirs."""
        return bool(self._waiting) and trio.current_time() - self._since.get(holder, 0.0) >= _TURN_S

    def _call(self) -> None:
        while self._waiting and len(self._since) < self._most:
            holder = next(iter(self._waiting))
            self._since[holder] = trio.current_time()
            self._waiting.pop(holder).set()

    async def _interrupt(self) -> None:
        """Take the turn of one that reads nothing now. It asks again when it does."""
        for holder in list(self._since):
            if holder.idle and self.is_over(holder):
                self.give(holder)
                await holder.close()
                return
