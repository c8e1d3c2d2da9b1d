"""What goes wrong in the gateway's process: the clock jumps, a plugin blocks and fails, the disk is full."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

from tests.faults.attackers import attack, until_closed, upgraded
from tests.faults.brokers import FaultyBroker
from tests.faults.checker import Verdict, judge
from tests.faults.experiment import Outcome, scene, span
from tests.faults.gateway_faults import KINDS, RAISED, gateway_faults
from tests.faults.mischief import Words
from tests.faults.stages import PLUGINS, ROOT, WORDS, configuration, faulted_gateway, injected, kafka_scene
from tests.integration.wire import CLOSE, TEXT, command, frame, frames, handshake

pytestmark = pytest.mark.integration

HOUR = 3_600.0
DEAD_MS, HEAD_MS = 2_000, 2_000
WITHIN = 20.0
LOST = 3
TOKEN = "a-token-of-half-an-hour"


async def test_the_clock_jumps_and_a_plugin_stands_in_the_way(
    faulty_broker: FaultyBroker, tmp_path: Path, passed: Callable[[Outcome], None]
) -> None:
    way = faulty_broker.bootstrap
    async with kafka_scene(tmp_path, way, way, expected_errors={RAISED}) as stage:
        faults = gateway_faults(stage, Words(tmp_path / WORDS))
        assert tuple(faults) == KINDS
        for injection, phases in faults.values():
            passed(await injected(stage, injection, phases))


async def test_timeouts_do_not_follow_the_clock_and_tokens_do(tmp_path: Path) -> None:
    limits = {"ping_interval_ms": 500, "dead_after_ms": DEAD_MS, "head_timeout_ms": HEAD_MS}
    soon = datetime.now(UTC) + timedelta(seconds=HOUR / 2)
    token = {"name": "short", "token": TOKEN, "roles": ["all"], "expires_at": soon.isoformat()}
    roles = {"all": {"sources": ["*"]}}
    config = configuration(
        server={"address": "127.0.0.1:0", "limits": limits},
        tokens={"static": [token], "anonymous": {"roles": ["all"]}, "roles": roles},
    )
    config["plugins"] = [*PLUGINS, "tokens"]
    async with faulted_gateway(tmp_path, config) as running, scene(running) as stage:
        words = Words(tmp_path / WORDS)
        for ahead in (-HOUR, HOUR):
            silent = await trio.to_thread.run_sync(upgraded, running.port)
            # Its token is good as long as the clock has not jumped.
            known = await trio.to_thread.run_sync(partial(upgraded, running.port, f"/?access_token={TOKEN}"))
            with silent, known:
                began = time.monotonic()
                words.ahead = ahead
                slow = await attack("slow", running.port, count=5, what="head", seconds=2 * HEAD_MS / 1000)
                assert slow["left"] == 0
                assert 0.7 <= slow["longest"] / (HEAD_MS / 1000) <= 1.7
                assert await trio.to_thread.run_sync(until_closed, silent) == 4408
                assert time.monotonic() - began >= DEAD_MS / 1000
                if ahead > 0:
                    assert await trio.to_thread.run_sync(until_closed, known) == 4402
            words.ahead = 0.0
        for one in stage.others:
            count = one.next[0]
            await one.until(lambda one=one, count=count: one.next[0] > count + 20)  # type: ignore[misc]
            assert judge(one.history, span(one.history)) == Verdict()
            assert (one.lost, one.complaints) == (0, [])


async def test_a_log_on_a_full_disk_costs_lines_and_nothing_else(tmp_path: Path) -> None:
    """Fill the disk for this process: its files may not grow any more. Then they may again."""
    socket_path, log = tmp_path / "gateway", tmp_path / "log"
    config = configuration(
        [{"type": "counter", "id": "ticks", "min": 0, "interval_ms": 10}],
        server={"address": f"unix:{socket_path}", "admin_address": None},
    )
    config["plugins"] = []
    (tmp_path / "kiwi-gw.yml").write_text(yaml.safe_dump(config))
    command_line = [sys.executable, "-m", "kiwi_gw", "run", "--config", str(tmp_path / "kiwi-gw.yml")]
    with log.open("a") as out:
        process = await trio.lowlevel.open_process(command_line, stderr=out, cwd=ROOT)
    try:
        with trio.fail_after(WITHIN):
            await events_of(log, "gateway listens")
            async with await trio.open_unix_socket(socket_path) as watcher:
                await watcher.send_all(handshake("localhost")[0] + command("SUBSCRIBE", "ticks"))
                _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (log.stat().st_size + 10, hard))
                for _ in range(LOST + 1):  # the line of the first one's end is cut, those of the others lost
                    await come_and_go(socket_path)
                ready = await asked(socket_path, "/readyz?verbose")
                assert "the log cannot be written (File too large): lines are lost" in ready["warnings"][-1]
                assert ready["ready"]
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard))
                await come_and_go(socket_path)
                await events_of(log, f"{LOST} log lines could not be written: File too large")
                counts = await counted(watcher, 200)
                assert counts == [*range(counts[0], counts[0] + len(counts))]
            process.terminate()
            assert await process.wait() == 0
        assert all(json.loads(line) for line in log.read_text().splitlines()), "every line is whole"
    finally:
        process.kill()
        await process.wait()


async def events_of(log: Path, event: str) -> None:
    """Wait until a line of the log says this."""
    while f'"{event}"' not in log.read_text():  # noqa: ASYNC110, ASYNC240  (a file sends no notice)
        await trio.sleep(0.05)


async def come_and_go(path: Path) -> None:
    """Connect a client whose end is a line of the log."""
    async with await trio.open_unix_socket(path) as stream:
        await stream.send_all(handshake("localhost")[0] + frame(CLOSE, b"\x03\xe8"))
        while await stream.receive_some():
            pass


async def asked(path: Path, target: str) -> dict[str, Any]:
    async with await trio.open_unix_socket(path) as stream:
        await stream.send_all(
            f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        )
        answer = b"".join([piece async for piece in stream])
    found: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return found


async def counted(watcher: trio.SocketStream, at_least: int) -> list[int]:
    """Return what a client of the counter was sent so far, and so many events at least."""
    data = bytearray()
    counts: list[int] = []
    async for piece in watcher:
        data += piece
        if b"\r\n\r\n" in data:
            del data[: data.index(b"\r\n\r\n") + 4]
            break
    while len(counts) < at_least:
        data += await watcher.receive_some()
        messages = [json.loads(payload) for opcode, payload in frames(data) if opcode == TEXT]
        counts += [message["data"]["count"] for message in messages if message["type"] == "RESULT"]
    return counts
