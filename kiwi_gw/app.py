"""The composition root: puts configuration, plugins, dialects, runtime and edge together, and runs them."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
import trio

from kiwi_gw import __version__, logs
from kiwi_gw.config import Address, Loaded, UnixAddress, load
from kiwi_gw.dialects.base import Dialect
from kiwi_gw.dialects.kiwi import KiwiDialect
from kiwi_gw.edge.admin.access import Access
from kiwi_gw.edge.admin.app import add_admin_routes
from kiwi_gw.edge.admin.fleet import Alone
from kiwi_gw.edge.asgi import Scope
from kiwi_gw.edge.health import SourceHealth, add_health_routes
from kiwi_gw.edge.listener import Listener, ListenError, listen
from kiwi_gw.edge.metrics.collect import Collector
from kiwi_gw.edge.routing import Routes
from kiwi_gw.edge.tls import Certificates
from kiwi_gw.runtime.gateway import Gateway
from kiwi_gw.runtime.reload import Reloader

log = structlog.get_logger(__name__)


_CLEAN_UP_SECONDS = 2.0
"""How long sources and services may take to stop once every client is gone."""

_AT_ONCE_SECONDS = 0.2
"""The same after a second signal."""


@dataclass(frozen=True, slots=True)
class Running:
    """The parts of a gateway that runs, for tests and for whoever embeds it. admin: None without that
    address."""

    gateway: Gateway
    listener: Listener
    reloader: Reloader
    admin: Listener | None


@dataclass(frozen=True, slots=True)
class _Health:
    """`edge.health.HealthView` over the gateway."""

    gateway: Gateway

    @property
    def sources(self) -> Iterable[SourceHealth]:
        for runner in self.gateway.runners():
            info = runner.feed.info
            yield SourceHealth(info.id, info.type, runner.feed.state.value, runner.last_error)

    @property
    def ready(self) -> bool:
        return self.gateway.started

    @property
    def draining(self) -> bool:
        return self.gateway.draining

    @property
    def warnings(self) -> tuple[str, ...]:
        return exposure_warnings(self.gateway.loaded)


def serve(config: Path, environ: Mapping[str, str]) -> int:
    """Run a gateway on a configuration file until a signal ends it. Returns the exit code.

    Raises ConfigError for a configuration that cannot be used, KiwiError for what else is in the way
    of starting (an address in use, certificates that do not fit).
    """
    loaded = load(config, environ)
    logs.configure(loaded.settings.logging.level, loaded.settings.logging.format, sys.stderr)
    # Reference counting frees nearly everything; looking for cycles as often as by default costs a tenth.
    gc.set_threshold(50_000, 20, 100)
    return trio.run(_main, loaded, strict_exception_groups=True)


async def _main(loaded: Loaded) -> int:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        return await run(loaded, signals, leave=_leave)


def _leave(seconds: float, code: int) -> None:
    """End the process with this code in so many seconds, whatever a plugin's clean-up still waits for."""

    def now() -> None:
        log.error("a clean-up did not end in time; leaving without it", code=code)
        sys.stderr.flush()
        os._exit(code)

    timer = threading.Timer(seconds, now)
    timer.daemon = True
    timer.start()


async def run(
    loaded: Loaded,
    signals: AsyncIterator[int],
    dialects: Sequence[Dialect] = (),
    *,
    leave: Callable[[float, int], None] | None = None,
    task_status: trio.TaskStatus[Running] = trio.TASK_STATUS_IGNORED,
) -> int:
    """The whole gateway. SIGHUP reloads, any other signal stops, a second one at once.

    dialects: served beside the gateway's own, on paths of their own. leave: ends the process after so
    many seconds with that exit code, for sources that do not let themselves be stopped.
    """
    gateway = Gateway(loaded)
    listener = open_listener(gateway, dialects)

    def applied(loaded: Loaded) -> None:
        logs.set_level(loaded.settings.logging.level)
        listener.use_certificates(_certificates(loaded))

    reloader = Reloader(gateway, applied)
    try:
        admin = open_admin(gateway, listener, reloader, dialects)
    except BaseException:
        listener.stop_accepting()
        raise
    for warning in exposure_warnings(loaded):
        log.warning(warning)
    code = 0
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(gateway.run)
            await nursery.start(listener.run)
            if admin is not None:
                await nursery.start(admin.run)
            nursery.start_soon(reloader.watch)
            gc.freeze()  # what was made for the start stays: no collection need look at it again
            operators = admin.addresses[0] if admin is not None else None
            log.info("gateway listens", addresses=listener.addresses, admin=operators, version=__version__)
            task_status.started(Running(gateway, listener, reloader, admin))
            async for number in signals:
                if number != signal.SIGHUP:
                    break
                reloader.ask()

            async def leave_at_once() -> None:
                nonlocal code
                async for number in signals:
                    if number != signal.SIGHUP:
                        code = 128 + number
                        if leave is not None:
                            leave(_AT_ONCE_SECONDS, code)
                        nursery.cancel_scope.cancel()

            nursery.start_soon(leave_at_once)
            log.info("gateway stops", connections=len(gateway.connections))
            gc.freeze()  # what lives now dies with the process: collecting it would cost a third of the stop
            gateway.draining = True
            listener.stop_accepting()
            await gateway.drain("draining", gateway.loaded.settings.server.drain_ms / 1000)
            if leave is not None:
                leave(_CLEAN_UP_SECONDS, 1)
            nursery.cancel_scope.cancel()
    finally:
        listener.stop_accepting()
        if admin is not None:
            admin.stop_accepting()
    log.info("gateway stopped")
    return code


