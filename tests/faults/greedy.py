"""S7 and P9: clients that use all that they may, of everything, with queries that are as dear as they may be.

None sends more commands than it may for long, and each sends as many: `ROLES` says what they do with them.
"""

from __future__ import annotations

import json
import random
import selectors
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.faults.attackers import reset, upgraded
from tests.integration.wire import CLOSE, TEXT, command, frame, frames

_TWO_COMMANDS = 0.021
"""Seconds between two turns of two commands: a client may send 100 a second."""

_SECOND = 1.0
_AT_ONCE = 100

_CREDITS_AT_ONCE, _CREDITS = 50, 0.026
"""REQUESTs of a turn, and seconds between two: a client may send 2,000 a second."""

_TOPICS = 30
"""Subscriptions with different queries that one has by topics: it may have 32."""

LENGTHS = (512, 1_024, 4_096)
"""Bytes of a text that is to be read: 4,096 is as long as it may be (`server.limits.query_bytes`)."""


@dataclass(slots=True)
class Greedy:
    """Play one client. ids: of its subscriptions by topics, oldest first."""

    role: str
    chosen: random.Random
    source: str
    ids: deque[int] = field(default_factory=deque)

    @property
    def path(self) -> str:
        return "/events" if self.role == "topics" else "/"

    def opening(self) -> list[bytes]:
        """Return what it says first."""
        return [command("SUBSCRIBE", self.source, mode="pull")] if self.role == "credits" else []

    def turn(self) -> tuple[float, Sequence[bytes]]:
        """Return what it says now, and in how many seconds it says more."""
        pause, says = ROLES[self.role]
        return pause, says(self)

    def hear(self, message: Mapping[str, Any]) -> str:
        """Return under which name a message is counted."""
        kind = str(message["type"])
        if kind == "subscribe-ack":
            self.ids.append(message["subscriptionId"])
        return kind if kind != "error" else f"error {message['code']}"

    @property
    def number(self) -> int:
        """Return one that was not there before."""
        return self.chosen.randrange(10**9)


def greedy(
    port: int, seconds: float, attackers: int, seed: int, source: str, roles: Sequence[str] = ()
) -> dict[str, Any]:
    """Run so many clients for so long, dealt to the roles in turn (none: all). Returns how often each answer
    came, the codes of closed connections among them."""
    chosen = random.Random(seed)
    answers: Counter[str] = Counter()
    selector = selectors.DefaultSelector()
    received: dict[socket.socket, bytearray] = {}
    due: dict[socket.socket, float] = {}
    clients: dict[socket.socket, Greedy] = {}

    def begin(role: str) -> None:
        client = Greedy(role, chosen, source)
        sock = upgraded(port, client.path)
        received[sock], due[sock], clients[sock] = bytearray(), time.monotonic(), client
        selector.register(sock, selectors.EVENT_READ)
        say(sock, client.opening())

    def say(sock: socket.socket, messages: Sequence[bytes]) -> None:
        with suppress(BrokenPipeError, ConnectionResetError, BlockingIOError):  # `hear` says with what
            sock.sendall(b"".join(messages))

    def hear(sock: socket.socket) -> None:
        try:
            data = sock.recv(65_536)
        except ConnectionResetError:
            data = b""
        received[sock] += data
        over = not data
        for opcode, payload in frames(received[sock]):
            if opcode == CLOSE:
                answers[str(int.from_bytes(payload[:2], "big"))] += 1
                over = True
            elif payload.startswith(_EVENTS):
                answers["an event"] += 1
            elif opcode == TEXT:
                answers[clients[sock].hear(json.loads(payload))] += 1
        if over:
            selector.unregister(sock)
            sock.close()
            role = clients.pop(sock).role
            del received[sock], due[sock]
            begin(role)

    listed = tuple(roles or ROLES)
    for number in range(attackers):
        begin(listed[number % len(listed)])
    until = time.monotonic() + seconds
    while (now := time.monotonic()) < until:
        for sock in [sock for sock, at in due.items() if at <= now]:
            pause, messages = clients[sock].turn()
            due[sock] = now + pause
            say(sock, messages)
        for key, _ in selector.select(max(0.0, min(due.values()) - time.monotonic())):
            assert isinstance(key.fileobj, socket.socket)
            hear(key.fileobj)
    for sock in received:
        reset(sock)
    return dict(answers)


