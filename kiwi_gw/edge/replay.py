"""A stream that gives its reader bytes which were already read from the connection."""

from __future__ import annotations

from collections.abc import Callable

import trio


class ReplayStream(trio.abc.Stream):
    """First the head, then, once something was sent, the surplus and the connection itself.

    A WebSocket library forgets what it is given between the request and its own 101 response. A client
    may legally send its first frames that early, so everything behind the head is held back until the
    first `send_all` is over.

    observe: called with every piece of bytes behind the head, just before the reader gets it; what it
    raises comes out of `receive_some`.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        head: bytes,
        surplus: bytes = b"",
        observe: Callable[[bytes | bytearray], None] | None = None,
    ) -> None:
        self._stream = stream
        self._head = head
        self._surplus = surplus
        self._observe = observe
        self._answered = trio.Event()
        self._closed = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data: bytes | bytearray
        if self._head:
            await trio.lowlevel.checkpoint()
            data, self._head = _cut(self._head, max_bytes)
            return data
        if not self._answered.is_set():
            await self._answered.wait()
        if self._closed:
            raise trio.ClosedResourceError
        if self._surplus:
            await trio.lowlevel.checkpoint()
            data, self._surplus = _cut(self._surplus, max_bytes)
        else:
            data = await self._stream.receive_some(max_bytes)
        if self._observe is not None and data:
            self._observe(data)
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        try:
            await self._stream.send_all(data)
        finally:
            self._answered.set()

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        self._closed = True
        self._answered.set()
        await self._stream.aclose()


def _cut(data: bytes, max_bytes: int | None) -> tuple[bytes, bytes]:
    return (data, b"") if max_bytes is None else (data[:max_bytes], data[max_bytes:])
