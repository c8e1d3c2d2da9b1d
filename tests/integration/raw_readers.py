"""Many fast readers on plain sockets in one process: `python -m tests.integration.raw_readers`.

Reads a task as JSON from stdin, writes JSON lines to stdout: `{"subscribed": true}` when every reader has
its SUBSCRIBE_OK, `{"progress": n}` as the slowest moves on, `{"recording": {...}}` for each at the end.
Every byte of every frame is looked at. Two cores have 8 million events to read, so what one reader has read
frame by frame is kept as a block of bytes, and a reader that comes to the same place compares its own bytes
with that block: where they are equal they are the same events, where not it reads frame by frame.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import ssl
import sys
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from tests.integration.recording import Reader, Recording, Task
from tests.integration.wire import (
    CLOSE,
    PING,
    PONG,
    TEXT,
    WireError,
    command,
    frame,
    shake_hands_sync,
)

_CHUNK = 256 * 1024
_RESULT = b'{"type":"RESULT",'
_PLACE = re.compile(rb'"partition":(\d+),"offset":(\d+)')
_BLOCK = 64  # events


@dataclass(frozen=True, slots=True)
class Block:
    """The frames of `_BLOCK` events as they followed one another on the wire, and which events they are."""

    data: bytes
    runs: tuple[tuple[int, int, int], ...]
    last: tuple[int, int]


_blocks: dict[tuple[int, int], Block] = {}
"""By the partition and offset of the event before them."""


class Client:
    """One connection, from its handshake on."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.recording = Recording(reader.name)
        self.balance = 0  # asked for and not yet received
        self.done = False
        self.more = False  # there is something to read, whatever the selector says
        self._asked: deque[int] = deque()  # REQUESTs that are not answered yet
        self._granted = 0
        self._before = (-1, -1)  # the event that came last
        self._socket = _connect(reader)
        self._buffer = b""
        self._say("SUBSCRIBE", mode=reader.mode)
        reply = self._await_reply()
        if reply["type"] != "SUBSCRIBE_OK":
            self.recording.faults.append(f"answer to SUBSCRIBE: {reply}")
        self.recording.begins = reply["data"].get("positions", {})
        if reader.mode == "pull":
            self._top_up()
        self._socket.setblocking(False)
        self._buffer = self._take(self._buffer)

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> bool:
        """Take some of what is there; False once the connection is over."""
        parts, size, over = [self._buffer], 0, False
        try:
            # TLS comes in records of 16 KiB: several of them are looked at together.
            while size < _CHUNK and not over:
                parts.append(self._socket.recv(_CHUNK))
                size += len(parts[-1])
                over = not parts[-1]
        except (BlockingIOError, ssl.SSLWantReadError):
            pass  # that is all for now
        if over and not self.done:
            self.recording.faults.append("the server closed the connection")
        if size:
            self.recording.arrived()
            self._buffer = self._take(b"".join(parts))
        # The selector does not see what TLS has read ahead.
        self.more = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
        return not over

    def leave(self) -> None:
        """Say that it was enough; what comes before the UNSUBSCRIBE_OK still counts."""
        if not self.done:
            self.done = True
            if self.recording.closed:
                self._send(frame(CLOSE, b"\x03\xe8"))
            else:
                self._say("UNSUBSCRIBE")

    def close(self) -> None:
        self._socket.close()

    # --- inside ----------------------------------------------------------------------------

    def _take(self, data: bytes) -> bytes:
        """Note every whole frame in `data`; returns the rest."""
        at, end, recording = 0, len(data), self.recording
        block_at, block_after = 0, self._before
        places: list[tuple[int, int]] = []  # of the events since then
        while end - at >= 4:
            block = _blocks.get(self._before)
            if block is not None and data.startswith(block.data, at):
                for run in block.runs:
                    recording.run(*run)
                self._before = block.last
                self._paid(_BLOCK)
                at += len(block.data)
                places.clear()
                continue
            opcode, body, stop = _frame(data, at)
            if stop > end:
                break
            if opcode == TEXT and data.startswith(_RESULT, body):
                found = _PLACE.search(data, data.rfind(b'"partition":', body, stop), stop)
                if found is None:
                    raise WireError(f"event without a place: {data[body:stop]!r}")
                if not places:
                    block_at, block_after = at, self._before
                self._before = place = (int(found[1]), int(found[2]))
                places.append(place)
                recording.run(place[0], place[1], place[1])
                self._paid(1)
                if len(places) == _BLOCK:
                    _blocks.setdefault(block_after, Block(data[block_at:stop], _runs(places), place))
                    places.clear()
            else:
                places.clear()
                self._other(opcode, data[body:stop])
            at = stop
        return data[at:]

    def _paid(self, events: int) -> None:
        if self.reader.mode == "pull":
            self.balance -= events
            if self.balance <= self.reader.credit // 2:
                self._top_up()

    def _other(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:  # nothing came for a while, and will not while a broker is away
            self._send(frame(PONG, payload))
            return
        message: dict[str, Any] = {"type": f"frame {opcode:x} {payload!r}"}
        if opcode == TEXT:
            message = json.loads(payload)
        match message["type"]:
            case "NOTICE":
                self.recording.notice(message["data"])
            case "REQUEST_OK":
                self._answered(message["data"])
            case "UNSUBSCRIBE_OK" if self.done:
                self._send(frame(CLOSE, b"\x03\xe8"))
            case _ if opcode == CLOSE and self.done:
                return
            case other:
                self.recording.faults.append(f"unexpected: {other} {message.get('data')}")

    def _answered(self, data: dict[str, Any]) -> None:
        """A REQUEST_OK comes behind the events that were sent before it, so its balance is known exactly."""
        n = self._asked.popleft()
        self._granted += n
        if data["n"] != n or data["credits"] != self._granted - self.recording.events:
            self.recording.faults.append(
                f"asked for {n}, {self._granted} in all, got {self.recording.events}, and was told {data}"
            )

    def _top_up(self) -> None:
        if self.balance < 0:
            self.recording.faults.append(f"{-self.balance} more events than were asked for")
        if not self.done:
            n = self.reader.credit - self.balance
            self.balance += n
            self._asked.append(n)
            self._say("REQUEST", n=n)

    def _say(self, kind: str, **more: object) -> None:
        self._send(command(kind, self.reader.source, **more))

    def _send(self, data: bytes) -> None:
        # A few bytes now and then: the socket's own buffer always has room for them.
        self._socket.sendall(data)

    def _await_reply(self) -> dict[str, Any]:
        data = bytearray()
        while True:
            data += self._socket.recv(4096)
            if len(data) >= 4:
                size, body = (data[1], 2) if data[1] < 126 else (int.from_bytes(data[2:4], "big"), 4)
                if len(data) >= body + size:
                    self._buffer = bytes(data[body + size :])
                    reply: dict[str, Any] = json.loads(data[body : body + size])
                    return reply


def _frame(data: bytes, at: int) -> tuple[int, int, int]:
    """Opcode, and where the payload of the frame at `at` begins and ends."""
    size, body = data[at + 1], at + 2
    if data[at] & 0xF0 != 0x80 or size > 127:
        raise WireError(f"a frame begins with {data[at : at + 2].hex()}")
    if size >= 126:
        width = 2 if size == 126 else 8
        size = int.from_bytes(data[body : body + width], "big")
        body += width
    return data[at] & 0x0F, body, body + size


def _runs(places: list[tuple[int, int]]) -> tuple[tuple[int, int, int], ...]:
    recording = Recording("")
    for partition, offset in places:
        recording.run(partition, offset, offset)
    return tuple(tuple(item[1:]) for item in recording.items)


def _connect(reader: Reader) -> socket.socket:
    if reader.address.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(reader.address.removeprefix("unix:"))
    else:
        host, _, port = reader.address.rpartition(":")
        connection = socket.create_connection((host, int(port)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(20)
    if reader.ca is not None:
        context = ssl.create_default_context(cafile=reader.ca)
        connection = context.wrap_socket(connection, server_hostname="localhost")
    shake_hands_sync(connection)
    return connection


def _tell(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)


def main() -> None:
    given = json.loads(sys.stdin.readline())
    task = Task([Reader(**reader) for reader in given["readers"]], given["total"], given["step"])
    clients = [Client(reader) for reader in task.readers]
    _tell({"subscribed": True})
    reported, reading = 0, set(clients)
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client, selectors.EVENT_READ)
        while reading:
            ready = {key.fileobj for key, _ in selector.select(0 if any(x.more for x in reading) else None)}
            for one in ready | {x for x in reading if x.more}:
                assert isinstance(one, Client)
                over = not one.read()
                if one.recording.has(task.total):
                    one.leave()
                if over:
                    selector.unregister(one)
                    one.close()
                    reading.discard(one)
            least = min(client.recording.events + client.recording.missed for client in clients)
            if least >= reported + task.step:
                reported = least
                _tell({"progress": least})
    for client in clients:
        _tell({"recording": asdict(client.recording)})


if __name__ == "__main__":
    main()
