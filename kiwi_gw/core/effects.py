"""What an operation of the core has to tell others, kept until the operation is done.

Theory of operation. While the core changes its own state it calls no owner and no writer: it adds effects.
Each public operation hands them out as its last act, in order, when every part of the core is in step again.
What is called may begin the next operation at once; what that one adds comes behind what is left, and is
handed out by the first one. So an operation is never interrupted, and needs no guard against what happened
meanwhile; and however many are woken by one operation, none is called from within another's call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Effects:
    """The effects of one source hub that are still to be handed out."""

    __slots__ = ("_handing_out", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._handing_out = False

    def add(self, effect: Callable[[], None]) -> None:
        """Call this when the operation is done."""
        self._waiting.append(effect)

    def hand_out(self) -> None:
        """Call what was added, in order. The last act of an operation; one that was begun by what is called
        leaves it to the operation that calls."""
        if self._handing_out or not self._waiting:
            return
        self._handing_out = True
        try:
            while self._waiting:
                self._waiting.popleft()()
        finally:
            self._handing_out = False
