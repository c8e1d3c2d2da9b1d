"""The addresses of a gateway, and what is served on each: for clients, operators and its other workers."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from kiwi_gw import logs
from kiwi_gw.config import LimitSettings, LoadedConfig
from kiwi_gw.config.exposure import exposure_warnings
from kiwi_gw.dialect_api import Dialect, DialectContext, ErrorPages, WebSocketRoute
from kiwi_gw.edge.admin.access import AdminAccess
from kiwi_gw.edge.admin.address import admin_socket, is_local
from kiwi_gw.edge.admin.admin_view import AdminView, LocalAdmin
from kiwi_gw.edge.admin.app import add_admin_routes
from kiwi_gw.edge.admin.cluster_admin import ClusterAdmin
from kiwi_gw.edge.admin.counter_store import CounterStore
from kiwi_gw.edge.admin.worker_api import add_private_routes
from kiwi_gw.edge.admission import Admission
from kiwi_gw.edge.cors import preflight
from kiwi_gw.edge.dialect_http import described, dialect_handler
from kiwi_gw.edge.health import GatewayHealth, SourceHealth, add_health_routes
from kiwi_gw.edge.landing_page import LandingPage
from kiwi_gw.edge.listener import Listener, listen
from kiwi_gw.edge.plain_request import PlainRequest
from kiwi_gw.edge.routing import Routes
from kiwi_gw.edge.ticket_office import add_ticket_routes
from kiwi_gw.edge.tickets import FolderTicketStore, Tickets
from kiwi_gw.edge.tls import Certificates
from kiwi_gw.errors import PluginError
from kiwi_gw.runtime.gateway import Gateway
from kiwi_gw.workers.worker_config import WorkerConfig, socket_of


def _health(gateway: Gateway) -> GatewayHealth:
    sources = tuple(
        SourceHealth(
            runner.hub.info.id,
            runner.hub.info.type,
            runner.hub.state.value,
            runner.last_error or runner.hub.degradation,
        )
        for runner in gateway.runners()
    )
    warnings = (*exposure_warnings(gateway.loaded), *logs.warnings())
    return GatewayHealth(gateway.started, gateway.draining, gateway.memory_watch.level, warnings, sources)


def build_dialects(loaded: LoadedConfig, worker_config: WorkerConfig | None = None) -> dict[str, Dialect]:
    """Build the protocols that are served, by name. Raises PluginError."""
    settings, served = loaded.settings, {}
    context = DialectContext(settings.name, settings.window.event_bytes)
    if worker_config is not None:
        context = replace(
            context,
            workers=worker_config.workers,
            worker_port=worker_config.own_port,
            secret=bytes.fromhex(worker_config.secret),
        )
    for name, kind in loaded.plugins.dialect_types().items():
        try:
            dialect = kind.build(settings.dialects[name], context)
        except Exception as error:
            raise PluginError(f"protocol {name!r} cannot be built: {error}") from error
        if dialect is not None:
            served[name] = dialect
    return served


def served_names(dialects: Mapping[str, Dialect]) -> list[str]:
    """Return what metrics and logs call the protocols that connections speak."""
    routes = ((name, route) for name, dialect in dialects.items() for route in dialect.routes)
    names = (route.dialect or name for name, route in routes if isinstance(route, WebSocketRoute))
    return list(dict.fromkeys(names))


def open_listener(
    gateway: Gateway, dialects: Mapping[str, Dialect], worker_config: WorkerConfig | None = None
) -> Listener:
    """Open the ports of a gateway's configuration, with everything that is served on them."""
    settings = gateway.loaded.settings
    routes = Routes(settings.server.limits.max_message_bytes)
    routes.add_http("GET", "/", LandingPage(settings.name, dialects).handle)

    async def lists(request: PlainRequest) -> bool:
        # Where clients must say who they are, or may not read everything, names are not public.
        return not (gateway.hooks.authenticates or gateway.loaded.plugins.implements("authorize"))

    def own_origins() -> Sequence[str]:
        return gateway.loaded.settings.server.allowed_origins

    add_health_routes(routes, partial(_health, gateway), healthcheck=settings.server.healthcheck, lists=lists)
    tickets = _tickets(gateway, worker_config)
    admission = Admission(gateway)
    add_ticket_routes(routes, gateway, tickets, admission)
    _add_dialects(routes, gateway, admission, dialects)
    routes.add_http("GET", "/openapi.json", described(settings.name, routes))
    sockets: list[socket.socket] = []
    try:
        if worker_config is None:
            mode = settings.server.unix_mode_bits
            sockets.extend(listen(address, mode=mode) for address in settings.server.addresses)
        else:
            sockets.extend(place.open() for place in (*worker_config.public, *worker_config.own))
        return Listener(
            gateway,
            routes,
            sockets,
            certificates(gateway.loaded),
            owns_paths=worker_config is None,
            own_origins=own_origins,
            tickets=tickets,
            admission=admission,
        )
    except BaseException:
        for sock in sockets:
            sock.close()
        raise


