"""What the rounds of the event loop tell: when another one begins, and whether the loop is idle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final
from weakref import WeakSet

import trio

from kiwi_gw.core.round_budget import RoundBudget

IDLE_SECONDS: Final = 0.001
"""A loop on which nothing else runs for so long is idle."""

LOOK_SECONDS: Final = 0.01
"""How often it is found out whether it is, while something is overdrawn and the loop stays busy."""


class _Rounds(trio.abc.Instrument):
    """Renews a budget when a round is over."""

    def __init__(self, budget: RoundBudget) -> None:
        self._budget = budget
        self._began = time.monotonic()

    def after_io_wait(self, timeout: float) -> None:
        self._began = time.monotonic()

    def before_io_wait(self, timeout: float) -> None:
        self._budget.renew(time.monotonic() - self._began)


async def renew_in_each_round(budget: RoundBudget) -> None:
    """Renew it whenever the loop has got round, until cancelled."""
    rounds = _Rounds(budget)
    trio.lowlevel.add_instrument(rounds)
    try:
        await trio.sleep_forever()
    finally:
        trio.lowlevel.remove_instrument(rounds)


_lookers: Final[WeakSet[trio.lowlevel.Task]] = WeakSet()

_parent: Final[ContextVar[trio.lowlevel.Task]] = ContextVar("parent")
"""The task that this one counts like."""


def count_as_busy() -> None:
    """Count as busy, until this task looks again whether it is idle."""
    _lookers.discard(trio.lowlevel.current_task())


def count_as_idle() -> None:
    """Count as idle while this task runs, until `count_as_busy`: it brings what is evaluated."""
    _lookers.add(trio.lowlevel.current_task())


@contextmanager
def counting_alike() -> Iterator[None]:
    """Have tasks that are started in the block count as this one does, from then on."""
    token = _parent.set(trio.lowlevel.current_task())
    try:
        yield
    finally:
        _parent.reset(token)


class _Others(trio.abc.Instrument):
    """Whether any task has run, but for those that look as this one does: each would keep the others from
    what it waits for itself."""

    def __init__(self) -> None:
        self.ran = False
        _lookers.add(trio.lowlevel.current_task())

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.ran = self.ran or task.context.get(_parent, task) not in _lookers


async def is_idle(seconds: float) -> bool:
    """Wait for so long. Returns whether nothing else ran meanwhile, however short."""
    with _looking() as others:
        await trio.sleep(seconds)
    return not others.ran


async def let_others_run() -> bool:
    """Let everyone run who is ready. Returns whether nobody was: a loop that was idle still is."""
    with _looking() as others:
        # Whoever became ready during the first has run after the second.
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
    return not others.ran


@contextmanager
def _looking() -> Iterator[_Others]:
    others = _Others()
    trio.lowlevel.add_instrument(others)
    try:
        yield others
    finally:
        trio.lowlevel.remove_instrument(others)
