"""Consumers of one subscription over HTTP: each fetches and acknowledges, one request on its way at a time,
until everything is acknowledged.

Settings: host, port, topic, consumers, messages (of each fetch), records (that there are), warm (how many of
them do not count). Says `ready` when the consumers are made; on a word they begin, and it says `delays` of
fetches (percentiles, ms), `consumed` and `seconds` of what counts, `total`, `cpu` (our own), `faults`: every
message comes once, and is acknowledged.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from dataclasses import dataclass, field

import msgspec

from benchmarks.latency import Delays
from benchmarks.workers import child
from benchmarks.workers.rest_readers import response_of

_RECEIVE_BYTES = 256 * 1024


class _Message(msgspec.Struct):
    messageId: str  # noqa: N815  (the protocol's name)


class _Answer(msgspec.Struct):
    messages: list[_Message]


_read = msgspec.json.Decoder(_Answer).decode


@dataclass(slots=True)
class _Consumer:
    socket: socket.socket
    fetch: bytes
    sent: int = 0
    ids: list[str] = field(default_factory=list)
    received: bytearray = field(default_factory=bytearray)

    def ask(self, request: bytes) -> None:
        self.sent = time.monotonic_ns()
        self.socket.sendall(request)


def main() -> None:
    settings = child.settings()
    path = f"/topics/public/default/{settings['topic']}/subscription/s"
    address = settings["host"], settings["port"]
    waiting = selectors.DefaultSelector()
    consumers = []
    for _ in range(settings["consumers"]):
        sock = socket.create_connection(address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(_post(path, {"start": "earliest"}))
        made = bytearray()
        while (answer := response_of(made)) is None:
            made += sock.recv(_RECEIVE_BYTES)
        where = f"{path}/consumer/{json.loads(answer[1])['id']}/messages?max_messages={settings['messages']}"
        consumers.append(_Consumer(sock, f"GET {where} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()))
        waiting.register(sock, selectors.EVENT_READ, consumers[-1])
    child.say(ready=True)
    child.wait_word()
    cpu, delays, seen, done = time.process_time(), Delays(), set[str](), 0
    began, counted_from, faults = time.monotonic(), 0, list[str]()
    for consumer in consumers:
        consumer.ask(consumer.fetch)
    while done < settings["records"] and not faults:
        for key, _ in waiting.select():
            consumer = key.data
            consumer.received += consumer.socket.recv(_RECEIVE_BYTES)
            if (answer := response_of(consumer.received)) is None:
                continue
            status, body = answer
            if status != 200:
                faults.append(f"{status}: {body[:200]!r}")
                break
            if not consumer.ids:
                delays.add(time.monotonic_ns(), [consumer.sent])
                consumer.ids = [message.messageId for message in _read(body).messages]
                if seen.intersection(consumer.ids):
                    faults.append("a message came twice")
                seen.update(consumer.ids)
                acknowledged = {"type": "individual", "messageIds": consumer.ids}
                consumer.ask(_post(path + "/cursor", acknowledged) if consumer.ids else consumer.fetch)
                continue
            done += len(consumer.ids)
            consumer.ids = []
            if done >= settings["warm"] and not counted_from:
                began, counted_from = time.monotonic(), done
            consumer.ask(consumer.fetch)
    child.say(
        delays=delays.said(),
        consumed=done - counted_from,
        seconds=time.monotonic() - began,
        total=done,
        cpu=round(time.process_time() - cpu, 2),
        faults=faults[:3],
    )
    child.wait_word()


def _post(path: str, body: object) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


if __name__ == "__main__":
    main()