_EVENTS = (b'{"type":"RESULT"', b'{"type":"event"')


def _another(client: Greedy, where: str) -> list[bytes]:
    """Put another query in the place of the one that it has."""
    return [command("UNSUBSCRIBE", client.source), command("SUBSCRIBE", client.source, where=where)]


def _evaluated(client: Greedy) -> list[bytes]:
    """Make a query that takes long to evaluate for one event, and a short text."""
    number = client.number
    return _another(
        client,
        client.chosen.choice(
            (
                f"regexp_like(repeat(concat('ab', offset, 'ba'), 100), '(a|b)*a(a|b){{300}}c{number}')",
                " OR ".join(
                    f"length(repeat(cast(offset AS STRING), {9_000 + n})) = {number}" for n in range(40)
                ),
                f"length(regexp_replace(repeat(concat('ab', offset), 300), '[ab]{{1,9}}', 'x')) = {number}",
                f"upper(repeat(concat(offset, 'x'), 8000)) LIKE '%{number}%_%a'",
            )
        ),
    )


def _read(client: Greedy) -> list[bytes]:
    """Make a query that takes long to read, as long as it may be, and is cheap to evaluate."""
    number = client.number
    forms: Sequence[tuple[Callable[[int], str], str, str, str]] = (
        (lambda i: f"value.n{i} * {number} > {i}", " OR ", "", ""),
        (lambda i: f"WHEN value.a = {number + i} THEN true", " ", "CASE ", " END"),
        (lambda i: f"{number + i}", ", ", "value.n IN (", ")"),
        (lambda i: f"value.t LIKE '%{number}%{i}_%'", " AND ", "", ""),
        (lambda i: f"a{i}", "+", f"{number}+value.", " > 1"),
        (lambda i: "/*", " ", f"value.a{number} ", ""),
    )
    written, between, before, after = client.chosen.choice(forms)
    left = client.chosen.choice(LENGTHS) - len(before) - len(after)
    parts: list[str] = []
    while left >= len(part := (between if parts else "") + written(len(parts))):
        parts.append(part)
        left -= len(part)
    return _another(client, before + "".join(parts) + after)


def _bursts(client: Greedy) -> list[bytes]:
    """Make a hundred commands at once, with patterns and formats of dates that once took for ever."""
    number = client.number
    text = client.chosen.choice(
        (
            r"value.a rlike '\\pL{12}X" + str(number) + "'",
            f"to_date('{'1' * 26}x{number}', '{'d1' * 26}') IS NULL",
            f"to_timestamp('{'1' * 26}x', '{'d1' * 24}d{number % 10}') IS NULL",
        )
    )
    return [command("SUBSCRIBE", client.source, where=text)] * _AT_ONCE


def _keys(client: Greedy) -> list[bytes]:
    """Make a wire key that no other client had, every 21 ms: cheap, and there are many."""
    return _another(client, f"offset > {client.number}")


def _topics(client: Greedy) -> list[bytes]:
    """Put another topic in the place of the oldest: patterns within levels and across them, and queries."""
    number = client.number
    topic = client.chosen.choice(
        (
            f"**?where data.n > {number}",
            f"**?select data.n as n{number % 100} where data.n < {number} or data.t like 'a%{number}'",
            f"*/*/*/{{^(e|{number})*v.{{0,9}}s$}}",
            f"**/{{(n|{number})ts}}?where data.n{number % 7} <> {number}",
        )
    )
    said = [frame(TEXT, json.dumps({"type": "subscribe", "topic": topic}).encode())]
    if len(client.ids) >= _TOPICS:
        gone = {"type": "unsubscribe", "subscriptionId": client.ids.popleft()}
        said.append(frame(TEXT, json.dumps(gone).encode()))
    return said


def _credits(client: Greedy) -> list[bytes]:
    """Give credit, one by one."""
    return [command("REQUEST", client.source, n=1)] * _CREDITS_AT_ONCE


ROLES: Mapping[str, tuple[float, Callable[[Greedy], Sequence[bytes]]]] = {
    "evaluated": (_SECOND, _evaluated),
    "read": (_TWO_COMMANDS, _read),
    "bursts": (_SECOND, _bursts),
    "keys": (_TWO_COMMANDS, _keys),
    "topics": (_TWO_COMMANDS, _topics),
    "credits": (_CREDITS, _credits),
}
