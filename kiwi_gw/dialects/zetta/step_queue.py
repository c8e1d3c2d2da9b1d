"""The steps that one message brings about at many sources: some run now, the rest after others had a turn.

A topic may mean all sources, and each costs what a subscription costs. So the work is a run of steps. Some
are done at once, and their time is charged to the client like that of its queries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Final

from kiwi_gw.core.commands import Command
from kiwi_gw.dialects.compiling import CompilingBudget

STEPS: Final = 16
"""Steps of one turn. The dearest, another form of a source for 128 topics, takes 0.1 to 0.3 ms."""

CommandSteps = Iterator[Command | None]
"""None: a step that asks for nothing."""


class StepQueue:
    """Hold the steps that one client's messages have left to do, in order."""

    def __init__(self, compiling: CompilingBudget) -> None:
        self._compiling = compiling
        self._left: deque[CommandSteps] = deque()
        self._runs = False

    @property
    def waits(self) -> float | None:
        """Return the seconds until the next turn; None if nothing is left, or it is being done."""
        return self._compiling.wait_seconds() if self._left and not self._runs else None

    def do(self, steps: CommandSteps) -> Iterator[Command]:
        """Do these steps behind those that are left: at once, if none is left."""
        self._left.append(steps)
        if len(self._left) == 1:
            yield from self.go_on()

    def go_on(self, *, charged: bool = True) -> Iterator[Command]:
        """Take one turn. What a command brings about may add steps to it. charged: not if no other client
        wanted the time."""
        if self._runs:
            return
        self._runs = True
        try:
            with self._compiling.charged() if charged else nullcontext():
                for _ in range(STEPS):
                    if not self._left:
                        break
                    for command in self._left[0]:
                        if command is not None:
                            yield command
                        break
                    else:
                        self._left.popleft()
        finally:
            self._runs = False
