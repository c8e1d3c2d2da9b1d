"""A whole gateway inside a test: real sockets, real configuration, in the test's own event loop."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from kiwi_gw import app
from kiwi_gw.config import LoadedConfig, load
from kiwi_gw.edge.listener import Listener
from kiwi_gw.plugin_manager import PluginManager
from kiwi_gw.runtime.gateway import Gateway
from kiwi_gw.runtime.reload import Reloader

_NO_PLUGINS: Mapping[str, object] = {}
_NO_ENVIRON: Mapping[str, str] = {}


@dataclass(slots=True)
class _Over:
    event: trio.Event = field(default_factory=trio.Event)
    exit_code: int = 0


class GatewayUnderTest:
    """A gateway that runs. Made by `open_gateway`.

    file: its configuration; the gateway applies what a test writes there, as it does in production.
    """

    def __init__(
        self, file: Path, running: app.RunningGateway, signals: trio.MemorySendChannel[int], over: _Over
    ) -> None:
        self.file = file
        self._running = running
        self._signals = signals
        self._over = over

    @property
    def gateway(self) -> Gateway:
        return self._running.gateway

    @property
    def listener(self) -> Listener:
        return self._running.listener

    @property
    def reloader(self) -> Reloader:
        return self._running.reloader

    @property
    def addresses(self) -> list[str]:
        """Where it listens: `127.0.0.1:40123` or `unix:/path`. Empty once it stops."""
        return self.listener.addresses

    @property
    def admin_address(self) -> str:
        """Where operators look, if `open_gateway` was given an `admin`."""
        assert self._running.admin is not None, "open_gateway(admin=...)"  # noqa: S101
        return self._running.admin.addresses[0]

    @property
    def address(self) -> str:
        """The first of `addresses`."""
        return self.addresses[0]

    async def connect(self) -> trio.SocketStream:
        """Open a plain connection to the first address."""
        if self.address.startswith("unix:"):
            return await trio.open_unix_socket(self.address.removeprefix("unix:"))
        host, _, port = self.address.rpartition(":")
        return await trio.open_tcp_stream(host.strip("[]"), int(port))

    def send_signal(self, number: int) -> None:
        """Act as if the process got this signal: SIGHUP reloads, any other stops, two stop at once."""
        self._signals.send_nowait(number)

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """Send it a signal and wait until it has stopped. Returns the exit code."""
        self.send_signal(number)
        return await self.wait_stopped()

    async def wait_stopped(self) -> int:
        """Wait until it has stopped by itself. Return the exit code."""
        await self._over.event.wait()
        return self._over.exit_code


@asynccontextmanager
async def open_gateway(
    config: str | Path,
    *,
    plugins: Mapping[str, object] = _NO_PLUGINS,
    address: str | None = "127.0.0.1:0",
    admin: str | None = None,
    environ: Mapping[str, str] = _NO_ENVIRON,
) -> AsyncIterator[GatewayUnderTest]:
    """Run a gateway while the block runs. It lets clients in, and its sources are starting, when the block
    begins.

        CONFIG = '''
        plugins: [scripted, mine]
        sources:
          - {type: scripted, id: news}
        '''

        async def test_mine_hides_the_second_event():
            scripted = ScriptedSources()
            async with open_gateway(CONFIG, plugins={"scripted": scripted, "mine": my_module}) as gateway:
                async with open_websocket_url(f"ws://{gateway.address}/") as client:
                    await client.send_message('{"type": "SUBSCRIBE", "sourceId": "news"}')
                    ...

    config: the text of a configuration, or a file that has it. plugins: objects with hooks, by the names
    under which the configuration has them in `plugins`; others are found as always. address: where to
    listen instead of `server.address` (port 0: any free one; `unix:/path`); None: as the configuration
    says. admin: the admin address, instead of `server.admin_address`; None: none at all. environ: the
    environment.

    Raises ConfigError for a configuration that cannot be used, and what starting the gateway raises. At the
    end of the block the gateway is cancelled; to see it stop in good order, call `stop`. What the block
    raises comes out as it is, not in an exception group.
    """
    failure: Exception | None = None
    with TemporaryDirectory(prefix="kiwi-gw-") as folder:
        environ = {**environ, "KIWI_GW_SERVER__ADMIN_ADDRESS": admin or "null"}
        loaded = _load(config, Path(folder), plugins, address, environ)
        signals, received = trio.open_memory_channel[int](8)
        over = _Over()
        async with trio.open_nursery() as nursery, signals, received:

            async def run(*, task_status: trio.TaskStatus[app.RunningGateway]) -> None:
                over.exit_code = await app.run(loaded, received, task_status=task_status)
                over.event.set()

            running: app.RunningGateway = await nursery.start(run)
            await running.gateway.wait_warmed_up()
            try:
                yield GatewayUnderTest(loaded.path, running, signals, over)
            except Exception as error:  # noqa: BLE001  raised again below, outside of the nursery
                failure = error
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _load(
    config: str | Path,
    folder: Path,
    plugins: Mapping[str, object],
    address: str | None,
    environ: Mapping[str, str],
) -> LoadedConfig:
    known = PluginManager()
    for name, plugin in plugins.items():
        known.register(plugin, name)
    if isinstance(config, str):
        file = folder / "kiwi.yml"
        file.write_text(config)
    else:
        file = config
    overrides = {} if address is None else {"KIWI_GW_SERVER__ADDRESS": address}
    return load(file, {**environ, **overrides}, known)
