"""Producers over HTTP: connections that are kept, each with one request on its way at a time.

Settings: host, port, topic, connections, messages (of each request), size (bytes of each value), warm and
seconds (how long they produce before that counts, and then). Says `ready`; on a word they begin, and it says
`delays` of requests (percentiles, ms), `published` and `seconds` of what counts, `total` with the rest, `cpu`
(our own), `faults`: every message has a place, and no two the same.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from dataclasses import dataclass, field

import msgspec

from benchmarks import records
from benchmarks.latency import Delays
from benchmarks.workers import child
from benchmarks.workers.rest_readers import response_of

_RECEIVE_BYTES = 256 * 1024


class _Place(msgspec.Struct):
    partition: int | None
    messageId: str | None  # noqa: N815  (the protocol's name)


class _Answer(msgspec.Struct):
    messageIds: list[_Place]  # noqa: N815


_read = msgspec.json.Decoder(_Answer).decode


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    sent: int = 0
    received: bytearray = field(default_factory=bytearray)


def main() -> None:
    settings = child.settings()
    request = _request(settings["topic"], settings["messages"], settings["size"])
    address = settings["host"], settings["port"]
    waiting = selectors.DefaultSelector()
    connections = [_Connection(socket.create_connection(address)) for _ in range(settings["connections"])]
    for connection in connections:
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        waiting.register(connection.socket, selectors.EVENT_READ, connection)
    child.say(ready=True)
    child.wait_word()
    begun, cpu = time.monotonic(), time.process_time()
    counts_from = begun + settings["warm"]
    until = counts_from + settings["seconds"]
    delays, published, failed, bodies = Delays(), 0, 0, []

    def send(connection: _Connection) -> None:
        connection.sent = time.monotonic_ns()
        connection.socket.sendall(request)

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
            failed += status != 200
            bodies.append(body)
            if counts_from <= now < until:
                published += settings["messages"]
                delays.add(time.monotonic_ns(), [connection.sent])
            if now < until:
                send(connection)
            else:
                left -= 1
    used = time.process_time() - cpu
    child.say(
        delays=delays.said(),
        published=published,
        seconds=settings["seconds"],
        total=len(bodies) * settings["messages"],
        cpu=round(used, 2),
        faults=_faults(bodies, failed),
    )
    child.wait_word()


def _request(topic: str, messages: int, size: int) -> bytes:
    value = records.value(0, size).decode()
    said = [{"key": f"{n}", "value": value} for n in range(messages)]
    body = json.dumps({"schema_type": "string", "messages": said}).encode()
    head = (
        f"POST /topics/public/default/{topic} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _faults(bodies: list[bytes], failed: int) -> list[str]:
    if failed:
        return [f"{failed} requests failed"]
    places = [(place.partition, place.messageId) for body in bodies for place in _read(body).messageIds]
    if (None, None) in places:
        return ["messages were not written"]
    return [] if len(set(places)) == len(places) else ["two messages have one place"]


if __name__ == "__main__":
    main()
