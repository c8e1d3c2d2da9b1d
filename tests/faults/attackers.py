"""Clients that mean no good, in a process of their own: `python -m tests.faults.attackers NAME SETTINGS`.

In another process so that what they do takes time from the gateway as strangers would, and none from the
clients that are watched. Each attack takes its settings, and returns what came of it, as JSON.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import trio

from tests.integration.wire import CLOSE, TEXT, command, frame, frames, handshake, shake_hands_sync

ROOT = Path(__file__).parent.parent.parent
HOST = "127.0.0.1"
_RESET = struct.pack("ii", 1, 0)
_PATIENCE = 30.0

CONTINUATION, PING = 0x0, 0x9


class Attacker:
    """Hold a process that attacks, and the lines of JSON that it says: the last is its result."""

    def __init__(self, process: trio.Process) -> None:
        self.pid = process.pid
        self._process = process
        self._rest = bytearray()

    async def says(self, word: str) -> None:
        """Wait until it says this."""
        assert await self._line() == word

    async def result(self) -> dict[str, Any]:
        found: dict[str, Any] = await self._line()
        return found

    async def _line(self) -> Any:
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            more = await self._process.stdout.receive_some()
            if not more:
                raise AssertionError(f"the attacker ended with code {await self._process.wait()}")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)


async def attacker(
    name: str,
    port: int,
    settings: dict[str, object],
    task_status: trio.TaskStatus[Attacker] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run one attacker until it has ended; for `nursery.start`."""
    command_line = [
        sys.executable,
        "-m",
        "tests.faults.attackers",
        name,
        json.dumps({"port": port, **settings}),
    ]
    run = partial(trio.run_process, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=ROOT)
    async with trio.open_nursery() as nursery:
        task_status.started(Attacker(await nursery.start(run, command_line)))


async def attack(name: str, port: int, **settings: object) -> dict[str, Any]:
    """Run one in a process of its own; returns what it says."""
    async with trio.open_nursery() as nursery:
        one: Attacker = await nursery.start(attacker, name, port, settings)
        return await one.result()
    raise AssertionError("unreachable")  # a nursery may swallow a cancel, as mypy sees it


# --- pieces ---------------------------------------------------------------------------------------


def connect(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), timeout=_PATIENCE)


def upgraded(port: int, path: str = "/") -> socket.socket:
    """Open a WebSocket connection."""
    sock = connect(port)
    shake_hands_sync(sock, path)
    return sock


def subscribed(port: int, source: str = "beat", **more: object) -> socket.socket:
    sock = upgraded(port)
    sock.sendall(command("SUBSCRIBE", source, **more))
    return sock


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    sock.close()


def until_closed(sock: socket.socket) -> int | None:
    """Return the code of the server's close frame; None: it closed without one."""
    data = bytearray()
    code = None
    try:
        while more := sock.recv(65_536):
            data += more
            for opcode, payload in frames(data):
                if opcode == CLOSE:
                    code = int.from_bytes(payload[:2], "big")
    except ConnectionResetError:
        pass
    return code


def flood(port: int, seconds: float, attackers: int, opening: bytes, more: bytes) -> dict[str, Any]:
    """Let so many clients send as fast as they can, and come back when they were thrown out."""
    codes: Counter[str] = Counter()
    sent: Counter[int] = Counter()
    selector = selectors.DefaultSelector()
    received: dict[int, bytearray] = {}

    def begin() -> None:
        sock = upgraded(port)
        sock.setblocking(False)
        with suppress(BlockingIOError):
            sock.send(opening)
        received[sock.fileno()] = bytearray()
        sent[sock.fileno()] = 0
        selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def over(sock: socket.socket) -> None:
        selector.unregister(sock)
        code = "none"
        for opcode, payload in frames(received.pop(sock.fileno())):
            if opcode == CLOSE:
                code = str(int.from_bytes(payload[:2], "big"))
        codes[code] += 1
        sock.close()

    until = time.monotonic() + seconds
    for _ in range(attackers):
        begin()
    total = 0
    while time.monotonic() < until:
        for key, events in selector.select(0.1):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            try:
                if events & selectors.EVENT_READ:
                    data = sock.recv(65_536)
                    received[sock.fileno()] += data
                    if not data:
                        over(sock)
                        begin()
                        continue
                if events & selectors.EVENT_WRITE:
                    total += sock.send(more)
            except (ConnectionResetError, BrokenPipeError):
                over(sock)
                begin()
            except BlockingIOError:
                pass
    for key in list(selector.get_map().values()):
        assert isinstance(key.fileobj, socket.socket)
        reset(key.fileobj)
    return {"codes": dict(codes), "bytes": total}


# --- attacks --------------------------------------------------------------------------------------


def fragments(port: int, seconds: float, attackers: int) -> dict[str, Any]:
    """Send one-byte continuations without end (P5)."""
    first = bytearray(frame(TEXT, b"x"))
    first[0] &= 0x7F
    piece = bytearray(frame(CONTINUATION, b"x"))
    piece[0] &= 0x7F
    return flood(port, seconds, attackers, bytes(first), bytes(piece) * 2_000)


