"""A publisher that never waits: PUBLISHes of Lenses' v1 without end on one connection.

Settings: host, port, source, size (bytes of each value), keys (so many, in turn). On a word it begins, and on
the next one it ends; says `ready`, and at last `published` (that had succeeded), `cpu` (our own), `faults`.
"""

from __future__ import annotations

import select
import socket
import sys
import threading
import time
from contextlib import suppress

from benchmarks import records
from benchmarks.frames import masked
from benchmarks.protocols import WORDS, lenses
from benchmarks.workers import child
from benchmarks.workers.subscriber import Address, subscribed

_RECEIVE_BYTES = 256 * 1024
_REQUESTS = 2_000
"""That are made once, and sent again and again."""
_KINDS = b'"SUCCESS"', b'"ERROR"', b'"INVALIDREQUEST"'


def main() -> None:
    settings = child.settings()
    address = Address(settings["host"], settings["port"], WORDS["lenses"].path.format("flood"))
    login = lenses("LOGIN", 1, {"user": "any", "password": "any"})
    sock, _ = subscribed(address, [login], WORDS["lenses"].answered)
    value = records.value(0, settings["size"]).decode()
    requests = b"".join(
        masked(
            lenses(
                "PUBLISH", n, {"topic": settings["source"], "key": f"{n % settings['keys']}", "value": value}
            )
        )
        for n in range(2, _REQUESTS + 2)
    )
    child.say(ready=True)
    child.wait_word()
    cpu = time.process_time()
    threading.Thread(target=_send, args=(sock, requests), daemon=True).start()
    succeeded, failed = _read(sock)
    used = time.process_time() - cpu
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    faults = [f"{failed} requests failed"] if failed else []
    child.say(published=succeeded, cpu=round(used, 2), faults=faults)
    child.wait_word()


def _send(sock: socket.socket, requests: bytes) -> None:
    with suppress(OSError):  # the end
        while True:
            sock.sendall(requests)


def _read(sock: socket.socket) -> tuple[int, int]:
    """Read until there is a word. Returns how many requests succeeded and how many failed."""
    poll = select.epoll()
    poll.register(sys.stdin, select.EPOLLIN)
    poll.register(sock, select.EPOLLIN)
    counts = dict.fromkeys(_KINDS, 0)
    rest = b""
    while True:
        if any(number == sys.stdin.fileno() for number, _ in poll.poll()):
            child.wait_word()
            return counts[_KINDS[0]], sum(counts[kind] for kind in _KINDS[1:])
        chunk = sock.recv(_RECEIVE_BYTES)
        if not chunk:
            raise SystemExit("the server has closed the connection")
        data = rest + chunk
        for kind in _KINDS:
            counts[kind] += data.count(kind) - rest.count(kind)
        rest = data[-max(map(len, _KINDS)) + 1 :]


if __name__ == "__main__":
    main()
