"""The composition root: puts configuration, plugins, dialects, runtime and edge together, and runs them."""

from __future__ import annotations

import gc
import os
import secrets
import shutil
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
import trio

from kiwi_gw import __version__, logs
from kiwi_gw.config import Limits, Loaded, load
from kiwi_gw.dialects.base import Dialect
from kiwi_gw.dialects.front import Front
from kiwi_gw.dialects.kiwi import KiwiDialect
from kiwi_gw.dialects.zetta import ZettaDialect, siren
from kiwi_gw.edge.admin.access import Access
from kiwi_gw.edge.admin.address import admin_socket, is_local
from kiwi_gw.edge.admin.app import add_admin_routes
from kiwi_gw.edge.admin.book import Book
from kiwi_gw.edge.admin.fleet import Alone, Fleet
from kiwi_gw.edge.admin.private import add_private_routes
from kiwi_gw.edge.admin.team import Team
from kiwi_gw.edge.admission import Admission
from kiwi_gw.edge.asgi import Scope, answering
from kiwi_gw.edge.descriptors import raise_limit
from kiwi_gw.edge.health import SourceHealth, add_health_routes
from kiwi_gw.edge.listener import Listener, listen
from kiwi_gw.edge.metrics.collect import Collector
from kiwi_gw.edge.routing import Routes
from kiwi_gw.edge.ticket_office import add_ticket_routes
from kiwi_gw.edge.tickets import InFolder, Tickets
from kiwi_gw.edge.tls import Certificates, check_certificates
from kiwi_gw.query.warm import warm
from kiwi_gw.runtime.gateway import Gateway
from kiwi_gw.runtime.loop_watch import LoopWatch
from kiwi_gw.runtime.reload import Reloader
from kiwi_gw.workers.post import LISTENING, Post, post_of, socket_of
from kiwi_gw.workers.supervisor import Supervisor

log = structlog.get_logger(__name__)


_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_CLEAN_UP_SECONDS = 10.0
"""How long sources and services may take to stop once every client is gone: on a busy machine a JVM does."""

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
            yield SourceHealth(
                info.id, info.type, runner.feed.state.value, runner.last_error or runner.feed.trouble
            )

    @property
    def ready(self) -> bool:
        return self.gateway.started

    @property
    def draining(self) -> bool:
        return self.gateway.draining

    @property
    def overload(self) -> int:
        return self.gateway.memory_watch.level

    @property
    def warnings(self) -> tuple[str, ...]:
        return (*exposure_warnings(self.gateway.loaded), *logs.warnings())


def serve(config: Path, environ: Mapping[str, str]) -> int:
    """Run a gateway on a configuration file until a signal ends it. Returns the exit code.

    Raises ConfigError for a configuration that cannot be used, with its certificates, and KiwiError for what
    else is in the way of starting (an address in use).
    """
    loaded = load(config, environ)
    check_certificates(loaded)
    logs.configure(loaded.settings.logging.level, loaded.settings.logging.format, sys.stderr)
    post = post_of(environ)
    if post is None and loaded.settings.server.workers > 1:
        return trio.run(_supervise, loaded, strict_exception_groups=True)
    if (warning := raise_limit(loaded.settings.server.limits.max_connections)) is not None:
        log.warning(warning)
    # Reference counting frees nearly everything; looking for cycles as often as by default costs a tenth. But
    # everybody waits for a collection, so each looks at little: 50,000 objects took 12 to 35 ms.
    gc.set_threshold(5_000, 3, 300)
    if post is None:
        return trio.run(_main, loaded, strict_exception_groups=True)
    structlog.contextvars.bind_contextvars(worker=post.slot)
    return trio.run(_work, loaded, post, strict_exception_groups=True)


async def _main(loaded: Loaded) -> int:
    with trio.open_signal_receiver(*_SIGNALS) as signals:
        return await run(loaded, signals, leave=_leave)


async def _supervise(loaded: Loaded) -> int:
    for warning in exposure_warnings(loaded):
        log.warning(warning)
    with trio.open_signal_receiver(*_SIGNALS) as signals:
        return await Supervisor(loaded).run(signals)


