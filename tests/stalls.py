"""What was promised within some time, on a machine that does other things, too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio


class _Stalls(trio.abc.Instrument):
    """Add up how much longer the event loop waited than it was to: it had no processor, or was stopped."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = time.monotonic()

    def before_io_wait(self, timeout: float) -> None:
        self._began = time.monotonic()

    def after_io_wait(self, timeout: float) -> None:
        self.seconds += max(0.0, time.monotonic() - self._began - timeout)


@contextmanager
def loop_time() -> Iterator[Callable[[], float]]:
    """Give a clock that stands still while the loop waits longer than it was to. What blocks it counts."""
    stalls = _Stalls()
    trio.lowlevel.add_instrument(stalls)
    try:
        yield lambda: time.monotonic() - stalls.seconds
    finally:
        trio.lowlevel.remove_instrument(stalls)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Assert that the block takes less than so many seconds by the clock of `loop_time`."""
    with loop_time() as now:
        began = now()
        yield
        assert now() - began < seconds
