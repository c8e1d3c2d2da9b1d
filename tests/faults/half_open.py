"""C4: a client whose cable is pulled. Run inside a network namespace of its own, where we may do as we like:

    unshare --user --map-root-user --net python -m tests.faults.half_open

(so it needs no root, and does not touch the machine's network). It starts a gateway there, and a client in a
second namespace behind a pair of virtual interfaces; then that client's end is set down. Says as JSON what
came of it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from tests.faults.checker import Verdict, judge
from tests.faults.experiment import BEAT, Scene, scene, span
from tests.faults.stages import configuration, faulted_gateway
from tests.integration.wire import command, handshake

ROOT = Path(__file__).parent.parent.parent
NEAR, FAR = "10.99.0.1", "10.99.0.2"
_PATIENCE = 30.0


class NoNamespacesError(Exception):
    """Report that this machine does not let us make network namespaces. The message says what it said."""


async def half_open(vanished_ms: int, dead_ms: int) -> dict[str, float]:
    """Return the seconds that a vanished client was kept: `streaming`, one that was being sent to, and
    `idle`. Also how late events came to `others`, and the seconds until its `resources` were back after
    that."""
    command_line = ["unshare", "--user", "--map-root-user", "--net"]
    script = [sys.executable, "-m", "tests.faults.half_open", str(vanished_ms), str(dead_ms)]
    run = partial(trio.run_process, check=False, capture_stdout=True, capture_stderr=True, cwd=ROOT)
    try:
        done = await run([*command_line, "true"])
    except FileNotFoundError as error:
        raise NoNamespacesError("there is no command `unshare` (util-linux)") from error
    if done.returncode:
        raise NoNamespacesError(done.stderr.decode().strip())
    done = await run([*command_line, *script])
    if done.returncode:
        raise AssertionError(done.stderr.decode()[-4_000:])
    result: dict[str, float] = json.loads(done.stdout)
    return result


async def _inside(vanished_ms: int, dead_ms: int) -> dict[str, float]:
    await _ip("link", "set", "lo", "up")
    limits = {
        "vanished_after_ms": vanished_ms,
        "dead_after_ms": dead_ms,
        "ping_interval_ms": dead_ms // 3,
    }
    config = configuration([BEAT], server={"address": "0.0.0.0:0", "limits": limits})
    with tempfile.TemporaryDirectory() as folder:
        async with (
            faulted_gateway(Path(folder), config) as running,
            scene(running) as stage,
            _far_client(running.port) as client,
        ):
            before = dict(stage.beats.last)
            await _connected(client)
            await stage.others[0].until(lambda: stage.beats.last["descriptors"] >= before["descriptors"] + 2)
            stage.beats.clear()
            pulled = time.monotonic()
            await _ip("link", "set", "far", "down", within=client.pid)
            kept: dict[str, float] = {}
            for _ in range(2):
                with trio.fail_after(_PATIENCE + dead_ms / 1000):
                    line = await running.logged("connection is given up", count=len(kept) + 1)
                kept[line["conn_id"]] = time.monotonic() - pulled
            gone = time.monotonic()
            await stage.others[0].until(
                lambda: (
                    stage.beats.last["descriptors"] <= before["descriptors"]
                    and stage.beats.last["tasks"] <= before["tasks"]
                )
            )
            resources = time.monotonic() - gone
            others = max(late for _, late in stage.beats.late)
            _did_not_notice(stage)
            client.kill()
    streaming, idle = (kept[number] for number in sorted(kept))  # in the order in which they came
    return {"streaming": streaming, "idle": idle, "resources": resources, "others": others}


def _did_not_notice(stage: Scene) -> None:
    for one in stage.others:
        assert judge(one.history, span(one.history)) == Verdict()
        assert (one.lost, one.complaints) == (0, [])


@asynccontextmanager
async def _far_client(port: int) -> AsyncIterator[trio.Process]:
    """Run a process in a namespace of its own, at the other end of a cable."""
    arguments = ["unshare", "--net", sys.executable, "-m", "tests.faults.half_open", "client", str(port)]
    async with trio.open_nursery() as nursery:
        run = partial(trio.run_process, stdin=subprocess.PIPE, stdout=subprocess.PIPE, check=False, cwd=ROOT)
        process: trio.Process = await nursery.start(run, arguments)
        assert process.stdout is not None
        assert await process.stdout.receive_some(1) == b"h"  # it is here, and so is its namespace
        await _ip("link", "add", "near", "type", "veth", "peer", "name", "far", "netns", str(process.pid))
        await _ip("addr", "add", f"{NEAR}/24", "dev", "near")
        await _ip("link", "set", "near", "up")
        await _ip("addr", "add", f"{FAR}/24", "dev", "far", within=process.pid)
        await _ip("link", "set", "far", "up", within=process.pid)
        yield process
        process.kill()


async def _connected(client: trio.Process) -> None:
    assert client.stdin is not None
    assert client.stdout is not None
    await client.stdin.send_all(b"go\n")
    assert await client.stdout.receive_some(1) == b"c"


async def _ip(*words: str, within: int | None = None) -> None:
    """Run `ip`, in the namespace of that process."""
    enter = [] if within is None else ["nsenter", f"--net=/proc/{within}/ns/net"]
    await trio.run_process([*enter, "ip", *words], capture_stderr=True)


def _client(port: int) -> None:
    """Open two connections: one is sent the beat, the other subscribes and gives no credit."""
    os.write(1, b"h")
    sys.stdin.readline()
    socks = []
    for mode in ("push", "pull"):
        sock = socket.create_connection((NEAR, port), timeout=10)
        sock.sendall(handshake("localhost")[0] + command("SUBSCRIBE", "beat", mode=mode))
        heard = b""
        while b"SUBSCRIBE_OK" not in heard:
            heard += sock.recv(4096)
        socks.append(sock)
    os.write(1, b"c")
    socks[0].settimeout(None)
    while socks[0].recv(65_536):
        pass


def main() -> None:
    if sys.argv[1] == "client":
        _client(int(sys.argv[2]))
    else:
        print(json.dumps(trio.run(_inside, int(sys.argv[1]), int(sys.argv[2]))))


if __name__ == "__main__":
    main()
