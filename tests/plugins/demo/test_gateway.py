"""How the demo waits for its gateway."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
import trio

from kiwi_demo.gateway import GatewayFailed, wait_healthy
from kiwi_demo.process import Child

SLOW = """
import http.server, sys, time

class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

began = time.process_time()
while time.process_time() - began < 2.5:
    pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Healthy).serve_forever()
"""
STUCK = """
import time

def wait_for_godot():
    time.sleep(3600)

wait_for_godot()
"""


@pytest.fixture
def port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def start(code: str, port: int, log: Path) -> Child:
    return await Child.start([sys.executable, "-X", "faulthandler", "-c", code, str(port)], log)


@pytest.mark.slow
async def test_a_gateway_that_is_slow_is_waited_for_as_long_as_it_works(port: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = await start(SLOW, port, log)
    try:
        await wait_healthy(child, port, log, stuck=1.8)  # less than what it takes
    finally:
        await child.kill()


@pytest.mark.slow
async def test_one_that_is_stuck_is_told_with_where(port: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = await start(STUCK, port, log)
    try:
        with (
            trio.fail_after(30),
            pytest.raises(GatewayFailed, match=r"did nothing for 1 s.*\n(.*\n)*.*wait_for_godot"),
        ):
            await wait_healthy(child, port, log, stuck=1.0)
    finally:
        await child.kill()


async def test_one_that_ended_is_told_with_its_log(port: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = await start("raise SystemExit('the port is taken')", port, log)
    with (
        trio.fail_after(30),
        pytest.raises(GatewayFailed, match=r"ended with code 1; its log:\n.*the port is taken"),
    ):
        await wait_healthy(child, port, log)
    await child.kill()
