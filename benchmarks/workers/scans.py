"""Clients of Lenses' SQL v2 that execute one statement without end: each again as soon as it has its END.

Settings: host, port, sql, clients (so many), passing (records that each execution must bring). On a word it
begins, and on the next one it ends; says `ready`, and at last `scans` (that came to their end), `begun`
(all), `cpu` (our own), `faults`.
"""

from __future__ import annotations

import select
import sys
import time
from dataclasses import dataclass
from socket import socket

from benchmarks import statements
from benchmarks.statements import END, PATH, RECORD
from benchmarks.workers import child
from benchmarks.workers.subscriber import Address, subscribed

_RECEIVE_BYTES = 256 * 1024
_MOST_FAULTS = 5


@dataclass(slots=True)
class _Execution:
    """Hold one that has begun. end: the last bytes of what came."""

    sock: socket
    records: int = 0
    end: bytes = b""


class Scans:
    """Hold those that are executed at the time."""

    def __init__(self, address: Address, sql: str, passing: int) -> None:
        self._address = address
        self._message = statements.message(sql)
        self._passing = passing
        self._poll = select.epoll()
        self._poll.register(sys.stdin, select.EPOLLIN)
        self._running: dict[int, _Execution] = {}
        self.begun = self.scans = 0
        self.faults: list[str] = []

    def begin(self) -> None:
        sock, rest = subscribed(self._address, [], b"")
        sock.sendall(self._message)
        self._running[sock.fileno()] = _Execution(sock, end=rest)
        self._poll.register(sock, select.EPOLLIN)
        self.begun += 1

    def go_on(self) -> None:
        """Execute until there is a word, or too much is wrong."""
        while len(self.faults) < _MOST_FAULTS:
            for number, _ in self._poll.poll():
                if number == sys.stdin.fileno():
                    return
                self._read(self._running[number])

    def _read(self, one: _Execution) -> None:
        chunk = one.sock.recv(_RECEIVE_BYTES)
        before = one.end[-len(RECORD) + 1 :]  # what may be half of it
        one.records += (before + chunk).count(RECORD)
        one.end = (one.end + chunk)[-64:]
        if chunk and END not in one.end:
            return
        if END not in one.end or one.records != self._passing:
            self.faults.append(f"{one.records:,} records of {self._passing:,}; it ended with {one.end!r}")
        self.scans += 1
        self._poll.unregister(one.sock)
        del self._running[one.sock.fileno()]
        one.sock.close()
        self.begin()


def main() -> None:
    settings = child.settings()
    address = Address(settings["host"], settings["port"], PATH)
    scans = Scans(address, settings["sql"], settings["passing"])
    child.say(ready=True)
    child.wait_word()
    cpu = time.process_time()
    for _ in range(settings["clients"]):
        scans.begin()
    scans.go_on()
    used = time.process_time() - cpu
    child.wait_word()
    child.say(scans=scans.scans, begun=scans.begun, cpu=round(used, 2), faults=scans.faults)
    child.wait_word()


if __name__ == "__main__":
    main()
