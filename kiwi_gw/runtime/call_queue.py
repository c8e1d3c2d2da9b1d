"""What one connection has asked for that takes time (`core.commands.Call`): one at a time, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.commands import MAX_CALLS, Call, LogIn
from kiwi_gw.model import Identity, Refusal
from kiwi_gw.runtime.read_gate import ReadGate

Result = Identity | Refusal

_BUSY = Refusal(RefusalCode.BUSY, "too many requests before this one are not answered yet", retry=True)


class CallQueue(ReadGate):
    """start: begins what a call asks for; its callback comes once, later, within the deadline of the request.
    done: called with every call, its result, and when it was asked for, as `add` was told."""

    __slots__ = ("_done", "_start", "_waiting")

    def __init__(
        self,
        start: Callable[[LogIn, Callable[[Result], None]], None],
        done: Callable[[Call, Result, float | None], None],
    ) -> None:
        super().__init__()
        self._start, self._done = start, done
        self._waiting: deque[tuple[Call, float | None]] = deque()  # the first is under way

    @property
    def full(self) -> bool:
        return len(self._waiting) >= MAX_CALLS or any(call.pause for call, _ in self._waiting)

    def add(self, call: Call, asked_at: float | None = None) -> None:
        """Begin a call when those before it are over; refuse it, at once, if they are too many."""
        if len(self._waiting) >= MAX_CALLS:
            self._done(call, _BUSY, asked_at)
            return
        self._waiting.append((call, asked_at))
        if len(self._waiting) == 1:
            self._begin()

    def clear(self) -> None:
        """Give up all of them."""
        self._waiting.clear()
        self.make_room()

    # --- inside ----------------------------------------------------------------------------

    def _begin(self) -> None:
        call, asked_at = self._waiting[0]
        self._start(call.request, lambda result: self._over(call, result, asked_at))

    def _over(self, call: Call, result: Result, asked_at: float | None) -> None:
        if not self._is_first(call):
            return  # it was given up meanwhile
        self._done(call, result, asked_at)
        if not self._is_first(call):
            return  # what came of it has ended the connection
        self._waiting.popleft()
        self.make_room()
        if self._waiting:
            self._begin()

    def _is_first(self, call: Call) -> bool:
        return bool(self._waiting) and self._waiting[0][0] is call
