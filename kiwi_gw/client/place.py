"""Where a client is in a source, so that it can go on there after a reconnect, on this gateway or another."""

from __future__ import annotations

from kiwi_gw.client.messages import Data


class Place:
    """The positions behind the last event that was received.

    They are the gateway's own words (in SUBSCRIBE_OK, LAG, POSITIONS, SUBSCRIPTION_CLOSED), which only it
    understands; events that say their partition and offset, as those of Kafka do, move them on.
    """

    def __init__(self) -> None:
        self._positions: dict[str, object] | None = None
        self._since = 0

    @property
    def positions(self) -> dict[str, object] | None:
        """None: unknown, so nothing can be resumed."""
        return None if self._positions is None else dict(self._positions)

    @property
    def since(self) -> int:
        """How many events after them have been received: resuming brings those again."""
        return self._since

    def told(self, data: Data) -> None:
        """The gateway's message says where the subscription is."""
        positions = data.get("positions")
        if isinstance(positions, dict):
            self._positions = dict(positions)
            self._since = 0

    def received(self, data: Data) -> None:
        """An event was dealt with."""
        if self._positions is None:
            return
        partition, offset = data.get("partition"), data.get("offset")
        if type(partition) is not int or type(offset) is not int:
            self._since += 1
            return
        before = self._positions.get(str(partition), 0)
        # Of a snapshot some events are older than the place where it goes on.
        if isinstance(before, int) and offset >= before:
            self._positions[str(partition)] = offset + 1

    def forget(self) -> None:
        """What was known means nothing to the gateway."""
        self._positions = None
        self._since = 0
