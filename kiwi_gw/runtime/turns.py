"""What one connection has left to do of what its client has asked for, when it is its turn
(`core.commands.Continue`)."""

from __future__ import annotations

from collections.abc import Callable

import trio

from kiwi_gw.core.commands import Continue
from kiwi_gw.core.notices import Continued
from kiwi_gw.runtime.ports import ConnectionWriter, GatewayContext

_AGAIN_SECONDS = 0.25
"""Until it is looked again whether the client takes what waits for it."""


class Turns:
    """tell: has the session go on. Nothing is told behind `clear`."""

    __slots__ = ("_context", "_over", "_room", "_tell", "_writer")

    def __init__(
        self, context: GatewayContext, writer: ConnectionWriter, tell: Callable[[Continued], None]
    ) -> None:
        self._context, self._writer, self._tell = context, writer, tell
        self._room: trio.Event | None = None  # there while the client is not to be read
        self._over = False

    @property
    def full(self) -> bool:
        """Whether the client is not to be read."""
        return self._room is not None

    async def wait_room(self) -> None:
        """Return when the client may be read."""
        while self._room is not None:
            await self._room.wait()

    def add(self, command: Continue) -> None:
        """Have the session go on later."""
        if command.pause and self._room is None:
            self._room = trio.Event()
        self._context.continue_later(command.seconds, self._continue)

    def clear(self) -> None:
        """Give up all of them."""
        self._over = True
        self._make_room()

    # --- inside ----------------------------------------------------------------------------

    def _continue(self, idle: bool) -> None:
        if self._over:
            return
        if self._writer.full:  # what is said to one that does not read piles up
            self._context.later(_AGAIN_SECONDS, lambda: self._context.continue_later(0, self._continue))
            return
        self._make_room()
        self._tell(Continued(idle))

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None