async def _work(loaded: Loaded, post: Post) -> int:
    """One worker: ends like a gateway, and when the process that started it is gone."""
    send, received = trio.open_memory_channel[int](8)
    with trio.open_signal_receiver(*_SIGNALS) as signals:
        async with trio.open_nursery() as nursery, send, received:

            async def pass_on() -> None:
                async for number in signals:
                    await send.send(number)

            async def outlive_nobody() -> None:
                async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
                    async for _ in stdin:
                        pass
                log.error("the process that started this worker is gone")
                shutil.rmtree(post.folder, ignore_errors=True)
                await send.send(signal.SIGTERM)

            nursery.start_soon(pass_on)
            nursery.start_soon(outlive_nobody)
            code = await run(loaded, received, leave=_leave, post=post)
            nursery.cancel_scope.cancel()
    return code


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
    post: Post | None = None,
    task_status: trio.TaskStatus[Running] = trio.TASK_STATUS_IGNORED,
) -> int:
    """The whole gateway. SIGHUP reloads, any other signal stops, a second one at once.

    dialects: served beside the gateway's own, on paths of their own. leave: ends the process after so
    many seconds with that exit code, for sources that do not let themselves be stopped. post: if this is one
    of several workers.
    """
    worker, workers = (post.slot, post.workers) if post is not None else (0, 1)
    gateway = Gateway(loaded, worker=worker, workers=workers)
    listener = open_listener(gateway, dialects, post)

    said = exposure_warnings(loaded)

    def applied(loaded: Loaded) -> None:
        nonlocal said
        logs.set_level(loaded.settings.logging.level)
        before, said = said, exposure_warnings(loaded)
        if worker == 0:
            for warning in said:
                if warning not in before:
                    log.warning(warning)
        listener.use_certificates(_certificates(loaded))

    reloader = Reloader(gateway, applied)
    try:
        names = [dialect.name for dialect in _served(gateway, dialects)]
        collector = Collector(gateway, listener, reloader, names) if gateway.measured else None
        alone = Alone(gateway, collector, lone=post is None)
        admin = open_admin(gateway, alone, post)
        private = open_private(gateway, alone, post) if post is not None else None
    except BaseException:
        listener.stop_accepting()
        raise
    own = [item for item in (admin, private) if item is not None]
    if post is None:  # else the process that started it has said so
        for warning in said:
            log.warning(warning)
    code = 0
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(gateway.run)
            await trio.to_thread.run_sync(warm)  # before anybody can ask: parsers are for one thread
            await nursery.start(listener.run)
            for item in own:
                await nursery.start(item.run)
            nursery.start_soon(reloader.watch)
            nursery.start_soon(LoopWatch().run)
            gc.freeze()  # what was made for the start stays: no collection need look at it again
            _announce(listener, admin, post)
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
        for item in own:
            item.stop_accepting()
    log.info("gateway stopped")
    return code


def _announce(listener: Listener, admin: Listener | None, post: Post | None) -> None:
    if post is not None:
        log.info("worker listens", pid=os.getpid())
        os.write(sys.stdout.fileno(), LISTENING)
        return
    operators = admin.addresses[0] if admin is not None else None
    log.info("gateway listens", addresses=listener.addresses, admin=operators, version=__version__)


