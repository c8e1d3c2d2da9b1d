"""Several workers behind one address: they serve, are replaced, reload and leave as one gateway."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

from kiwi_gw import __version__
from tests.edge.admin import Samples, ask, fetch, scrape, value
from tests.edge.wire import Client as WireClient
from tests.edge.wire import upgrade
from tests.integration.client import Client, client
from tests.integration.gateway import GatewayProcess, gateway

pytestmark = pytest.mark.integration

CLIENTS = 24
TICKS = {"type": "counter", "id": "ticks", "min": 0, "interval_ms": 20}


def config(**server: object) -> dict[str, object]:
    own = {"address": "127.0.0.1:0", "admin_address": "127.0.0.1:0", "workers": 2, **server}
    return {"server": own, "sources": [TICKS]}


def admin_of(running: GatewayProcess) -> str:
    (line,) = [line for line in running.log if line["event"] == "gateway listens"]
    assert line["workers"] == 2
    return str(line["admin"])


def pid_of(running: GatewayProcess, worker: int) -> int:
    """The process that works in this slot now."""
    return [
        int(line["pid"])
        for line in running.log
        if line["event"] == "worker listens" and line["worker"] == worker
    ][-1]


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"  # one that nobody has waited for yet


@asynccontextmanager
async def crowd(running: GatewayProcess, size: int = CLIENTS) -> AsyncIterator[list[Client]]:
    """Clients that have subscribed, by pull and without credit."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client(running.address, "ticks")) for _ in range(size)]
        for one in clients:
            await one.subscribe("pull")
        yield clients


async def on_workers(admin: str) -> dict[int, list[str]]:
    """Ids of connections by worker, from all pages."""
    found: dict[int, list[str]] = {}
    following: str | None = "/connections?limit=5"
    while following is not None:
        page = await fetch(admin, following)
        for item in page["connections"]:
            found.setdefault(item["worker"], []).append(item["id"])
        following = page["next"]
    return found


async def test_all_serve_and_their_metrics_add_up(tmp_path: Path) -> None:
    async with gateway(tmp_path, config()) as running, crowd(running) as clients:
        admin = admin_of(running)
        by_worker = await on_workers(admin)
        assert sorted(by_worker) == [0, 1]
        assert sum(map(len, by_worker.values())) == CLIENTS
        assert all(name.startswith(f"{slot}-") for slot, names in by_worker.items() for name in names)
        for one in clients:
            await one.say("REQUEST", n=3)
            await one.events(3)
        # Whoever is asked says the same; which worker answers is the kernel's choice.
        for _ in range(6):
            found = await scrape(admin)
            assert value(found, "connections", dialect="kiwi", transport="ws") == CLIENTS
            assert value(found, "subscriptions", source="ticks", mode="pull") == CLIENTS
            assert value(found, "events_delivered_total", source="ticks", dialect="kiwi") == 3 * CLIENTS
            assert value(found, "credits_granted_total", source="ticks") == 3 * CLIENTS
            assert value(found, "subscriptions_started_total", source="ticks", dialect="kiwi") == CLIENTS
            assert [value(found, "worker_up", worker=str(slot)) for slot in (0, 1)] == [1, 1]
            assert value(found, "connections_limit") == 2 * 10_000
            assert value(found, "build_info", version=__version__, **_versions(found)) == 1
        listed = (await fetch(admin, "/subscriptions?limit=1000"))["subscriptions"]
        assert Counter(item["worker"] for item in listed) == {k: len(v) for k, v in by_worker.items()}
        assert {item["delivered"] for item in listed} == {3}
        sources = (await fetch(admin, "/sources"))["sources"]
        assert [(item["id"], item["worker"]) for item in sources] == [("ticks", 0), ("ticks", 1)]
        # A connection of either worker can be ended through whichever is asked.
        for names in by_worker.values():
            assert (await ask(admin, f"/connections/{names[0]}", "DELETE"))[0] == 204
        for name in ("0-999", "2-1", "1", "x-1", "-1"):
            assert (await ask(admin, f"/connections/{name}", "DELETE"))[0] == 404
        for after in ("7:1", "x", "0:x"):
            assert (await ask(admin, f"/connections?after={after}"))[0] == 400
        while sum(map(len, (await on_workers(admin)).values())) > CLIENTS - 2:
            await trio.lowlevel.checkpoint()


def _versions(found: Samples) -> dict[str, str]:
    ((_, labels),) = [key for key in found if key[0] == "kiwigw_build_info"]
    return {name: text for name, text in labels if name in ("python", "trio")}


