"""One connection of the driver: messages on a Unix socket."""

from __future__ import annotations

from collections import deque

import trio

from kiwi_spark.protocol.messages import Message, MessageReader, frame_of

_READ = 256 * 1024


class MessageConnection:
    """Messages in both directions, each for one task at a time."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._reader = MessageReader()
        self._waiting: deque[Message] = deque()
        self._closed = trio.Event()

    async def receive(self) -> Message | None:
        """Return the next message; None when there will be no more. WireError: that was none."""
        while not self._waiting:
            try:
                data = await self._stream.receive_some(_READ)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return None
            if not data:
                return None
            self._waiting.extend(self._reader.feed(data))
        await trio.lowlevel.checkpoint_if_cancelled()
        return self._waiting.popleft()

    async def send(self, *messages: Message) -> bool:
        """Send. Returns whether they could be sent; if not, nothing more will come either."""
        try:
            await self._stream.send_all(b"".join(map(frame_of, messages)))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        return True

    def close(self) -> None:
        """Close it; a task that waits in `receive` gets None."""
        self._closed.set()
        self._stream.socket.close()

    async def wait_closed(self) -> None:
        """Wait for `close`."""
        await self._closed.wait()
