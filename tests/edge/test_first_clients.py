"""What a gateway answers while it still loads what queries need."""

from __future__ import annotations

import json
import threading
from http.client import HTTPConnection
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked
from trio_websocket import open_websocket_url

from kiwi_gw import app
from kiwi_gw.config import load

pytestmark = pytest.mark.usefixtures("no_tracebacks")

COUNTER = {"type": "counter", "id": "ticks", "min": 0, "interval_ms": 1_000}
SERVER = {"address": "127.0.0.1:0", "admin_address": None}


async def status(address: str, path: str) -> int:
    def ask() -> int:
        connection = HTTPConnection(address, timeout=10)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()

    return await trio.to_thread.run_sync(ask)


async def test_requests_are_answered_at_once_and_clients_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kiwi.yml"
    file.write_text(json.dumps({"sources": [COUNTER], "server": SERVER}))
    loaded = threading.Event()
    monkeypatch.setattr(app, "warm_up", loaded.wait)
    came_in = trio.Event()

    async def subscribe(address: str) -> None:
        async with open_websocket_url(f"ws://{address}/") as client:
            came_in.set()
            await client.send_message(
                '{"type": "SUBSCRIBE", "sourceId": "ticks", "where": "value.count > 1"}'
            )
            answer = json.loads(await client.get_message())
            assert answer["type"] == "SUBSCRIBE_OK", answer

    signals, received = trio.open_memory_channel[int](1)
    with trio.fail_after(20):
        async with signals, received, trio.open_nursery() as running:

            async def run(*, task_status: trio.TaskStatus[app.RunningGateway]) -> None:
                await app.run(load(file, {}), received, task_status=task_status)

            try:
                gateway: app.RunningGateway = await running.start(run)
                address = gateway.listener.addresses[0]
                assert await status(address, "/health") == 200
                assert await status(address, "/readyz") == 503
                async with trio.open_nursery() as clients:
                    clients.start_soon(subscribe, address)
                    await wait_all_tasks_blocked(0.05)
                    assert not came_in.is_set()
                    assert await status(address, "/livez") == 200
                    loaded.set()
                assert await status(address, "/readyz") == 200
            finally:
                loaded.set()  # or its thread would be waited for
            running.cancel_scope.cancel()
