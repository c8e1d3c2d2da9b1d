"""Have a connection go on, when it is its turn, with what is left of what its client has asked for
(`core.commands.Continue`)."""

from __future__ import annotations

from collections.abc import Callable

from kiwi_gw.core.commands import Continue
from kiwi_gw.core.notices import Continued
from kiwi_gw.runtime.ports import ConnectionWriter, GatewayContext
from kiwi_gw.runtime.read_gate import ReadGate

_AGAIN_SECONDS = 0.25
"""Until it is looked again whether the client takes what waits for it."""


class Turns(ReadGate):
    """tell: has the session go on. Nothing is told behind `clear`."""

    __slots__ = ("_context", "_over", "_paused", "_tell", "_writer")

    def __init__(
        self, context: GatewayContext, writer: ConnectionWriter, tell: Callable[[Continued], None]
    ) -> None:
        super().__init__()
        self._context, self._writer, self._tell = context, writer, tell
        self._paused = self._over = False

    @property
    def full(self) -> bool:
        return self._paused

    def add(self, command: Continue) -> None:
        """Have the session go on later."""
        self._paused = self._paused or command.pause
        self._context.continue_later(command.seconds, self._continue)

    def clear(self) -> None:
        """Give up all of them."""
        self._over, self._paused = True, False
        self.make_room()

    # --- inside ----------------------------------------------------------------------------

    def _continue(self, idle: bool) -> None:
        if self._over:
            return
        if self._writer.full:  # what is said to one that does not read piles up
            self._context.later(_AGAIN_SECONDS, lambda: self._context.continue_later(0, self._continue))
            return
        self._paused = False
        self._tell(Continued(idle))
        self.make_room()
