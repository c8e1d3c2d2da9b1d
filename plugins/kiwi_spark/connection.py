"""One connection of the driver or of a reader in Spark: messages on a Unix socket."""

from __future__ import annotations

from collections import deque

import trio

from kiwi_spark.frames import FrameReader, Frames, Message
from kiwi_spark.wire import FRAMES

_READ = 256 * 1024


class Connection:
    """Messages in both directions. Each direction is for one task at a time. frames: of which protocol."""

    def __init__(self, stream: trio.SocketStream, frames: Frames = FRAMES) -> None:
        self._stream = stream
        self._frames = frames
        self._reader = FrameReader(frames)
        self._waiting: deque[Message] = deque()
        self._closed = trio.Event()

    async def receive(self) -> Message | None:
        """The next message; None when there will be no more. WireError for what is none."""
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
        """Whether they could be sent; if not, nothing more will come either."""
        try:
            await self._stream.send_all(b"".join(map(self._frames.encode, messages)))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        return True

    def close(self) -> None:
        """Whoever waits in `receive` gets None."""
        self._closed.set()
        self._stream.socket.close()

    async def wait_closed(self) -> None:
        """Until `close`."""
        await self._closed.wait()