async def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    errors = {"worker ended"}
    async with gateway(tmp_path, config(), expected_errors=errors) as running, crowd(running) as clients:
        admin = admin_of(running)
        for one in clients:
            await one.say("REQUEST", n=2)
            await one.events(2)
        before = await scrape(admin)
        assert value(before, "events_delivered_total", source="ticks", dialect="kiwi") == 2 * CLIENTS
        lost = len((await on_workers(admin))[1])
        os.kill(pid_of(running, 1), signal.SIGKILL)
        await running.logged("worker ended", worker=1, code=-signal.SIGKILL)
        meanwhile = await scrape(admin)
        assert value(meanwhile, "worker_up", worker="1") == 0
        assert value(meanwhile, "connections", dialect="kiwi", transport="ws") == CLIENTS - lost
        await running.logged("worker replaced", worker=1)
        after = await scrape(admin)
        for found in (meanwhile, after):
            for (name, labels), old in before.items():
                if name.startswith("kiwigw_") and name.endswith("_total"):
                    assert found[name, labels] >= old, f"{name} went back"
        assert value(after, "events_delivered_total", source="ticks", dialect="kiwi") == 2 * CLIENTS
        assert value(after, "worker_restarts_total") == 1
        assert value(after, "worker_up", worker="1") == 1
        # The others' clients did not notice, and new ones find both.
        kept = 0
        for one in clients:
            await _pull_one(one)
            kept += not one.gone
        assert kept == CLIENTS - lost
        async with crowd(running):
            assert sorted(await on_workers(admin)) == [0, 1]


async def _pull_one(one: Client) -> None:
    """An event more, if it is still connected."""
    wanted = one.recording.events + 1
    try:
        await one.say("REQUEST", n=1)
        while one.recording.events < wanted and await one.read():
            pass
    except trio.BrokenResourceError:
        one.gone = True


@pytest.mark.extended
async def test_one_that_cannot_be_replaced_is_tried_again(tmp_path: Path) -> None:
    async with gateway(
        tmp_path, config(), expected_errors={"worker ended", "configuration refused; the old one stays"}
    ) as running:
        good = running.config.read_text()
        running.config.write_text(good + "nonsense: 1\n")
        await running.logged("configuration refused; the old one stays", worker=0)
        os.kill(pid_of(running, 1), signal.SIGKILL)
        await running.logged("worker ended", worker=1, code=78)
        async with client(running.address, "ticks") as one:  # the other one serves
            await one.subscribe()
        assert any("nonsense" in line for line in running.other)
        running.config.write_text(good)
        await running.logged("worker replaced", worker=1)


async def test_a_reload_reaches_all(tmp_path: Path) -> None:
    async with gateway(tmp_path, config()) as running:
        running.signal(signal.SIGHUP)
        for worker in (0, 1):
            await running.logged("configuration applied", worker=worker)
        text = config()
        text["sources"] = [TICKS, {**TICKS, "id": "tocks"}]
        fresh = running.config.with_suffix(".new")
        fresh.write_text(yaml.safe_dump(text))
        fresh.replace(running.config)
        for worker in (0, 1):
            await running.logged("configuration applied", worker=worker, count=2)
        listed = (await fetch(admin_of(running), "/sources"))["sources"]
        assert Counter(item["id"] for item in listed) == {"ticks": 2, "tocks": 2}
        found = await scrape(admin_of(running))
        assert value(found, "config_reloads_total", result="applied") == 4


async def test_all_leave_together(tmp_path: Path) -> None:
    async with gateway(tmp_path, config(drain_ms="3s")) as running, crowd(running) as clients:
        workers = [pid_of(running, 0), pid_of(running, 1)]
        folder = _folder_of(workers[0])
        async with trio.open_nursery() as nursery:
            for one in clients:
                nursery.start_soon(_leave_when_told, one)
            with trio.fail_after(3 + 2):
                assert await running.stop() == 0
        assert not any(map(alive, workers))
        assert not folder.exists()
    assert {one.closed[:2] for one in clients if one.closed} == {(1012).to_bytes(2, "big")}
    assert all(one.closed for one in clients)


async def _leave_when_told(one: Client) -> None:
    while one.closed is None and await one.read():
        pass
    await one.leave()


def _folder_of(pid: int) -> Path:
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    (post,) = [line for line in variables if line.startswith(b"KIWI_GW_WORKER=")]
    return Path(json.loads(post.partition(b"=")[2])["folder"])