def open_listener(gateway: Gateway, dialects: Sequence[Dialect] = ()) -> Listener:
    """Open the ports of a gateway's configuration, with everything that is served on them."""
    settings = gateway.loaded.settings
    routes = Routes()
    for dialect in _served(gateway, dialects):
        routes.add_websocket(dialect)
    access = Access(gateway)

    async def lists(scope: Scope) -> bool:
        return access.open  # where clients must say who they are, names of sources are not for everybody

    add_health_routes(routes, _Health(gateway), healthcheck=settings.server.healthcheck, lists=lists)
    sockets: list[socket.socket] = []
    try:
        sockets.extend(listen(address) for address in settings.server.addresses)
        return Listener(gateway, routes, sockets, _certificates(gateway.loaded))
    except BaseException:
        for sock in sockets:
            sock.close()
        raise


def open_admin(
    gateway: Gateway, listener: Listener, reloader: Reloader, dialects: Sequence[Dialect] = ()
) -> Listener | None:
    """Open the admin address, if there is one. Raises ListenError where one was asked for and is taken."""
    settings = gateway.loaded.settings
    address = settings.server.admin
    if address is None:
        return None
    try:
        sock = listen(address)
    except ListenError as error:
        if settings.server.admin_wanted:
            raise ListenError(f"{error} (server.admin_address; null: without it)") from error
        # Nobody asked for it, and a gateway that worked yesterday must not fail for want of it.
        log.warning("no metrics and no admin address; set server.admin_address", problem=str(error))
        return None
    names = [dialect.name for dialect in _served(gateway, dialects)]
    collector = Collector(gateway, listener, reloader, names) if gateway.measured else None
    fleet = Alone(gateway, collector)
    routes = Routes()
    add_admin_routes(routes, fleet, Access(gateway), _Health(gateway), measured=fleet.measured)
    return Listener(gateway, routes, [sock], None)


def _served(gateway: Gateway, more: Sequence[Dialect]) -> tuple[Dialect, ...]:
    settings = gateway.loaded.settings
    limits = settings.server.limits
    return (KiwiDialect(settings.kiwi.envelope, settings.window.event_bytes, limits.max_message_bytes), *more)


def _certificates(loaded: Loaded) -> Certificates | None:
    tls = loaded.settings.server.tls
    if tls is None:
        return None
    return Certificates(Path(tls.cert), Path(tls.key), Path(tls.client_ca) if tls.client_ca else None)


def exposure_warnings(loaded: Loaded) -> tuple[str, ...]:
    """What an operator should know about who can reach this gateway."""
    if loaded.plugins.hook.authenticate.get_hookimpls():
        return ()
    cure = "no plugin authenticates clients (add a `tokens:` section, or listen on loopback)"
    server = loaded.settings.server
    public = tuple(
        f"anyone who reaches {address} can read every source: {cure}"
        for address in server.addresses
        if not _loopback(address)
    )
    if server.admin is None or _loopback(server.admin):
        return public
    return (*public, f"anyone who reaches {server.admin} can see and cut every connection: {cure}")


def _loopback(address: Address) -> bool:
    if isinstance(address, UnixAddress):
        return True
    return address.host in ("localhost", "::1") or address.host.startswith("127.")
