"""The two strangers that a subscription works with: who serves it, and who is told about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kiwi_gw.core.notices import Notice

if TYPE_CHECKING:
    from kiwi_gw.core.subscription import Subscription


class Outlet(Protocol):
    """The sending half of whoever serves a subscription.

    clear: nothing is waiting to be written before the next event.
    """

    clear: bool

    def send(self, data: memoryview | bytes) -> int:
        """How many bytes were taken, 0 if none can be. Called only while `clear`; never blocks."""

    def keep(self, tail: bytes) -> None:
        """The rest of the frame that was cut: to be written before anything else. Ends `clear`."""

    def wake(self, subscription: Subscription) -> None:
        """It has something to be read, or a notice due. May read it at once, but not from within a call
        of `settle` (which may cause this): the frame that was cut goes first."""


class Owner(Protocol):
    """Whoever is told what happens to a subscription."""

    def notify(self, subscription: Subscription, notice: Notice) -> None:
        """Called in order: behind every event that was sent before it happened."""
