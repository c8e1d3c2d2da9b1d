"""Readers that are many, or that want much, for `tests.faults.attackers`: no attacks, but as hard to bear.

Each checks by itself that every event of a topic came once and in order: `gaps` counts those that did not.
"""

from __future__ import annotations

import re
import resource
import selectors
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from tests.faults.attackers import HOST, reset, subscribed, upgraded
from tests.integration.wire import command, handshake
from tests.offsets_of import offsets_of

_EVENT = re.compile(rb'"partition":(\d+),"offset":(\d+)')
# (Positions also say of which history they are, in members that are no partitions.)
_OPENED = re.compile(rb'"SUBSCRIBE_OK".*?"positions":(\{(?:[^{}]|\{[^{}]*\})*\})')
_ERROR = re.compile(rb'_ERROR".*')
_GIVEN_UP = re.compile(rb'"dropped":(?:null|[1-9])|"SUBSCRIPTION_CLOSED"')
_PATIENCE = 60.0


class Places:
    """Hold where one reader is, per partition. gaps: events that were not the next. events: how many came.
    given_up: notices that say that some never will."""

    def __init__(self, at: dict[bytes, int] | None = None) -> None:
        self.at = at
        self.gaps = 0
        self.events = 0
        self.given_up = 0
        self._rest = b""

    def take(self, data: bytes) -> None:
        """Read whole frames; positions in cut frames are never taken for whole ones."""
        data = self._rest + data
        end = data.rfind(b"}")  # every message ends with one, and no number does
        whole, self._rest = data[: end + 1], data[end + 1 :]
        if error := _ERROR.search(whole):
            raise AssertionError(error[0].decode())
        if self.at is None or not self.opened:
            found = _OPENED.search(whole)
            if found is None:
                self._rest = whole + self._rest
                return
            positions = offsets_of(msgspec.json.decode(found[1]))
            self._open({partition.encode(): offset for partition, offset in positions.items()})
            whole = whole[found.end() :]
        self.given_up += len(_GIVEN_UP.findall(whole))
        assert self.at is not None
        for partition, offset in _EVENT.findall(whole):
            self.gaps += int(offset) != self.at[partition]
            self.at[partition] = int(offset) + 1
            self.events += 1

    opened = False

    def _open(self, positions: dict[bytes, int]) -> None:
        self.gaps += self.at is not None and self.at != positions
        self.at, self.opened = positions, True


def enough_descriptors(count: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + 100, hard), hard))


def returning(port: int, topic: str, count: int, rounds: int) -> dict[str, Any]:
    """Subscribe often to a topic that is written to; all drop at once and come back where they were (C7).

    opened: seconds until the last one had its SUBSCRIBE_OK, per round; served: an event behind it.
    """
    enough_descriptors(count)
    request, _ = handshake("localhost")
    readers = [Places() for _ in range(count)]
    opened, served = [], []
    socks: list[socket.socket] = []
    for _ in range(rounds + 1):
        for sock in socks:
            reset(sock)
        began = time.monotonic()
        for one in readers:
            one.opened = False
        socks, all_open = _dial(port, request, topic, readers)
        opened.append(all_open - began)
        served.append(time.monotonic() - began)
    for sock in socks:
        reset(sock)
    return {
        "opened": opened[1:],
        "served": served[1:],
        "per_second": [round(count / seconds) for seconds in opened[1:]],
        "gaps": sum(one.gaps for one in readers),
        "given_up": sum(one.given_up for one in readers),
        "events": sum(one.events for one in readers),
    }


def _dial(
    port: int, request: bytes, topic: str, readers: Iterable[Places]
) -> tuple[list[socket.socket], float]:
    """Connect all at once; each has had an event when this returns. Also returns when all were subscribed."""
    selector = selectors.DefaultSelector()
    waiting: dict[socket.socket, int] = {}
    socks, unopened = [], 0
    for one in readers:
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex((HOST, port))
        selector.register(sock, selectors.EVENT_WRITE, one)
        waiting[sock] = one.events
        socks.append(sock)
        unopened += 1
    all_open = time.monotonic()
    until = all_open + _PATIENCE
    while waiting:
        if time.monotonic() > until:
            raise TimeoutError(f"{len(waiting)} of {len(socks)} are not served")
        for key, events in selector.select(1):
            sock, one = key.fileobj, key.data  # type: ignore[assignment]
            if events & selectors.EVENT_WRITE:
                begin = {} if one.at is None else {"from": {"positions": _as_json(one.at)}}
                sock.send(request + command("SUBSCRIBE", topic, **begin))
                selector.modify(sock, selectors.EVENT_READ, one)
                continue
            data = sock.recv(262_144)
            if not data:
                raise ConnectionResetError("a client was turned away")
            was_open = one.opened
            one.take(data)
            if one.opened and not was_open:
                unopened -= 1
                all_open = time.monotonic()
            if one.events > waiting.get(sock, one.events):
                del waiting[sock]
    assert not unopened
    selector.close()
    return socks, all_open


def _as_json(at: dict[bytes, int]) -> dict[str, int]:
    return {partition.decode(): offset for partition, offset in at.items()}


def everything(port: int, topic: str, count: int) -> dict[str, Any]:
    """Ask for 10^9 events from the first on, and read `count` of them as fast as possible (C10)."""
    one = Places()
    began = time.monotonic()
    with upgraded(port) as sock:
        wish = {"mode": "pull", "from": "earliest"}
        sock.sendall(command("SUBSCRIBE", topic, **wish) + command("REQUEST", topic, n=10**9))
        while one.events < count:
            data = sock.recv(1 << 20)
            if not data:
                raise ConnectionResetError("closed")
            one.take(data)
    seconds = time.monotonic() - began
    return {"seconds": seconds, "events": one.events, "gaps": one.gaps, "given_up": one.given_up}


def stalled(port: int, topic: str, count: int, seconds: float) -> dict[str, Any]:
    """Open so many subscribers that read nothing for so long (C2). closed: how many were thrown out."""
    enough_descriptors(count)
    socks = [subscribed(port, topic) for _ in range(count)]
    time.sleep(seconds)
    closed = 0
    for sock in socks:
        sock.setblocking(False)
        with suppress(BlockingIOError):
            while data := sock.recv(262_144):
                pass
            closed += not data
        reset(sock)
    return {"closed": closed}
