"""What one client's queries may take to be read and compiled: charged by the processor's clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kiwi_gw.core.accounts import COMPILING_SAVED_SECONDS, ClientAccount
from kiwi_gw.dialect_api.limits import SessionLimits

_LITTLE_SECONDS: Final = 0.0001
"""Less is not charged: a text that is known takes no more."""


class CompilingBudget:
    """One client's account, beside that of all. clock: monotonic seconds; cpu: seconds of the processor, of
    this thread."""

    __slots__ = ("_all", "_charging", "_clock", "_cpu", "_own")

    def __init__(
        self,
        limits: SessionLimits,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._own = limits.compiling_own or ClientAccount(limits.compiling_share, COMPILING_SAVED_SECONDS)
        self._all = limits.compiling
        self._clock = clock
        self._cpu = cpu
        self._charging = False

    def wait(self) -> float:
        """Return the seconds until it may have a query read; 0: now. Clients that have used little need not
        wait for those that have used much."""
        wait = self.wait_seconds()
        self._all.refused += wait > 0
        return wait

    def wait_seconds(self) -> float:
        """Return the same, where that refuses nothing."""
        now = self._clock()
        return self._own.wait_seconds(now) or self._all.wait_seconds(
            now, light_user=self._own.light_user(now)
        )

    @contextmanager
    def charged(self) -> Iterator[None]:
        """Charge what is done inside, once it is done: a source may have been waited for since `wait`. What
        is charged inside of that is a part of it."""
        if self._charging:
            yield
            return
        began, light_user = self._cpu(), self._own.light_user(self._clock())
        self._charging = True
        try:
            yield
        finally:
            self._charging = False
            used = self._cpu() - began
            if used > _LITTLE_SECONDS:
                now = self._clock()
                self._own.charge(used, now)
                self._all.charge(used, now, light_user=light_user)

    def charge_offloaded(self, seconds: float) -> None:
        """Charge what was done for it beside the loop, where it costs the others nothing."""
        self._own.charge(seconds, self._clock())


BUSY: Final = "Too many queries wait to be read: try again"


def busy(wait: float) -> str:
    """Say to a client that it must wait."""
    return f"Queries take too much time just now: try again in {max(1, round(wait * 1000))} ms"
