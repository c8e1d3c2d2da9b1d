"""What one client's queries may take to be read and compiled: charged by the processor's clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kiwi_gw.core.accounts import COMPILING_SAVED_SECONDS, OwnAccount
from kiwi_gw.dialects.base import SessionLimits

_LITTLE_SECONDS: Final = 0.0001
"""Less is not charged: a text that is known takes no more."""


class Compiling:
    """One client's account, beside that of all. clock: monotonic seconds; cpu: seconds of the processor, of
    this thread."""

    __slots__ = ("_all", "_charging", "_clock", "_cpu", "_own")

    def __init__(
        self,
        limits: SessionLimits,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._own = limits.compiling_own or OwnAccount(limits.compiling_share, COMPILING_SAVED_SECONDS)
        self._all = limits.compiling
        self._clock = clock
        self._cpu = cpu
        self._charging = False

    def wait(self) -> float:
        """Seconds until it may have a query read; 0: now. Whoever has used little need not wait for those
        who have used much."""
        wait = self.rests()
        self._all.refused += wait > 0
        return wait

    def rests(self) -> float:
        """The same, where that refuses nothing."""
        now = self._clock()
        return self._own.rests(now) or self._all.rests(now, modest=self._own.modest(now))

    @contextmanager
    def charged(self) -> Iterator[None]:
        """What is done inside is charged, when it is done: a source may have been waited for since `wait`.
        Once: what is done inside of that is a part of it."""
        if self._charging:
            yield
            return
        began, modest = self._cpu(), self._own.modest(self._clock())
        self._charging = True
        try:
            yield
        finally:
            self._charging = False
            used = self._cpu() - began
            if used > _LITTLE_SECONDS:
                now = self._clock()
                self._own.charge(used, now)
                self._all.charge(used, now, modest=modest)

    def charge_offloaded(self, seconds: float) -> None:
        """So much was done for it beside the loop, where it costs the others nothing."""
        self._own.charge(seconds, self._clock())


BUSY: Final = "Too many queries wait to be read: try again"


def busy(wait: float) -> str:
    """What a client is told that must wait."""
    return f"Queries take too much time just now: try again in {max(1, round(wait * 1000))} ms"