@pytest.mark.extended
async def test_clients_that_do_not_leave_hold_nobody_longer_than_the_drain(tmp_path: Path) -> None:
    async with gateway(tmp_path, config(drain_ms="500ms")) as running, crowd(running, 8):
        with trio.fail_after(5):
            assert await running.stop() == 0


async def test_a_second_signal_ends_all_at_once(tmp_path: Path) -> None:
    process = await _start(tmp_path, config(drain_ms="60s"))
    try:
        log = _Log(process)
        listening = await log.until("gateway listens")
        async with client(listening["addresses"][0], "ticks") as one:
            await one.subscribe()
            process.send_signal(signal.SIGTERM)
            await log.until("gateway stops")
            await log.until("gateway stops")  # of the parent and at least one worker
            process.send_signal(signal.SIGINT)
            with trio.fail_after(10):
                assert await process.wait() == 128 + signal.SIGINT
    finally:
        await _gone(process)


async def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    process = await _start(tmp_path, config())
    try:
        log = _Log(process)
        await log.until("gateway listens")
        workers = [line["pid"] for line in log.lines if line["event"] == "worker listens"]
        folder = _folder_of(workers[0])
        assert len(workers) == 2
        process.kill()
        with trio.fail_after(10):
            await log.rest()  # their standard error is ours: it ends with the last of them
            while any(map(alive, workers)):  # noqa: ASYNC110  (a process that ends closes that first)
                await trio.sleep(0.01)
        assert not folder.exists()
    finally:
        await _gone(process)


async def test_an_address_that_is_taken_is_said_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        for broken in (config(address=where), config(admin_address=where)):
            process = await _start(tmp_path, broken)
            with trio.fail_after(20):
                said = await _Log(process).rest()
                assert await process.wait() == 1
            assert said.count(f"cannot listen on {where}") == 1, said


@pytest.mark.extended
async def test_the_port_of_another_gateway_with_workers_is_taken(tmp_path: Path) -> None:
    async with gateway(tmp_path, config()) as running:
        (tmp_path / "other").mkdir()
        process = await _start(tmp_path / "other", config(address=running.address))
        with trio.fail_after(20):
            assert f"cannot listen on {running.address}" in await _Log(process).rest()
            assert await process.wait() == 1


async def test_what_no_worker_can_start_with_ends_the_gateway(tmp_path: Path) -> None:
    tls = {"cert": str(tmp_path / "no.crt"), "key": str(tmp_path / "no.key")}
    process = await _start(tmp_path, config(tls=tls))
    with trio.fail_after(30):
        said = await _Log(process).rest()
        assert await process.wait() == os.EX_CONFIG
    assert "no.crt" in said
    assert "worker replaced" not in said


ONE_OF_SEVERAL = """
import structlog
from kiwi_gw.api import PluginError, hookimpl

@hookimpl
def configure(context):
    if context.gateway_name == "alone" and context.workers > 1:
        raise PluginError(f"not with {context.workers} workers")
    structlog.get_logger("told").info("told", number=context.worker, of=context.workers)
"""


def plugged(folder: Path, **more: object) -> tuple[dict[str, object], dict[str, str]]:
    """A configuration with a plugin that logs which worker it is told to be in, and its environment."""
    (folder / "one_of_several.py").write_text(
        ONE_OF_SEVERAL + "\nimport sys\nplugin = sys.modules[__name__]\n"
    )
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**config(**more), "plugins": ["one_of_several:plugin"]}, {"PYTHONPATH": os.pathsep.join(paths)}


@pytest.mark.parametrize("workers", [1, 2])
async def test_plugins_are_told_which_worker_it_is(tmp_path: Path, workers: int) -> None:
    settings, env = plugged(tmp_path, workers=workers)
    async with gateway(tmp_path, settings, env=env) as running:
        for number in range(workers):
            await running.logged("told", number=number, of=workers)


@pytest.mark.extended
async def test_a_plugin_that_cannot_work_in_several_ends_them_all(tmp_path: Path) -> None:
    settings, env = plugged(tmp_path)
    process = await _start(tmp_path, {**settings, "name": "alone"}, env)
    with trio.fail_after(30):
        said = await _Log(process).rest()
        assert await process.wait() == 1
    assert "a plugin refuses the configuration: not with 2 workers" in said
    assert "Traceback" not in said


