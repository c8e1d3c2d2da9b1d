"""The two strangers that a subscription works with: what serves it, and who gets its notices.

They are generic over the subscription, so that this lies below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from kiwi_gw.core.notices import Notice

S = TypeVar("S", contravariant=True)


class FrameWriter(Protocol[S]):
    """The sending half of what serves a subscription.

    writable: nothing is waiting to be written before the next event. awaits_turn: what was marked as ready is
    read when those had their turn who came before.
    """

    writable: bool
    awaits_turn: bool

    def send(self, data: memoryview | bytes) -> int:
        """Send, and return how many bytes were taken, 0 if none can be. Called only while `writable`; never
        blocks."""

    def send_many(self, parts: Sequence[memoryview | bytes]) -> int:
        """Send one behind the other, as `send` does."""

    def hold_remainder(self, rest: bytes) -> None:
        """Write the rest of the frame that was cut before anything else. Ends `writable`."""

    def mark_ready(self, subscription: S) -> None:
        """Note that it has something to be read, or a notice due. May read it at once."""


class Owner(Protocol[S]):
    """Gets the notices of a subscription."""

    def notify(self, subscription: S, notice: Notice) -> None:
        """Take what happened, in order: behind every event that was sent before."""


class _Silence:
    def notify(self, subscription: object, notice: Notice) -> None:
        pass


SILENCE: Final = _Silence()
"""The owner of a subscription that its client has cancelled: nothing follows that."""
