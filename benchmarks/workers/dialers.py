"""Dialers: so many connections at a time are on their way to being subscribed, with sockets that never wait.

Settings: host, port, source, dialers, connections (in all), stay (they are held until the end; else each is
closed, with a close frame and its answer, before its dialer opens the next one).
Says `opened` (how many), `seconds`, `cpu` (our own), `faults`.
"""

from __future__ import annotations

import resource
import select
import socket
import time
from typing import Any

from benchmarks.frames import CLOSE, bounds, masked, masked_close, upgrade
from benchmarks.workers import child

_MOST_FAULTS = 5


class _Dial:
    """Hold one connection on its way: what it has said last (0 upgrade, 1 SUBSCRIBE, 2 a close frame)."""

    __slots__ = ("have", "sock", "stage")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.stage = -1
        self.have = b""


class Dialers:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._address = settings["host"], settings["port"]
        self._words = (
            upgrade(*self._address),
            masked({"type": "SUBSCRIBE", "sourceId": settings["source"]}),
            masked_close(),
        )
        self._left = settings["connections"]
        self._stay = settings["stay"]
        self._poll = select.epoll()
        self._dials: dict[int, _Dial] = {}
        self._held: list[socket.socket] = []
        self.opened = 0
        self.faults: list[str] = []

    def run(self, at_a_time: int) -> None:
        for _ in range(min(at_a_time, self._left)):
            self._dial()
        while self._dials and len(self.faults) < _MOST_FAULTS:
            for number, _ in self._poll.poll():
                dial = self._dials[number]
                if dial.stage < 0:
                    self._say_next(dial)
                else:
                    self._read(dial)

    def _dial(self) -> None:
        self._left -= 1
        sock = socket.socket()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        sock.connect_ex(self._address)
        self._dials[sock.fileno()] = _Dial(sock)
        self._poll.register(sock, select.EPOLLOUT)

    def _say_next(self, dial: _Dial) -> None:
        dial.stage += 1
        try:
            dial.sock.send(self._words[dial.stage])
        except OSError as error:
            self._over(dial, f"not connected: {error}")
            return
        if dial.stage == 0:
            self._poll.modify(dial.sock, select.EPOLLIN)

    def _read(self, dial: _Dial) -> None:
        try:
            data = dial.sock.recv(4_096)
        except OSError as error:
            self._over(dial, f"lost: {error}")
            return
        if not data:
            self._over(dial, None if dial.stage == 2 else "closed by the server")
            return
        dial.have += data
        if dial.stage == 0:
            if b"\r\n\r\n" in dial.have:
                if not dial.have.startswith(b"HTTP/1.1 101 "):
                    self._over(dial, f"not upgraded: {dial.have[:80]!r}")
                    return
                dial.have = dial.have.partition(b"\r\n\r\n")[2]
                self._say_next(dial)
        elif (found := bounds(dial.have, 0)) is not None:
            frame, dial.have = dial.have[: found[1]], dial.have[found[1] :]
            if dial.stage == 1:
                self._subscribed(dial, frame)
            elif frame[0] & 0x0F == CLOSE:
                self._over(dial, None)

    def _subscribed(self, dial: _Dial, frame: bytes) -> None:
        if b'"SUBSCRIBE_OK"' not in frame:
            self._over(dial, f"not subscribed: {frame[:200]!r}")
            return
        self.opened += 1
        if not self._stay:
            self._say_next(dial)
            return
        self._forget(dial)
        self._held.append(dial.sock)

    def _over(self, dial: _Dial, fault: str | None) -> None:
        if fault is not None:
            self.faults.append(fault)
        self._forget(dial)
        dial.sock.close()

    def _forget(self, dial: _Dial) -> None:
        number = dial.sock.fileno()
        self._poll.unregister(number)
        del self._dials[number]
        if self._left:
            self._dial()


def main() -> None:
    settings = child.settings()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    dialers = Dialers(settings)
    begun, cpu = time.monotonic(), time.process_time()
    dialers.run(settings["dialers"])
    seconds = time.monotonic() - begun
    child.say(
        opened=dialers.opened,
        seconds=round(seconds, 4),
        cpu=round(time.process_time() - cpu, 2),
        faults=dialers.faults,
    )
    child.wait_word()


if __name__ == "__main__":
    main()
