"""Hold back a client that has too much on its way: the reader of its socket waits for room."""

from __future__ import annotations

from abc import ABC, abstractmethod

import trio


class ReadGate(ABC):
    """Base of what one connection has on its way, within a bound. Who makes it less calls `make_room`."""

    __slots__ = ("_room",)

    def __init__(self) -> None:
        self._room: trio.Event | None = None  # made for clients that have to wait

    @property
    @abstractmethod
    def full(self) -> bool:
        """Return whether the client is not to be read."""

    async def wait_room(self) -> None:
        """Return when the client may be read."""
        while self.full:
            if self._room is None:
                self._room = trio.Event()
            await self._room.wait()

    def make_room(self) -> None:
        """Let the client be read, if it may."""
        if self._room is not None and not self.full:
            self._room.set()
            self._room = None