def _tickets(gateway: Gateway, worker_config: WorkerConfig | None) -> Tickets:
    """Return the tickets of this process alone, or those that all workers take."""

    def limits() -> LimitSettings:
        return gateway.limits

    if worker_config is None:
        return Tickets(limits, secrets.token_hex(8))
    store = FolderTicketStore(Path(worker_config.folder) / "tickets", f"{worker_config.slot}-")
    return Tickets(limits, worker_config.start, worker_config.slot, store)


def open_admin(
    gateway: Gateway, local_admin: LocalAdmin, worker_config: WorkerConfig | None = None
) -> Listener | None:
    """Open the admin address, if there is one. Raises ListenError where one was asked for and is taken."""
    admin_view: AdminView = local_admin
    if worker_config is not None:
        folder = Path(worker_config.folder)
        paths = [Path(socket_of(folder, slot).path) for slot in range(worker_config.workers)]
        admin_view = ClusterAdmin(
            local_admin,
            worker_config.slot,
            worker_config.restarts,
            paths,
            CounterStore(folder, worker_config.workers),
        )
        sock = worker_config.admin.open() if worker_config.admin is not None else None
    else:
        server = gateway.loaded.settings.server
        sock = admin_socket(server, partial(listen, mode=server.unix_mode_bits))
    if sock is None:
        return None
    routes = Routes()
    access = AdminAccess(gateway, local=is_local(sock))
    add_admin_routes(routes, admin_view, access, partial(_health, gateway), measured=gateway.measured)
    return Listener(gateway, routes, [sock], None, owns_paths=worker_config is None)


def open_private(gateway: Gateway, local_admin: LocalAdmin, worker_config: WorkerConfig) -> Listener:
    """Open the address at which the other workers may ask this one."""
    routes = Routes()
    add_private_routes(routes, local_admin, worker_config.restarts)
    return Listener(gateway, routes, [listen(worker_config.own_socket)], None)


def _add_dialects(
    routes: Routes, gateway: Gateway, admission: Admission, dialects: Mapping[str, Dialect]
) -> None:
    """Serve the protocols on their paths. Raises PluginError for a path that is taken or not valid."""
    for name, dialect in dialects.items():
        for route in dialect.routes:
            try:
                if isinstance(route, WebSocketRoute):
                    routes.add_websocket(route.dialect or name, dialect, route)
                elif isinstance(route, ErrorPages):
                    routes.add_error_pages(route)
                else:
                    routes.add(route.operation, dialect_handler(gateway, admission, route, name))
                    if route.pages and "OPTIONS" not in routes.methods(route.path):
                        answer = preflight(gateway, partial(routes.methods, route.path))
                        routes.add_http("OPTIONS", route.path, answer)
            except ValueError as error:
                raise PluginError(f"protocol {name!r} cannot be served: {error}") from error


def certificates(loaded: LoadedConfig) -> Certificates | None:
    tls = loaded.settings.server.tls
    return None if tls is None else Certificates.of(tls)