def open_listener(gateway: Gateway, dialects: Sequence[Dialect] = (), post: Post | None = None) -> Listener:
    """Open the ports of a gateway's configuration, with everything that is served on them."""
    settings = gateway.loaded.settings
    routes = Routes()
    served = _served(gateway, dialects)
    for dialect in served:
        routes.add_websocket(dialect)
    documents = {siren.MEDIA_TYPE: siren.root} if settings.zetta.enabled else {}
    routes.add_http("GET", "/", answering(Front(settings.name, served, documents).answer))

    async def lists(scope: Scope) -> bool:
        # Where clients must say who they are, or may not read everything, names are not for everybody.
        return not (gateway.hooks.authenticates or gateway.loaded.plugins.implements("authorize"))

    def own_origins() -> Sequence[str]:
        return gateway.loaded.settings.server.allowed_origins

    add_health_routes(routes, _Health(gateway), healthcheck=settings.server.healthcheck, lists=lists)
    tickets = _tickets(gateway, post)
    admission = Admission(lambda: gateway.loaded.settings.server.limits)
    add_ticket_routes(routes, gateway, tickets, admission)
    sockets: list[socket.socket] = []
    try:
        if post is None:
            mode = settings.server.unix_mode_bits
            sockets.extend(listen(address, mode=mode) for address in settings.server.addresses)
        else:
            sockets.extend(place.open() for place in post.public)
        return Listener(
            gateway,
            routes,
            sockets,
            _certificates(gateway.loaded),
            owns_paths=post is None,
            own_origins=own_origins,
            tickets=tickets,
            admission=admission,
        )
    except BaseException:
        for sock in sockets:
            sock.close()
        raise


def _tickets(gateway: Gateway, post: Post | None) -> Tickets:
    """Of this process alone, or those that all workers take."""

    def limits() -> Limits:
        return gateway.loaded.settings.server.limits

    if post is None:
        return Tickets(limits, secrets.token_hex(8))
    store = InFolder(Path(post.folder) / "tickets", f"{post.slot}-")
    return Tickets(limits, post.start, post.slot, store)


def open_admin(gateway: Gateway, alone: Alone, post: Post | None = None) -> Listener | None:
    """Open the admin address, if there is one. Raises ListenError where one was asked for and is taken."""
    fleet: Fleet = alone
    if post is not None:
        folder = Path(post.folder)
        paths = [Path(socket_of(folder, slot).path) for slot in range(post.workers)]
        fleet = Team(alone, post.slot, post.restarts, paths, Book(folder, post.workers))
        sock = post.admin.open() if post.admin is not None else None
    else:
        server = gateway.loaded.settings.server
        sock = admin_socket(server, partial(listen, mode=server.unix_mode_bits))
    if sock is None:
        return None
    routes = Routes()
    access = Access(gateway, local=is_local(sock))
    add_admin_routes(routes, fleet, access, _Health(gateway), measured=gateway.measured)
    return Listener(gateway, routes, [sock], None, owns_paths=post is None)


def open_private(gateway: Gateway, alone: Alone, post: Post) -> Listener:
    """Open where the other workers may ask this one."""
    routes = Routes()
    add_private_routes(routes, alone, post.restarts)
    return Listener(gateway, routes, [listen(post.own_socket)], None)


def _served(gateway: Gateway, more: Sequence[Dialect]) -> tuple[Dialect, ...]:
    settings = gateway.loaded.settings
    event_bytes, message_bytes = settings.window.event_bytes, settings.server.limits.max_message_bytes
    kiwi = KiwiDialect(settings.kiwi.envelope, event_bytes, message_bytes, settings.kiwi.unknown_members)
    zetta = ZettaDialect(settings.zetta.name or settings.name, event_bytes, message_bytes)
    return (kiwi, *([zetta] if settings.zetta.enabled else []), *more)


def _certificates(loaded: Loaded) -> Certificates | None:
    tls = loaded.settings.server.tls
    return None if tls is None else Certificates.of(tls)


def exposure_warnings(loaded: Loaded) -> tuple[str, ...]:
    """What an operator should know about who can reach this gateway."""
    if loaded.plugins.implements("authenticate"):
        return ()
    cure = "no plugin authenticates clients (add a `tokens:` section, or listen on loopback)"
    server = loaded.settings.server
    public = tuple(
        f"anyone who reaches {address} can read every source: {cure}"
        for address in server.addresses
        if not address.local
    )
    if server.admin is None or server.admin.local:
        return public
    can = "see and cut every connection" if server.admin_unauthenticated else "see metrics, and nothing else"
    return (*public, f"anyone who reaches {server.admin} can {can}: {cure}")
