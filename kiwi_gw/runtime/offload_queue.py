"""What one connection has offloaded: one question at a time, in order."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from kiwi_gw.core.notices import Offloaded, Unanswered
from kiwi_gw.runtime.offloads import Offloads
from kiwi_gw.runtime.read_gate import ReadGate

MOST_OF_ONE: Final = 8
"""Questions that wait, of one connection."""


class OffloadQueue(ReadGate):
    """tell: called with each answer, and with the time at which it was asked for."""

    __slots__ = ("_offloads", "_pausing", "_take_back", "_tell", "_waiting")

    def __init__(self, offloads: Offloads, tell: Callable[[Offloaded, float | None], None]) -> None:
        super().__init__()
        self._offloads, self._tell = offloads, tell
        self._waiting: dict[Hashable, tuple[bytes, float | None]] = {}  # the first is being asked
        self._take_back: Callable[[], None] | None = None
        self._pausing: set[Hashable] = set()

    @property
    def full(self) -> bool:
        return bool(self._pausing)

    def add(self, handle: Hashable, question: bytes, asked_at: float | None, *, pause: bool = False) -> None:
        """Have it answered when those before it are, or say at once that too many wait. handle: one that is
        not among those. pause: as `Offload` has it."""
        if len(self._waiting) >= MOST_OF_ONE:
            self._tell(Offloaded(handle, Unanswered.BUSY), asked_at)
            return
        self._waiting[handle] = question, asked_at
        if pause:
            self._pausing.add(handle)
        self._go_on()

    def drop(self, handle: Hashable) -> bool:
        """Give it up. Returns whether it was there. What the process is at goes on, and its seconds are
        charged: else a client could have it read the dearest queries, one after the other, and bear
        nothing."""
        if handle not in self._waiting:
            return False
        self._answered(handle)
        question, _ = self._waiting[handle]
        if handle == next(iter(self._waiting)):
            if self._offloads.is_at(question):
                del self._waiting[handle]
                self._waiting = {None: (question, None), **self._waiting}
                return True
            self._let_go()
        del self._waiting[handle]
        self._go_on()
        return True

    def clear(self) -> None:
        """Give up all."""
        self._waiting.clear()
        self._let_go()
        self._pausing.clear()
        self.make_room()

    def _answered(self, handle: Hashable) -> None:
        self._pausing.discard(handle)
        self.make_room()

    def _let_go(self) -> None:
        if self._take_back is not None:
            self._take_back()
            self._take_back = None

    def _go_on(self) -> None:
        while self._waiting and self._take_back is None:
            question, _ = next(iter(self._waiting.values()))
            known = self._offloads.known(question)
            if known is None:
                self._take_back = self._offloads.ask(question, self._done)
                known = Unanswered.BUSY if self._take_back is None else None
            if known is not None:
                self._settle(question, known, 0.0)

    def _done(self, answer: bytes | Unanswered, seconds: float) -> None:
        self._take_back = None
        question, _ = next(iter(self._waiting.values()))
        self._settle(question, answer, seconds)
        self._go_on()

    def _settle(self, question: bytes, answer: bytes | Unanswered, seconds: float) -> None:
        """Answer all that asked this."""
        for handle, (asked, asked_at) in list(self._waiting.items()):
            if asked == question and self._waiting.pop(handle, None) is not None:
                self._answered(handle)
                self._tell(Offloaded(handle, answer, seconds), asked_at)
                seconds = 0.0
