"""What systemd is told, over a real socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from kiwi_gw import app
from kiwi_gw.config import load
from kiwi_gw.systemd import SystemdNotifier

COUNTER = {"type": "counter", "id": "ticks", "min": 0, "interval_ms": 1_000}


class Manager:
    """The manager's end. told: what has come, in order."""

    def __init__(self, address: str) -> None:
        self._socket = trio.socket.from_stdlib_socket(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self.name = address.replace("\0", "@", 1)
        self._address = address

    async def open(self) -> Manager:
        await self._socket.bind(self._address)
        return self

    async def told(self) -> str:
        return (await self._socket.recv(4096)).decode()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["file", "abstract"])
async def manager(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Manager]:
    address = str(tmp_path / "notify") if request.param == "file" else f"\0kiwi-gw-test-{os.getpid()}"
    manager = await Manager(address).open()
    yield manager
    manager.close()


async def test_what_it_is_told(manager: Manager) -> None:
    service = SystemdNotifier({"NOTIFY_SOCKET": manager.name})
    service.ready()
    assert await manager.told() == "READY=1"
    before = time.monotonic_ns() // 1000
    with service.reloading():
        reloading, _, moment = (await manager.told()).partition("\nMONOTONIC_USEC=")
        assert reloading == "RELOADING=1"
        assert before <= int(moment) <= time.monotonic_ns() // 1000
    assert await manager.told() == "READY=1"
    service.stopping()
    assert await manager.told() == "STOPPING=1"
    await service.show_life()  # it wants none


async def test_signs_of_life(manager: Manager, autojump_clock: object) -> None:
    environ = {"NOTIFY_SOCKET": manager.name, "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(SystemdNotifier(environ).show_life)
        await trio.sleep(25)
        nursery.cancel_scope.cancel()
    for _ in range(3):
        assert await manager.told() == "WATCHDOG=1"
    await SystemdNotifier(environ | {"WATCHDOG_PID": "1"}).show_life()  # they are wanted of another process


async def test_where_no_manager_is_nothing_happens(tmp_path: Path) -> None:
    with capture_logs() as log_lines:
        SystemdNotifier({}).ready()
        await SystemdNotifier({"WATCHDOG_USEC": "1000"}).show_life()
        assert log_lines == []
        SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()
    assert [line["event"] for line in log_lines] == ["the service manager does not listen"]


async def test_a_gateway_tells_it(tmp_path: Path) -> None:
    manager = await Manager(str(tmp_path / "notify")).open()
    file = tmp_path / "kiwi.yml"
    file.write_text(
        json.dumps({"sources": [COUNTER], "server": {"address": "127.0.0.1:0", "admin_address": None}})
    )
    signals, received = trio.open_memory_channel[int](2)
    with trio.fail_after(20):
        async with received, signals, trio.open_nursery() as nursery:
            nursery.start_soon(app.run, load(file, {"NOTIFY_SOCKET": manager.name}), received)
            assert await manager.told() == "READY=1"
            signals.send_nowait(signal.SIGHUP)
            assert (await manager.told()).startswith("RELOADING=1\n")
            assert await manager.told() == "READY=1"
            signals.send_nowait(signal.SIGTERM)
            assert await manager.told() == "STOPPING=1"
    manager.close()
