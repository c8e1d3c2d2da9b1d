"""Whether the gateway lives and whether it is ready, for orchestrators and for people.

`/health` is the original Kiwi's: it answers 200 as long as the process does. `/livez` is the same under the
usual name; that it answers at all shows that the event loop turns. `/readyz` answers 503 while the gateway
starts, drains or has no memory left for new clients, and lists the sources.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, Protocol
from urllib.parse import parse_qsl

import msgspec

from kiwi_gw.edge.asgi import App, Receive, Scope, Send, respond
from kiwi_gw.edge.routing import Routes

NO_STORE = ((b"cache-control", b"no-store"),)

_REFUSING = 2

Lists = Callable[[Scope], Awaitable[bool]]
"""Whether whoever sent a request may know the names of the sources."""


async def everybody(scope: Scope) -> bool:
    return True


class SourceHealth(NamedTuple):
    """One source: its state in a word, and a sentence about what is wrong (empty if nothing is)."""

    id: str
    type: str
    state: str
    message: str


class HealthView(Protocol):
    """What the gateway tells about itself. Read anew for every request."""

    @property
    def sources(self) -> Iterable[SourceHealth]: ...

    @property
    def ready(self) -> bool:
        """Whether the gateway has started: new clients would be served."""

    @property
    def draining(self) -> bool:
        """Whether it is shutting down."""

    @property
    def overload(self) -> int:
        """0; 1: memory is short; 2: so short that new clients would not be served."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What somebody should mend, in sentences."""


def add_health_routes(
    routes: Routes, view: HealthView, *, healthcheck: bool = True, lists: Lists = everybody
) -> None:
    """Serve `/livez`, `/readyz` and, if the configuration says so, `/health`."""
    if healthcheck:
        routes.add_http("GET", "/health", alive)
    routes.add_http("GET", "/livez", alive)
    routes.add_http("GET", "/readyz", readiness(view, lists))


async def alive(scope: Scope, receive: Receive, send: Send) -> None:
    """ASGI application: 200 `OK`."""
    await respond(send, 200, b"OK\n", headers=NO_STORE)


def readiness(view: HealthView, lists: Lists = everybody) -> App:
    """ASGI application: 200 or 503 with a JSON body.

    `{"ready", "draining", "overload", "sources": [{"id", "state"}]}`; with `?verbose` each source has its
    `type` and `message` too, and there are `warnings`. Whoever may not know the sources gets the rest.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        verbose = query.get("verbose", "0").lower() not in ("0", "false", "no")
        ready = view.ready and not view.draining and view.overload < _REFUSING
        body: dict[str, object] = {"ready": ready, "draining": view.draining, "overload": view.overload}
        if await lists(scope):
            if verbose:
                body["sources"] = [source._asdict() for source in view.sources]
                body["warnings"] = view.warnings
            else:
                body["sources"] = [{"id": source.id, "state": source.state} for source in view.sources]
        await respond(
            send, 200 if ready else 503, msgspec.json.encode(body) + b"\n", b"application/json", NO_STORE
        )

    return app