def pings(port: int, seconds: float, attackers: int) -> dict[str, Any]:
    """Send as many pings as fit (P6)."""
    return flood(port, seconds, attackers, b"", frame(PING, b"ping") * 1_000)


def lengths(port: int) -> dict[str, Any]:
    """Send frames that say that they are very long (P4): 2^63 and more (the highest bit), and 10 GB."""
    found = {}
    for name, length in (
        ("2^63", 2**63),
        ("2^64-1", 2**64 - 1),
        ("10 GB", 10 * 2**30),
        ("2^63-1", 2**63 - 1),
    ):
        with upgraded(port) as sock:
            sock.sendall(struct.pack("!BBQ", 0x80 | TEXT, 0x80 | 127, length) + b"mask" + b"x" * 1_000)
            found[name] = until_closed(sock)
    return found


_SLOW = {
    "head": ("", "GET / HTTP/1.1\r\nHost: localhost\r\n" + "X-Slow: slow\r\n" * 10),
    "later head": (
        "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\n" + "X-Slow: slow\r\n" * 10,
    ),
    "hello": ("", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + "x" * 100),
    "body": ("POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n", "x" * 100),
}


def slow(port: int, count: int, what: str, seconds: float) -> dict[str, Any]:
    """Open connections that say one byte a second of a head, a TLS hello or a body, and stay (C5).

    Returns how long the longest lasted, how many are left, and what they were answered.
    """
    at_once, say = _SLOW[what]
    selector = selectors.DefaultSelector()
    born: dict[socket.socket, float] = {}
    answers: Counter[str] = Counter()
    lasted = []
    socks = []
    for _ in range(count):
        sock = connect(port)
        sock.sendall(at_once.encode())
        sock.setblocking(False)
        born[sock] = time.monotonic()
        selector.register(sock, selectors.EVENT_READ)
        socks.append(sock)
    text = say.encode("latin-1")
    at = 0
    until = time.monotonic() + seconds
    while born and time.monotonic() < until:
        for sock in born:
            with suppress(BrokenPipeError, ConnectionResetError):  # the selector says so, too
                sock.send(text[at : at + 1])
        at += 1
        tick = time.monotonic() + 1
        while born and (left := tick - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                sock = key.fileobj  # type: ignore[assignment]
                try:
                    data = sock.recv(4096)
                except ConnectionResetError:
                    data = b""
                if data:
                    answers[data.split(b"\r\n", 1)[0].decode("latin-1")] += 1
                    continue
                lasted.append(time.monotonic() - born.pop(sock))
                selector.unregister(sock)
    for sock in socks:
        sock.close()
    return {"answers": dict(answers), "longest": max(lasted, default=0.0), "left": len(born)}


def drops(port: int, count: int) -> dict[str, Any]:
    """Open connections and drop them, at every stage, in order and not."""

    def nothing() -> socket.socket:
        return connect(port)

    def half_a_head() -> socket.socket:
        sock = connect(port)
        sock.sendall(handshake("localhost")[0][:60])
        return sock

    def half_a_frame() -> socket.socket:
        sock = upgraded(port)
        sock.sendall(frame(TEXT, b"x" * 100)[:50])
        return sock

    stages: list[Callable[[], socket.socket]] = [
        nothing,
        half_a_head,
        partial(upgraded, port),
        half_a_frame,
        partial(subscribed, port),
    ]
    began = time.monotonic()
    for number in range(count):
        sock = stages[number % len(stages)]()
        if number // len(stages) % 2:
            reset(sock)
        else:
            sock.close()
    return {"seconds": time.monotonic() - began, "count": count}


def storm(port: int, count: int, rounds: int) -> dict[str, Any]:
    """Subscribe with so many clients; all drop at once and all come back, again and again (C7).

    seconds: until the last one had its SUBSCRIBE_OK and an event, per round.
    """
    request, _ = handshake("localhost")
    hello = request + command("SUBSCRIBE", "beat")
    seconds = []
    socks: list[socket.socket] = []
    for _ in range(rounds + 1):
        for sock in socks:
            reset(sock)
        began = time.monotonic()
        socks = _dial(port, count, hello)
        seconds.append(time.monotonic() - began)
    for sock in socks:
        sock.close()
    return {"seconds": seconds[1:], "first": seconds[0], "count": count}


def _dial(port: int, count: int, hello: bytes) -> list[socket.socket]:
    """Connect all at once; each has had an event when this returns."""
    selector = selectors.DefaultSelector()
    heard: dict[socket.socket, bytearray] = {}
    waiting = set()
    for _ in range(count):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex((HOST, port))
        selector.register(sock, selectors.EVENT_WRITE)
        heard[sock] = bytearray()
        waiting.add(sock)
    until = time.monotonic() + _PATIENCE
    while waiting:
        if time.monotonic() > until:
            raise TimeoutError(f"{len(waiting)} of {count} are not served")
        for key, events in selector.select(1):
            sock = key.fileobj  # type: ignore[assignment]
            if events & selectors.EVENT_WRITE:
                sock.send(hello)
                selector.modify(sock, selectors.EVENT_READ)
                continue
            data = sock.recv(65_536)
            if not data:
                raise ConnectionResetError("a client was turned away")
            heard[sock] += data
            if sock in waiting and b"RESULT" in heard[sock]:
                waiting.discard(sock)
            if sock not in waiting:
                heard[sock].clear()
    selector.close()
    return list(heard)


def churn(port: int, cycles: int, clients: int) -> dict[str, Any]:
    """Subscribe and unsubscribe, over and over, and count the answers (S6)."""
    per_turn = 50
    socks = [upgraded(port) for _ in range(clients)]
    turn = (command("SUBSCRIBE", "beat", mode="pull") + command("UNSUBSCRIBE", "beat")) * per_turn
    buffers = {sock: bytearray() for sock in socks}
    answers: Counter[str] = Counter()
    left = cycles
    while left > 0:
        for sock in socks:
            sock.sendall(turn)
        for sock in socks:
            for kind in _messages(sock, buffers[sock], 2 * per_turn):
                answers[kind] += 1
        left -= per_turn * clients
    for sock in socks:
        sock.sendall(frame(CLOSE, b"\x03\xe8"))
        until_closed(sock)
        sock.close()
    return {"answers": dict(answers), "cycles": cycles - left}


def _messages(sock: socket.socket, buffer: bytearray, count: int) -> Iterator[str]:
    while count > 0:
        data = sock.recv(65_536)
        if not data:
            raise ConnectionResetError("closed")
        buffer += data
        for opcode, payload in frames(buffer):
            yield json.loads(payload)["type"] if opcode == TEXT else f"frame {opcode:x} {payload!r}"
            count -= opcode == TEXT


def texts(port: int, repeat: int) -> dict[str, Any]:
    """Send JSON that is meant to hurt (P9). Returns the answer to each: a type, or the code of the close."""
    wrapped = '{"type":"SUBSCRIBE","sourceId":"beat","mode":"pull","x":%s}'
    found = {}
    for name, text in hostile_json().items():
        for kind, whole in (("bare", text), ("inside", wrapped % text)):
            for _ in range(repeat):
                with upgraded(port) as sock:
                    with suppress(BrokenPipeError, ConnectionResetError):  # refused by its first bytes
                        sock.sendall(frame(TEXT, whole.encode("utf-8", "surrogatepass")))
                    found[f"{name}, {kind}"] = _answer(sock)
    return found


def hostile_json() -> dict[str, str]:
    """Return texts that are each within 64 KiB, the largest message of a client. P9 names 100,000 for depth
    and 1,000,000 for digits: such a message is refused by its length."""
    return {
        "deep arrays": "[" * 30_000 + "]" * 30_000,
        "deep arrays, open": "[" * 65_000,
        "deep objects": '{"a":' * 10_000 + "1" + "}" * 10_000,
        "digits": "9" * 65_000,
        "fraction": "0." + "9" * 65_000,
        "exponent": "1e" + "9" * 400,
        "NaN": "NaN",
        "lone surrogate": '"\\ud800"',
        "doubled keys": '{"type":"REQUEST","type":"SUBSCRIBE"}',
        "byte order mark": "\ufeff{}",
        "too deep to send": "[" * 100_000,
        "too many digits to send": "9" * 1_000_000,
    }


def _answer(sock: socket.socket) -> str | int | None:
    buffer = bytearray()
    try:
        while data := sock.recv(65_536):
            buffer += data
            for opcode, payload in frames(buffer):
                if opcode == CLOSE:
                    return int.from_bytes(payload[:2], "big")
                return str(json.loads(payload)["type"])
    except ConnectionResetError:
        pass
    return None


def reader(port: int, seconds: float) -> dict[str, Any]:
    """Subscribe and read for so long, without an attack. `gaps`: offsets that were not the next."""
    buffer = bytearray()
    events, lags, gaps, due = 0, 0, 0, None
    closed = False
    with subscribed(port) as sock:
        until = time.monotonic() + seconds
        told = False
        while time.monotonic() < until and not closed:
            data = sock.recv(65_536)
            closed = not data
            buffer += data
            for opcode, payload in frames(buffer):
                message: dict[str, Any] = json.loads(payload) if opcode == TEXT else {"type": ""}
                if message["type"] == "RESULT":
                    offset = message["data"]["offset"]
                    gaps += due is not None and offset != due
                    due = offset + 1
                    events += 1
                lags += message["type"] == "NOTICE"
            if not told:
                print(json.dumps("subscribed"), flush=True)
                told = True
    return {"events": events, "lags": lags, "gaps": gaps, "closed": closed}


def main() -> None:
    from tests.faults import crowds, greedy, query_bombs  # they are made of the pieces above

    name, settings = sys.argv[1:]
    attacks: list[Callable[..., dict[str, Any]]] = [
        fragments, pings, lengths, slow, drops, storm, churn, texts, reader,
        crowds.returning, crowds.everything, crowds.stalled, query_bombs.queries, greedy.greedy,
    ]  # fmt: skip
    chosen = next(one for one in attacks if one.__name__ == name)
    print(json.dumps(chosen(**json.loads(settings))), flush=True)


if __name__ == "__main__":
    main()
