"""What an operation of the core has to tell others, kept until the operation is done.

Theory of operation. While the core changes its own state it calls no owner and no writer: it adds effects.
Each public operation hands them out as its last act, in order, when every part of the core is in step again.
What is called may begin the next operation at once; that one hands out what is left, then its own. So an
operation is never interrupted, and needs no guard against what happened meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Effects:
    """The effects of one source hub that are still to be handed out."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, effect: Callable[[], None]) -> None:
        """Call this when the operation is done."""
        self._waiting.append(effect)

    def hand_out(self) -> None:
        """Call what was added, in order. The last act of an operation."""
        while self._waiting:
            self._waiting.popleft()()
