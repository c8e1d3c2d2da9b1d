"""The gateway when its descriptors are used up: who is there stays, who comes is told, and it recovers."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio
import trustme

from tests.integration.client import client
from tests.integration.gateway import GatewayProcess, gateway

pytestmark = pytest.mark.integration

TICKS = {"type": "counter", "id": "ticks", "min": 0, "interval_ms": 10}
CANNOT = "cannot accept connections"
SPARE = 3
TURNED_AWAY = 40
WITHIN = 1.0


def descriptors(running: GatewayProcess) -> set[int]:
    return {int(path.name) for path in Path(f"/proc/{running.pid}/fd").iterdir()}


def leave(running: GatewayProcess, spare: int | None) -> None:
    """Lower the process's limit until so many descriptors are left; None: take that back."""
    _, hard = resource.prlimit(running.pid, resource.RLIMIT_NOFILE)
    open_now = descriptors(running)
    free = (number for number in range(max(open_now) + 100) if number not in open_now)
    limit = hard if spare is None else [next(free) for _ in range(spare + 1)][-1]
    resource.prlimit(running.pid, resource.RLIMIT_NOFILE, (limit, hard))


async def health(running: GatewayProcess) -> tuple[int, bytes]:
    """Status and head of the answer to a GET."""
    async with await trio.open_tcp_stream("127.0.0.1", running.port) as stream:
        await stream.send_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b"".join([chunk async for chunk in stream])
    return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[0].lower()


async def occupy(running: GatewayProcess, stack: AsyncExitStack) -> None:
    """Use up what `leave` has left, with connections that say nothing."""
    for _ in range(SPARE):
        await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", running.port))


async def test_who_comes_is_told_so_and_who_is_there_does_not_notice(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    config = {"server": {"address": "127.0.0.1:0"}, "sources": [TICKS]}
    async with (
        gateway(tmp_path, config, expected_errors={CANNOT}) as running,
        AsyncExitStack() as idle,
        client(running.address, "ticks") as subscriber,
    ):
        await subscriber.subscribe()
        leave(running, SPARE)
        await occupy(running, idle)
        began = time.monotonic()
        slowest = 0.0
        for _ in range(TURNED_AWAY):
            asked, waited = time.monotonic(), running.waiting()
            status, head = await health(running)
            slowest = max(slowest, time.monotonic() - asked - waited())
            assert status == 503
            assert b"\r\nretry-after: " in head
        took = time.monotonic() - began
        figure("seconds until a 503 with no descriptor left, slowest of 40", round(slowest, 3))
        assert slowest < WITHIN
        lines = [line for line in running.log if line["event"] == CANNOT]
        assert 1 <= len(lines) <= 2 + took
        assert "files" in lines[0]["problem"]

        began, waited = time.monotonic(), running.waiting()
        await idle.aclose()
        while (await health(running))[0] != 200:
            assert time.monotonic() - began - waited() < WITHIN
        figure("seconds until it serves again once descriptors return", round(time.monotonic() - began, 3))

        leave(running, 0)
        assert (await health(running))[0] == 503, "what it keeps for that was taken back"
        leave(running, None)
        assert (await health(running))[0] == 200
        await subscriber.events(100)
        assert not subscriber.recording.faults
        counts = [result["count"] for result in subscriber.results]
        assert counts == list(range(counts[0], counts[0] + len(counts)))


async def test_with_none_left_and_nobody_waiting_it_rests(tmp_path: Path) -> None:
    config = {"server": {"address": "127.0.0.1:0"}, "sources": []}
    async with gateway(tmp_path, config, expected_errors={CANNOT}) as running, AsyncExitStack() as idle:
        leave(running, SPARE)
        await occupy(running, idle)
        assert (await health(running))[0] == 503
        before = running.cpu_seconds()
        await trio.sleep(1)
        assert running.cpu_seconds() - before < 0.2


async def test_one_who_reads_nothing_holds_up_the_next_for_a_moment_only(tmp_path: Path) -> None:
    config = {"server": {"address": "127.0.0.1:0"}, "sources": []}
    async with gateway(tmp_path, config, expected_errors={CANNOT}) as running, AsyncExitStack() as idle:
        leave(running, SPARE)
        await occupy(running, idle)
        for _ in range(5):
            await idle.enter_async_context(await trio.open_tcp_stream("127.0.0.1", running.port))
        began, waited = time.monotonic(), running.waiting()
        assert (await health(running))[0] == 503
        assert time.monotonic() - began - waited() < WITHIN


async def test_under_tls_it_only_closes(tmp_path: Path) -> None:
    issued = trustme.CA().issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    tls = {"cert": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}
    config = {"server": {"address": "127.0.0.1:0", "tls": tls}, "sources": []}
    async with gateway(tmp_path, config, expected_errors={CANNOT}) as running, AsyncExitStack() as idle:
        leave(running, SPARE)
        await occupy(running, idle)
        stream = await trio.open_tcp_stream("127.0.0.1", running.port)
        async with stream:
            began, waited = time.monotonic(), running.waiting()
            assert await stream.receive_some() == b""
            assert time.monotonic() - began - waited() < WITHIN
            assert stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
