"""S7: queries that are meant to cost more than they may, by both protocols that take them.

Half of the texts are within all limits and as dear as they can be made; the others are too long, too deep,
too many, or nothing at all.
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

_EVERY = 0.02
"""Seconds between two messages of one client: half of what it may send."""


def queries(port: int, seconds: float, attackers: int, seed: int) -> dict[str, Any]:
    """Subscribe with one bomb after the other, half by SQL and half by CaQL, and unsubscribe what was
    granted. Returns how often each answer came, the codes of closed connections among them."""
    chosen = random.Random(seed)
    answers: Counter[str] = Counter()
    selector = selectors.DefaultSelector()
    received: dict[int, bytearray] = {}
    topics: dict[int, bool] = {}

    def begin(*, by_topic: bool) -> None:
        sock = upgraded(port, "/events" if by_topic else "/")
        received[sock.fileno()] = bytearray()
        topics[sock.fileno()] = by_topic
        selector.register(sock, selectors.EVENT_READ)

    def say(sock: socket.socket, message: object) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # closed: `hear` will say with what
            sock.sendall(frame(TEXT, json.dumps(message).encode()))

    def hear(sock: socket.socket) -> None:
        try:
            data = sock.recv(65_536)
        except ConnectionResetError:  # it was closed, and what was still sent to it came too late
            data = b""
        buffer = received[sock.fileno()]
        buffer += data
        over = not data
        for opcode, payload in frames(buffer):
            if opcode == CLOSE:
                answers[str(int.from_bytes(payload[:2], "big"))] += 1
                over = True
            elif opcode == TEXT:
                message = json.loads(payload)
                kind = str(message["type"])
                answers[kind if kind != "error" else f"error {message['code']}"] += 1
                if kind == "subscribe-ack":
                    gone = {"type": "unsubscribe", "subscriptionId": message["subscriptionId"]}
                    say(sock, gone)
        if over:
            by_topic = topics[sock.fileno()]
            selector.unregister(sock)
            sock.close()
            begin(by_topic=by_topic)

    for number in range(attackers):
        begin(by_topic=number % 2 == 1)
    until = time.monotonic() + seconds
    while (now := time.monotonic()) < until:
        for key in list(selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            for message in _messages(chosen, by_topic=topics[key.fileobj.fileno()]):
                say(key.fileobj, message)
        while (left := now + _EVERY - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                assert isinstance(key.fileobj, socket.socket)
                hear(key.fileobj)
    for key in list(selector.get_map().values()):
        assert isinstance(key.fileobj, socket.socket)
        reset(key.fileobj)
    return dict(answers)


def _messages(chosen: random.Random, *, by_topic: bool) -> list[dict[str, str]]:
    if by_topic:
        topic = chosen.choice(("**", "kiwi-gw/*/beat/events", "{(k|kiwi-gw)+}/**/{e.*s}"))
        return [{"type": "subscribe", "topic": f"{topic}?{_caql(chosen)}"}]
    return [
        {"type": "SUBSCRIBE", "sourceId": "beat", "where": _sql(chosen)},
        {"type": "UNSUBSCRIBE", "sourceId": "beat"},
    ]


def _sql(chosen: random.Random) -> str:
    number = chosen.randrange(1_000_000)
    some = chosen.randrange(20, 120)
    return chosen.choice(
        (
            " OR ".join(f"value.n{i} * {number} > {i}" for i in range(some)),
            " AND ".join(f"value.t LIKE '%{number}%{i}_%'" for i in range(some)),
            " OR ".join(f"value.t RLIKE '(a+)+{number}{i}$'" for i in range(some // 2)),
            "CASE " + " ".join(f"WHEN value.a = {number + i} THEN true" for i in range(some)) + " END",
            f"value.n IN ({', '.join(str(number + i) for i in range(3 * some))})",
            "(" * some + f"value.n > {number}" + ")" * some,
            "NOT " * some + f"value.a = {number}",
            "upper(" * (some // 3) + f"'{number}'" + ")" * (some // 3) + " = 'A'",
            "repeat(" * 12 + f"'{number}'" + ", 1000000)" * 12 + " = 'A'",
            "-" * some + f"{number} < value.n",
            "".join(chosen.choices("()[]'\"`.,<>=!*+-/%abc 01\\\u0000é", k=chosen.randrange(4_000))),
            "value.a > 1 AND " * 400 + "true",
        )
    )


def _caql(chosen: random.Random) -> str:
    number = chosen.randrange(1_000_000)
    some = chosen.randrange(20, 120)
    return chosen.choice(
        (
            "where " + " or ".join(f"data.n{i} > {number}" for i in range(some)),
            "where " + " and ".join(f'data.t like "(a|b)*{number}{i}"' for i in range(some // 2)),
            "select " + ", ".join(f"data.a{i}_{number}" for i in range(some)),
            "where " + "(" * some + f"data.n = {number}" + ")" * some,
            "where " + "not " * some + f"data.n = {number}",
            "".join(chosen.choices("()[]'\".,<>=!*&| abcwhere01\\\ud800é", k=chosen.randrange(4_000))),
        )
    )