@pytest.mark.extended
async def test_they_share_a_unix_socket(tmp_path: Path) -> None:
    path, admin = tmp_path / "public.sock", tmp_path / "admin.sock"
    # A list with a TCP port: that is how the other tests' clients get in.
    where = config(address=["127.0.0.1:0", f"unix:{path}"], admin_address=f"unix:{admin}")
    async with gateway(tmp_path, where) as running:
        for _ in range(10):
            for socket_file, target in ((path, "/livez"), (admin, "/metrics")):
                async with await trio.open_unix_socket(str(socket_file)) as stream:
                    await stream.send_all(
                        f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
                    )
                    assert (await stream.receive_some(100)).startswith(b"HTTP/1.1 200")
        os.kill(pid_of(running, 0), signal.SIGTERM)  # one that leaves does not take it along
        await running.logged("worker replaced", worker=0)
        assert path.exists()
        running.log = [line for line in running.log if line["event"] != "worker ended"]
    assert not path.exists()
    assert not admin.exists()


# --- a gateway that is not expected to end well -------------------------------------------------


async def _start(
    folder: Path, settings: dict[str, object], env: dict[str, str] | None = None
) -> trio.Process:
    path = folder / "kiwi-gw.yml"
    path.write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "kiwi_gw", "run", "--config", str(path)]
    return await trio.lowlevel.open_process(
        command, stderr=subprocess.PIPE, env={**os.environ, **(env or {})}
    )


async def _gone(process: trio.Process) -> None:
    with trio.CancelScope(shield=True):
        process.kill()
        await process.wait()


class _Log:
    """What it and its workers write. lines: those that are JSON, so far."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stderr is not None
        self._stream = process.stderr
        self._rest = b""
        self._read = 0
        self.lines: list[dict[str, Any]] = []
        self.text = ""

    async def until(self, event: str) -> dict[str, Any]:
        """The next line with this event."""
        with trio.fail_after(30):
            while True:
                while self._read < len(self.lines):
                    self._read += 1
                    if self.lines[self._read - 1]["event"] == event:
                        return self.lines[self._read - 1]
                assert await self._more(), self.text

    async def rest(self) -> str:
        """All of it, as soon as nobody can write any more."""
        while await self._more():
            pass
        await self._stream.aclose()
        return self.text

    async def _more(self) -> bool:
        chunk = bytes(await self._stream.receive_some())
        self.text += chunk.decode()
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self.lines += [json.loads(line) for line in lines if line.startswith(b"{")]
        return bool(chunk)


async def answer(address: str, request: bytes) -> tuple[int, bytes]:
    """Status and body of the answer to one request head."""
    host, _, port = address.rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        status, _, body = await WireClient(stream).request(request)
        return status, body


async def test_a_ticket_is_used_once_whichever_worker_gets_it(tmp_path: Path) -> None:
    secret = "a-static-token-of-the-tests-0123456789"
    roles = {"reader": {"sources": ["ticks"]}}
    static = [{"name": "ann", "token": secret, "roles": ["reader"]}]
    tokens = {"tokens": {"roles": roles, "static": static}}
    async with gateway(tmp_path, {**config(admin_address=None), **tokens}) as running:
        bearer = f"Host: {running.address}\r\nAuthorization: Bearer {secret}"
        post = f"POST /api/v1/ticket HTTP/1.1\r\n{bearer}\r\n\r\n"
        slots = set()
        for _ in range(16):
            status, body = await answer(running.address, post.encode())
            assert status == 200, body
            text = json.loads(body)["ticket"]
            slots.add(text.split(".")[1])
            statuses: list[int] = []

            async def use(text: str = text, statuses: list[int] = statuses) -> None:
                statuses.append((await answer(running.address, upgrade(f"/?ticket={text}")))[0])

            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    nursery.start_soon(use)
            assert sorted(statuses) == [101] + [401] * 7
        assert slots == {"0", "1"}
        assert secret not in repr(running.log)
        assert text.rpartition(".")[2] not in repr(running.log)


async def test_the_process_that_starts_them_speaks_to_the_service_manager(tmp_path: Path) -> None:
    """And none of the workers does: the manager would take the first of them for all."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "600000000"}
        async with gateway(tmp_path, config(), env=environ) as running:
            assert await running.stop() == 0
        manager.setblocking(False)
        told = []
        with suppress(BlockingIOError):
            while True:
                told.append(manager.recv(4096))
    assert sorted(told) == [b"READY=1", b"STOPPING=1", b"WATCHDOG=1"]
