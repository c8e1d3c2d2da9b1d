"""A gateway of a few lines for clients to talk to: every connection follows the next script."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import msgspec
import trio
from msgspec import UNSET, UnsetType
from trio.testing import memory_stream_pair
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, wrap_server_stream

from kiwi_gw.client.address import Address
from kiwi_gw.dialects.kiwi import messages as kiwi

Script = Callable[["Peer"], Awaitable[None]]


class Peer:
    """The server's end of one connection."""

    def __init__(self, ws: WebSocketConnection, headers: dict[str, str], stream: _Freezing) -> None:
        self.ws = ws
        self.headers = headers
        self._stream = stream

    def freeze(self) -> None:
        """From now on nothing that the client sends is seen, and no ping answered."""
        self._stream.frozen = True

    async def send(self, kind: str, **data: object) -> None:
        await self.ws.send_message(json.dumps({"type": kind, "data": data}))

    async def say(self, message: kiwi.ServerMessage) -> None:
        await self.ws.send_message(msgspec.json.encode(message).decode())

    async def notice(self, notice: kiwi.AnyNotice) -> None:
        await self.say(kiwi.Notice(notice))

    async def count(self, *numbers: int) -> None:
        for number in numbers:
            await self.send("RESULT", sourceId="s", sourceType="counter", count=number)

    async def command(self) -> dict[str, object]:
        message: dict[str, object] = json.loads(await self.ws.get_message())
        return message

    async def records(self, partition: int, *offsets: int) -> None:
        for offset in offsets:
            await self.send(
                "RESULT", sourceId="s", sourceType="kafka", value="v", partition=partition, offset=offset
            )

    async def subscribed(self, positions: kiwi.Positions | UnsetType = UNSET) -> dict[str, object]:
        """Take a SUBSCRIBE and accept it."""
        command = await self.command()
        assert command["type"] == "SUBSCRIBE"
        await self.say(kiwi.SubscribeOk(kiwi.Subscribed(str(command["sourceId"]), positions=positions)))
        return command

    async def refused(self, error: str) -> dict[str, object]:
        """Take a SUBSCRIBE and refuse it."""
        command = await self.command()
        await self.say(kiwi.SubscribeError(kiwi.Refused(str(command["sourceId"]), error)))
        return command

    async def credit(self) -> int:
        """Take a REQUEST and accept it."""
        command = msgspec.json.decode(await self.ws.get_message(), type=kiwi.Request)
        await self.say(kiwi.RequestOk(kiwi.Granted(command.source_id, command.n)))
        return command.n

    async def until_gone(self) -> None:
        """Read until the client closes."""
        with suppress(ConnectionClosed):
            while True:
                await self.ws.get_message()


async def one_event(peer: Peer) -> None:
    """Take a SUBSCRIBE, send an event, and read until the client closes."""
    await peer.subscribed()
    await peer.count(1)
    await peer.until_gone()


class _Freezing(trio.abc.Stream):
    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self.frozen = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data = await self._stream.receive_some(max_bytes)
        if self.frozen:
            await trio.sleep_forever()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


class ScriptedGateway:
    """Serves connections in memory; `dial` is given to the client. Remembers when each was dialled."""

    def __init__(self, nursery: trio.Nursery, scripts: Sequence[Script | Exception | bytes]) -> None:
        self._nursery = nursery
        self._scripts = list(scripts)
        self.dialled: list[float] = []

    async def dial(self, address: Address) -> trio.abc.Stream:
        self.dialled.append(trio.current_time())
        script = self._scripts.pop(0)
        if isinstance(script, Exception):
            raise script
        client, server = memory_stream_pair()
        if isinstance(script, bytes):
            self._nursery.start_soon(_answer, server, script)
        else:
            self._nursery.start_soon(serve, server, script)
        return client


async def _answer(stream: trio.abc.Stream, answer: bytes) -> None:
    await stream.receive_some()
    if answer:
        await stream.send_all(answer)
    await stream.aclose()


async def serve(stream: trio.abc.Stream, script: Script) -> None:
    """One WebSocket connection that follows a script and closes at its end (1000, unless it closed it)."""
    gate = _Freezing(stream)
    async with gate, trio.open_nursery() as nursery:
        request: WebSocketRequest = await wrap_server_stream(nursery, gate)
        headers = {name.decode().lower(): value.decode() for name, value in request.headers}
        ws = await request.accept()
        with suppress(ConnectionClosed):
            await script(Peer(ws, headers, gate))
        await ws.aclose()
        nursery.cancel_scope.cancel()
