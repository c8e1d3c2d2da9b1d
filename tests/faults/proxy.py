"""A TCP proxy that misbehaves as networks do: between the gateway and a broker, or a client and the gateway.

    async with proxy(target_port) as between:
        between.apply(Way(delay=0.5))          # both directions; or to one: between.apply(down=Way(...))
        between.heal()
        between.reset()                        # RST to both ends of every connection

`up` is the direction from the client to the target, `down` the answers. What is applied holds for the open
connections and for those to come.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Literal

import trio

_CHUNKS = 64
_RUN = 4
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of no seconds: close sends RST
_GONE = (trio.BrokenResourceError, trio.ClosedResourceError)


@dataclass(frozen=True, slots=True)
class Way:
    """Say what happens to the bytes of one direction; as it stands: nothing.

    paused: they wait, and go on when healed. swallowed: they are gone, also the news that an end has closed;
    the connection stays dead when healed, as behind a firewall that has forgotten it. delay: seconds, of
    every byte. bytes_per_second: at most. piece: bytes that are sent at a time. corrupt_every: about so many
    bytes apart a bit is turned over; with `corrupt_in`, some bits of the next run of that byte, of 4 or more:
    ids and numbers may have that byte, too.
    """

    paused: bool = False
    swallowed: bool = False
    delay: float = 0.0
    bytes_per_second: float | None = None
    piece: int = 65_536
    corrupt_every: int | None = None
    corrupt_in: bytes = b""


Direction = Literal["up", "down"]
BLACKHOLE = Way(swallowed=True)
PAUSE = Way(paused=True)
_CLEAR = Way()


class _Pipe:
    """Hold one connection: two streams, and whether it has lost bytes for good."""

    def __init__(self, near: trio.SocketStream, far: trio.SocketStream | None) -> None:
        self.near = near
        self.far = far
        self.dead = far is None

    def ends(self) -> list[trio.SocketStream]:
        return [end for end in (self.near, self.far) if end is not None]


class Proxy:
    """Listen on `port` of 127.0.0.1. So far: accepted: connections; passed: bytes by direction; corrupted:
    bits turned over."""

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self.accepted = 0
        self.corrupted = 0
        self.passed: dict[Direction, int] = {"up": 0, "down": 0}
        self._target = target
        self._ways: dict[Direction, Way] = {"up": _CLEAR, "down": _CLEAR}
        self._changed = trio.lowlevel.ParkingLot()
        self._pipes: set[_Pipe] = set()
        self._dice = random.Random(1)
        self._until_corrupt: dict[Direction, int] = {"up": 0, "down": 0}

    @property
    def open(self) -> int:
        """Return the number of connections that are open now."""
        return len(self._pipes)

    def apply(self, both: Way | None = None, *, up: Way | None = None, down: Way | None = None) -> None:
        """Apply this from now on; a direction that is not named stays as it is."""
        for side, way in (("up", up or both), ("down", down or both)):
            if way is not None:
                self._ways[side] = way  # type: ignore[index]  # mypy widens the literals of the tuple
                self._until_corrupt[side] = self._next_corrupt(way)  # type: ignore[index]
        self._changed.unpark_all()

    def heal(self) -> None:
        self.apply(_CLEAR)

    def reset(self) -> None:
        """Send RST to both ends of every connection."""
        for pipe in list(self._pipes):
            for end in pipe.ends():
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.socket.close()

    def half_close(self, side: Direction) -> None:
        """Tell the receiver of this direction that nothing comes any more; the other direction stays."""
        for pipe in list(self._pipes):
            sink = pipe.far if side == "up" else pipe.near
            if sink is not None:
                with suppress(OSError):
                    sink.socket.shutdown(socket.SHUT_WR)

    async def serve(self, near: trio.SocketStream) -> None:
        self.accepted += 1
        far = None
        if not self._ways["up"].swallowed:
            try:
                far = await trio.open_tcp_stream("127.0.0.1", self._target)
            except OSError:  # nothing listens there: nor do we, as the client sees it
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                near.socket.close()
                return
        pipe = _Pipe(near, far)
        self._pipes.add(pipe)
        try:
            async with near, trio.open_nursery() as nursery:
                for end in pipe.ends():
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                nursery.start_soon(self._carry, pipe, "up")
                nursery.start_soon(self._carry, pipe, "down")
        finally:
            self._pipes.discard(pipe)
            for end in pipe.ends():
                end.socket.close()

    async def _carry(self, pipe: _Pipe, side: Direction) -> None:
        """Carry one direction of one connection, until its end."""
        source, sink = (pipe.near, pipe.far) if side == "up" else (pipe.far, pipe.near)
        if source is None:
            return
        put, take = trio.open_memory_channel[tuple[float, bytes]](_CHUNKS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deliver, pipe, side, take, sink)
            with suppress(*_GONE):
                async with put:
                    while data := await source.receive_some(65_536):
                        await put.send((trio.current_time(), data))

    async def _deliver(
        self,
        pipe: _Pipe,
        side: Direction,
        take: trio.MemoryReceiveChannel[tuple[float, bytes]],
        sink: trio.SocketStream | None,
    ) -> None:
        with suppress(*_GONE):
            async with take:
                async for came, data in take:
                    pipe.dead |= self._ways[side].swallowed
                    if not pipe.dead and sink is not None:
                        await self._send(side, came, data, sink)
                while self._ways[side].paused:
                    await self._changed.park()
                if not pipe.dead and not self._ways[side].swallowed and sink is not None:
                    await sink.send_eof()

    async def _send(self, side: Direction, came: float, data: bytes, sink: trio.SocketStream) -> None:
        while data:
            way = self._ways[side]
            if way.paused:
                await self._changed.park()
                continue
            if trio.current_time() < came + way.delay:
                with trio.move_on_at(came + way.delay):
                    await self._changed.park()
                continue
            piece, data = data[: way.piece], data[way.piece :]
            await sink.send_all(self._corrupted(side, piece))
            self.passed[side] += len(piece)
            if way.bytes_per_second is not None:
                with trio.move_on_after(len(piece) / way.bytes_per_second):
                    await self._changed.park()

    def _corrupted(self, side: Direction, data: bytes) -> bytes:
        way = self._ways[side]
        if way.corrupt_every is None:
            return data
        changed = bytearray(data)
        due = self._until_corrupt[side]
        while due < len(changed) and (at := changed.find(way.corrupt_in * _RUN, due)) >= 0:
            self._turn_over(changed, at, way.corrupt_in)
            due = at + self._next_corrupt(way)
        self._until_corrupt[side] = max(0, due - len(changed))
        return bytes(changed)

    def _turn_over(self, data: bytearray, at: int, within: bytes) -> None:
        end = at
        while within and data[end : end + 1] == within:
            end += 1
        # So many in a run that the same damage never comes twice.
        for _ in range(4 if within else 1):
            data[self._dice.randrange(at, max(end, at + 1))] ^= 1 << self._dice.randrange(8)
        self.corrupted += 1

    def _next_corrupt(self, way: Way) -> int:
        return 0 if way.corrupt_every is None else self._dice.randint(1, 2 * way.corrupt_every)


@asynccontextmanager
async def proxy(target: int, port: int = 0) -> AsyncIterator[Proxy]:
    """Open a proxy to `target` on 127.0.0.1, on `port` there (0: a free one). Cuts all off at the end."""
    (listener,) = await trio.open_tcp_listeners(port, host="127.0.0.1")
    one = Proxy(listener.socket.getsockname()[1], target)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, one.serve, [listener])
        yield one
        nursery.cancel_scope.cancel()
