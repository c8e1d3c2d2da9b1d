"""The load client: many subscribers on raw sockets, in one process that only receives and compares.

Settings: host, port, subscribers, source, mode ("push" or "pull"), credits (pull: the balance that is
renewed when half of it is used), warm and total (events of the warm-up, and with those of the run),
partitions, capture (a file for the events that were read; null: none).
Says `ready` when all are subscribed, `warm` and `done` (the time) when the last client has read its last
event, then `result`. Told anything, it stops and says what it has.
"""

from __future__ import annotations

import contextlib
import gc
import resource
import select
import socket
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import child
from benchmarks.check import faults
from benchmarks.frames import bounds, masked, masked_pong, upgrade
from benchmarks.stream import Reader, Reference

_RECEIVE_BYTES = 256 * 1024
_CONNECT_SECONDS = 30.0


class Client:
    """One subscriber. `asked`: how many events it has given credit for (pull)."""

    __slots__ = ("asked", "reader", "sock")

    def __init__(self, sock: socket.socket, reader: Reader) -> None:
        self.sock = sock
        self.reader = reader
        self.asked = 0


class Load:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._reference = Reference()
        self._clients: dict[int, Client] = {}
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._credits = int(settings["credits"]) if settings["mode"] == "pull" else 0
        self._poll = select.epoll()
        self._told = False
        self.receives = 0
        self.received = 0
        self.lost = 0

    def connect(self) -> None:
        source, mode = self._settings["source"], self._settings["mode"]
        subscribe = masked({"type": "SUBSCRIBE", "sourceId": source, "mode": mode})
        for _ in range(self._settings["subscribers"]):
            client = self._open(subscribe)
            self._clients[client.sock.fileno()] = client
            if self._credits:
                self._ask(client, self._credits)
            client.sock.setblocking(False)
            self._poll.register(client.sock, select.EPOLLIN)
        self._poll.register(sys.stdin, select.EPOLLIN)

    def _open(self, subscribe: bytes) -> Client:
        host, port = self._settings["host"], self._settings["port"]
        sock = socket.create_connection((host, port), timeout=_CONNECT_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(upgrade(host, port))
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += _more(sock)
        head, _, rest = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101 "):
            raise SystemExit(f"the server did not upgrade: {head!r}")
        sock.sendall(subscribe)
        while (found := bounds(rest, 0)) is None:
            rest += _more(sock)
        begin, end = found
        if not rest.startswith(b'{"type":"SUBSCRIBE_OK"', begin):
            raise SystemExit(f"SUBSCRIBE was answered with {rest[begin:end]!r}")

        def pong(payload: bytes) -> None:
            with contextlib.suppress(OSError):
                sock.send(masked_pong(payload))

        client = Client(sock, Reader(self._reference, pong))
        client.reader.feed(memoryview(rest)[end:])
        return client

    def read(self, events: int) -> bool:
        """Until every client has read so many events. False: told to stop, or all connections are lost."""
        reference = self._reference
        waiting = {n for n, client in self._clients.items() if client.reader.events < events}
        # A client is done where the reference is complete and it has all of it: no need to count.
        target = self._target(events)
        buffer, view, clients = self._buffer, memoryview(self._buffer), self._clients
        poll, stdin, pull = self._poll, sys.stdin.fileno(), bool(self._credits)
        while waiting:
            for number, _ in poll.poll():
                if number == stdin:
                    child.wait_word()
                    return False
                client = clients[number]
                try:
                    taken = client.sock.recv_into(buffer)
                except OSError:
                    taken = 0
                if not taken:
                    self.lost += 1
                    poll.unregister(number)
                    if self.lost == len(clients):
                        return False
                    continue
                self.receives += 1
                self.received += taken
                reader = client.reader
                reader.feed(view[:taken])
                if pull:
                    self._renew(client)
                if target is None and len(reference.ends) >= events:
                    target = self._target(events)
                    waiting = {n for n in waiting if clients[n].reader.events < events}
                elif (
                    (target is not None and reader.position >= target) or reader.diverged is not None
                ) and reader.events >= events:
                    waiting.discard(number)
        return True

    def _target(self, events: int) -> int | None:
        ends = self._reference.ends
        return ends[events - 1] if len(ends) >= events else None

    def _renew(self, client: Client) -> None:
        half = self._credits // 2
        used = client.reader.events
        if client.asked - used <= self._credits - half:
            self._ask(client, half)

    def _ask(self, client: Client, n: int) -> None:
        client.asked += n
        client.sock.send(masked({"type": "REQUEST", "sourceId": self._settings["source"], "n": n}))

    def result(self) -> dict[str, object]:
        """What the clients have, and what is wrong with it."""
        readers = [client.reader for client in self._clients.values()]
        total, partitions = self._settings["total"], self._settings["partitions"]
        wrong = faults(self._reference.data, total, partitions)
        diverged = [reader.diverged for reader in readers if reader.diverged is not None]
        if diverged:
            wrong.append(
                f"{len(diverged)} clients read other events than the rest, from event {min(diverged)} on"
            )
        short = [reader.events for reader in readers if reader.events != total]
        if short:
            wrong.append(f"{len(short)} clients have not {total} events but {min(short)} to {max(short)}")
        if self.lost:
            wrong.append(f"{self.lost} connections were lost")
        control: Counter[str] = Counter()
        for reader in readers:
            control.update(reader.control)
        capture = self._settings["capture"]
        if capture is not None:
            Path(capture).write_bytes(self._reference.data)
        return {
            "faults": wrong,
            "control": dict(control),
            "bytes": len(self._reference.data),
            "receives": self.receives,
            "received": self.received,
        }


def _more(sock: socket.socket) -> bytes:
    data = sock.recv(65_536)
    if not data:
        raise SystemExit("the server has closed a connection that was just opened")
    return data


def main() -> None:
    settings = child.settings()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    load = Load(settings)
    load.connect()
    gc.collect()
    gc.freeze()
    child.say(ready=True)
    done = load.read(settings["warm"])
    child.say(warm=child.now())
    load.receives = load.received = 0
    begun = time.process_time()
    done = done and load.read(settings["total"])
    at, cpu = child.now(), time.process_time() - begun
    child.say(done=at, cpu=cpu)
    child.say(result=load.result())
    child.wait_word()


if __name__ == "__main__":
    main()
