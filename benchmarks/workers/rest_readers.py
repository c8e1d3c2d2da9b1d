"""Readers over HTTP: connections that are kept, each reads one partition from its beginning to its end, again
and again, with one request on its way at a time.

Settings: host, port, topic, partitions, readers (of each partition), records (of the topic, as `records` has
them), messages (of each request), warm and seconds (how long they read before that counts, and then). Says
`ready`; on a word they begin, and it says `delays` of requests (percentiles, ms), `read` and `seconds` of
what counts, `total` with the rest, `cpu` (our own), `faults`: every record comes once in each pass, in order.
"""

from __future__ import annotations

import selectors
import socket
import time
from dataclasses import dataclass, field

import msgspec

from benchmarks import records
from benchmarks.latency import Delays
from benchmarks.workers import child

_RECEIVE_BYTES = 256 * 1024
_LAST_CHUNK = b"0\r\n\r\n"


class _Value(msgspec.Struct):
    n: int


class _Message(msgspec.Struct):
    value: _Value


class _Answer(msgspec.Struct):
    messages: list[_Message]
    next: str


_read = msgspec.json.Decoder(_Answer).decode


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    partition: int
    place: str = "earliest"
    had: int = 0
    sent: int = 0
    received: bytearray = field(default_factory=bytearray)


def response_of(received: bytearray) -> tuple[int, bytes] | None:
    """Take status and body of a response out of what was received, when it is there whole."""
    end = received.find(b"\r\n\r\n") + 4
    if end < 4:
        return None
    head = bytes(received[:end])
    if b"chunked" in head:
        if not received.endswith(_LAST_CHUNK):
            return None
        body = _joined(received, end)
    else:
        size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(received) < end + size:
            return None
        body = bytes(received[end:])
    received.clear()
    return int(head.split()[1]), body


def _joined(data: bytearray, at: int) -> bytes:
    """Join the chunks of a body."""
    found = []
    while size := int(data[at : (end := data.index(b"\r\n", at))], 16):
        found.append(data[end + 2 : end + 2 + size])
        at = end + 4 + size
    return b"".join(found)


def main() -> None:
    settings = child.settings()
    partitions = settings["partitions"]
    waiting = selectors.DefaultSelector()
    connections = []
    for number in range(partitions * settings["readers"]):
        sock = socket.create_connection((settings["host"], settings["port"]))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections.append(_Connection(sock, number % partitions))
        waiting.register(sock, selectors.EVENT_READ, connections[-1])
    expected = [records.numbers(p, partitions, 0, settings["records"]) for p in range(partitions)]
    child.say(ready=True)
    child.wait_word()
    begun, cpu = time.monotonic(), time.process_time()
    counts_from = begun + settings["warm"]
    until = counts_from + settings["seconds"]
    delays, read, total, faults = Delays(), 0, 0, []

    def send(connection: _Connection) -> None:
        connection.sent = time.monotonic_ns()
        path = f"/topics/public/default/{settings['topic']}/partitions/{connection.partition}/messages"
        query = f"from={connection.place}&max_messages={settings['messages']}".replace("+", "%2B")
        connection.socket.sendall(f"GET {path}?{query} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())

    for connection in connections:
        send(connection)
    left = len(connections)
    while left:
        for key, _ in waiting.select():
            connection = key.data
            data = connection.socket.recv(_RECEIVE_BYTES)
            if not data:
                raise SystemExit("the server has closed a connection")
            connection.received += data
            if (answer := response_of(connection.received)) is None:
                continue
            now, (status, body) = time.monotonic(), answer
            if status != 200:
                raise SystemExit(f"the server has answered {status}: {body[:200]!r}")
            found = _read(body)
            numbers = [message.value.n for message in found.messages]
            wanted, had = expected[connection.partition], connection.had
            if numbers != list(wanted[had : had + len(numbers)]) or not numbers:
                faults.append(f"partition {connection.partition}: {numbers[:3]} behind {had} records")
            connection.had, connection.place = had + len(numbers), found.next
            if connection.had >= len(wanted):
                connection.had, connection.place = 0, "earliest"
            total += len(numbers)
            if counts_from <= now < until:
                read += len(numbers)
                delays.add(time.monotonic_ns(), [connection.sent])
            if now < until and not faults:
                send(connection)
            else:
                left -= 1
    used = time.process_time() - cpu
    child.say(
        delays=delays.said(),
        read=read,
        seconds=settings["seconds"],
        total=total,
        cpu=round(used, 2),
        faults=faults[:3],
    )
    child.wait_word()


if __name__ == "__main__":
    main()
