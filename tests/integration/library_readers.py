"""Readers on the `websockets` library in one process: `python -m tests.integration.library_readers`.

The same task and the same output as `raw_readers`. Slower, but every message goes through an independent
WebSocket implementation and a JSON parser, and every member of an event is checked.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from websockets.asyncio.client import ClientConnection, connect, unix_connect

from tests.integration.recording import Reader, Recording, Task

_PARTITIONS = 4


class Client:
    def __init__(self, reader: Reader, total: int, subscribed: Callable[[], None]) -> None:
        self.recording = Recording(reader.name)
        self._reader = reader
        self._total = total
        self._subscribed = subscribed
        self._balance = 0

    async def run(self) -> None:
        reader, recording = self._reader, self.recording
        async with _connection(reader) as socket:
            await self._say(socket, "SUBSCRIBE", mode=reader.mode)
            reply = json.loads(await socket.recv())
            if reply["type"] != "SUBSCRIBE_OK":
                recording.faults.append(f"answer to SUBSCRIBE: {reply}")
            recording.begins = reply["data"].get("positions", {})
            self._subscribed()
            await self._top_up(socket)
            done = False
            async for text in socket:
                message = json.loads(text)
                kind, data = message["type"], message["data"]
                if kind == "RESULT":
                    recording.arrived()
                    self._event(data)
                    await self._top_up(socket)
                elif kind == "NOTICE":
                    recording.notice(data)
                elif kind == "UNSUBSCRIBE_OK" and done:
                    return
                elif kind != "REQUEST_OK":
                    recording.faults.append(f"unexpected: {message}")
                if not done and recording.has(self._total):
                    done = True
                    await self._say(socket, "UNSUBSCRIBE")

    def _event(self, data: dict[str, Any]) -> None:
        partition, offset, value = data["partition"], data["offset"], data["value"]
        self.recording.run(partition, offset, offset)
        self._balance -= 1
        expected = {
            "sourceId": self._reader.source,
            "sourceType": "kafka",
            "key": str(partition),
            "value": value,
            "payload": base64.b64encode(value.encode()).decode(),
            "partition": partition,
            "offset": offset,
            "timestamp": data["timestamp"],
        }
        if data != expected or not isinstance(data["timestamp"], int):
            self.recording.faults.append(f"event {data}")
        if int(value[:12]) != offset * _PARTITIONS + partition:
            self.recording.faults.append(f"event {data['value'][:12]} at {partition}/{offset}")

    async def _top_up(self, socket: ClientConnection) -> None:
        credit = self._reader.credit
        if self._reader.mode == "pull":
            if self._balance < 0:
                self.recording.faults.append(f"{-self._balance} more events than were asked for")
            if self._balance <= credit // 2:
                await self._say(socket, "REQUEST", n=credit - self._balance)
                self._balance = credit

    async def _say(self, socket: ClientConnection, kind: str, **more: object) -> None:
        await socket.send(json.dumps({"type": kind, "sourceId": self._reader.source, **more}))


def _connection(reader: Reader) -> connect:
    if reader.address.startswith("unix:"):
        return unix_connect(reader.address.removeprefix("unix:"), "ws://localhost/", compression=None)
    if reader.ca is not None:
        context = ssl.create_default_context(cafile=reader.ca)
        url = f"wss://localhost:{reader.address.rpartition(':')[2]}/"
        return connect(url, ssl=context, compression=None, host="127.0.0.1")
    return connect(f"ws://{reader.address}/", compression=None)


async def _report(clients: list[Client], step: int) -> None:
    reported = 0
    while True:
        least = min(client.recording.events + client.recording.missed for client in clients)
        if least >= reported + step:
            reported = least
            _tell({"progress": least})
        await asyncio.sleep(0.02)


def _tell(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)


async def main() -> None:
    given = json.loads(sys.stdin.readline())
    task = Task([Reader(**reader) for reader in given["readers"]], given["total"], given["step"])
    waiting = len(task.readers)

    def subscribed() -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            _tell({"subscribed": True})

    clients = [Client(reader, task.total, subscribed) for reader in task.readers]
    async with asyncio.TaskGroup() as group:
        reporting = group.create_task(_report(clients, task.step))
        async with asyncio.TaskGroup() as reading:
            for client in clients:
                reading.create_task(client.run())
        reporting.cancel()
    for client in clients:
        _tell({"recording": asdict(client.recording)})


if __name__ == "__main__":
    asyncio.run(main())
