"""S7 and P9: clients that use all that they may, with queries that are as dear as they may be.

A third of them have queries evaluated that take long for every event, and come again with others; a third
have one text after the other read, up to the largest; the rest send a hundred commands at once, patterns and
formats of dates among them. None sends more commands than it may for long.
"""

from __future__ import annotations

import json
import random
import selectors
import socket
import time
from collections import Counter
from contextlib import suppress
from typing import Any

from tests.faults.attackers import reset, upgraded
from tests.integration.wire import CLOSE, TEXT, frame, frames

_READS = 0.04
"""Seconds between two texts of one that has them read: with the UNSUBSCRIBE, half of what it may send."""

_STAYS = 1.0
"""Seconds for which one has its query evaluated; and between two hundreds of commands."""

_AT_ONCE = 100

MOST_BYTES = 1_024
"""Of a text. Larger ones are possible, up to `server.limits.query_bytes`."""


def greedy(port: int, seconds: float, attackers: int, seed: int, source: str) -> dict[str, Any]:
    """So many for so long. Returns how often each answer came, the codes of closed connections among them."""
    chosen = random.Random(seed)
    answers: Counter[str] = Counter()
    selector = selectors.DefaultSelector()
    received: dict[socket.socket, bytearray] = {}
    due: dict[socket.socket, float] = {}
    roles: dict[socket.socket, int] = {}

    def begin(role: int) -> None:
        sock = upgraded(port)
        received[sock], due[sock], roles[sock] = bytearray(), time.monotonic(), role
        selector.register(sock, selectors.EVENT_READ)

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
            elif opcode == TEXT:
                answers[json.loads(payload)["type"]] += 1
        if over:
            selector.unregister(sock)
            sock.close()
            role = roles.pop(sock)
            del received[sock], due[sock]
            begin(role)

    for number in range(attackers):
        begin(number % 3)
    until = time.monotonic() + seconds
    while (now := time.monotonic()) < until:
        for sock in [sock for sock, at in due.items() if at <= now]:
            pause, messages = _turn(roles[sock], chosen, source)
            due[sock] = now + pause
            with suppress(BrokenPipeError, ConnectionResetError, BlockingIOError):  # `hear` says with what
                sock.sendall(b"".join(frame(TEXT, json.dumps(message).encode()) for message in messages))
        for key, _ in selector.select(max(0.0, min(due.values()) - time.monotonic())):
            assert isinstance(key.fileobj, socket.socket)
            hear(key.fileobj)
    for sock in received:
        reset(sock)
    return dict(answers)


def _turn(role: int, chosen: random.Random, source: str) -> tuple[float, list[dict[str, str]]]:
    """What one says now, and in how many seconds it says more."""
    number = chosen.randrange(10**9)
    leave = {"type": "UNSUBSCRIBE", "sourceId": source}
    if role == 0:
        return _STAYS, [leave, {"type": "SUBSCRIBE", "sourceId": source, "where": _dear(chosen, number)}]
    if role == 1:
        return _READS, [leave, {"type": "SUBSCRIBE", "sourceId": source, "where": _long(chosen, number)}]
    text = chosen.choice(
        (
            r"value.a rlike '\\pL{12}X" + str(number) + "'",
            f"to_date('{'1' * 26}x{number}', '{'d1' * 26}') IS NULL",
            f"unix_timestamp('{'1' * 26}x', '{'d1' * 24}d{number % 10}') > {number}",
        )
    )
    return _STAYS, [{"type": "SUBSCRIBE", "sourceId": source, "where": text}] * _AT_ONCE


def _dear(chosen: random.Random, number: int) -> str:
    """Long to evaluate for one event, and short."""
    return chosen.choice(
        (
            f"regexp_like(repeat(concat('ab', offset, 'ba'), 100), '(a|b)*a(a|b){{300}}c{number}')",
            " OR ".join(f"length(repeat(cast(offset AS STRING), {9_000 + n})) = {number}" for n in range(40)),
            f"length(regexp_replace(repeat(concat('ab', offset), 300), '[ab]{{1,9}}', 'x')) = {number}",
            f"upper(repeat(concat(offset, 'x'), 8000)) LIKE '%{number}%_%a'",
        )
    )


def _long(chosen: random.Random, number: int) -> str:
    """Long to read, and cheap to evaluate: as long as it may be."""
    written, between, before, after = chosen.choice(
        (
            (lambda i: f"value.n{i} * {number} > {i}", " OR ", "", ""),
            (lambda i: f"WHEN value.a = {number + i} THEN true", " ", "CASE ", " END"),
            (lambda i: f"{number + i}", ", ", "value.n IN (", ")"),
            (lambda i: f"value.t LIKE '%{number}%{i}_%'", " AND ", "", ""),
            (lambda i: f"a{i}", "+", f"{number}+value.", " > 1"),
            (lambda i: "/*", " ", f"value.a{number} ", ""),
        )
    )
    text, some = "", 0
    while len(longer := before + between.join(map(written, range(some + 1))) + after) <= MOST_BYTES:
        text, some = longer, some + 1
    return text
