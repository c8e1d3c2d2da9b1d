"""Where a client is in a source, so that it can go on there after a reconnect, on this gateway or another."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UnsetType

from kiwi_gw.client.messages import Data


class ResumePoint:
    """Hold where to go on: the positions behind the last event that was received.

    The gateway sends them (in SUBSCRIBE_OK, LAG, POSITIONS and SUBSCRIPTION_CLOSED), and only it understands
    them. Events with a partition and an offset, such as those of Kafka, move them on; with a row besides they
    are one of those that the record at that offset has become (Spark in real time).
    """

    def __init__(self) -> None:
        self._positions: dict[str, object] | None = None
        self._since = 0

    @property
    def positions(self) -> dict[str, object] | None:
        """Return the positions; None: unknown, so nothing can be resumed."""
        return None if self._positions is None else dict(self._positions)

    @property
    def since(self) -> int:
        """Return how many events after them have been received: resuming brings those again."""
        return self._since

    def update(self, positions: Mapping[str, object] | UnsetType) -> None:
        """Take the positions of a message of the gateway, if it has any."""
        if not isinstance(positions, UnsetType):
            self._positions = dict(positions)
            self._since = 0

    def received(self, data: Data) -> None:
        """Count an event that was dealt with."""
        if self._positions is None:
            return
        partition, offset, row = data.get("partition"), data.get("offset"), data.get("row")
        if type(partition) not in (int, str) or type(offset) is not int:
            self._since += 1
            return
        before = self._positions.get(str(partition), 0)
        # Of a snapshot some events are older than the place where it goes on.
        place = before if isinstance(before, list) else [before, 0]
        if type(place[0]) is int and [offset, row or 0] >= place:
            self._positions[str(partition)] = offset + 1 if row is None else [offset, row + 1]

    def forget(self) -> None:
        """Forget positions that mean nothing to the gateway."""
        self._positions = None
        self._since = 0
