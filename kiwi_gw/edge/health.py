"""Whether the gateway lives and whether it is ready, for orchestrators and for people.

`/health` is the original server's: it answers 200 as long as the process does. `/livez` is the same under the
usual name; that it answers at all shows that the event loop turns. `/readyz` answers 503 while the gateway
starts, drains or has no memory left for new clients, and lists the sources.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from kiwi_gw.dialect_api import HttpResponse, Operation, read_parameters
from kiwi_gw.edge.plain_request import NO_STORE, Handler, PlainRequest, json_response
from kiwi_gw.edge.routing import Routes

_REFUSING = 2

Lists = Callable[[PlainRequest], Awaitable[bool]]
"""Whether the sender of a request may know the names of the sources."""


async def anyone(request: PlainRequest) -> bool:
    return True


class SourceHealth(Struct, frozen=True):
    """One source: its state in a word, and a sentence about what is wrong (empty if nothing is)."""

    id: str
    type: str | UnsetType = UNSET
    state: str = ""
    message: str | UnsetType = UNSET


class ReadyParameters(Struct, frozen=True):
    """verbose: whether to say more of each source, and what should be mended; `0`, `false` or `no`: not."""

    verbose: str = "0"


class Readiness(Struct):
    """Whether new clients would be served. overload: 0; 1: memory is short; 2: too short for new clients."""

    ready: bool
    draining: bool
    overload: int
    sources: list[SourceHealth] | UnsetType = UNSET
    warnings: tuple[str, ...] | UnsetType = UNSET


HEALTH: Final = Operation("GET", "/health", "200 as long as the process lives.")
LIVEZ: Final = Operation("GET", "/livez", "200 as long as the process lives.")
READYZ: Final = Operation(
    "GET",
    "/readyz",
    "Whether new clients would be served.",
    ReadyParameters,
    answers={200: Readiness, 503: Readiness},
)


@dataclass(frozen=True, slots=True)
class GatewayHealth:
    """What the gateway says about itself. ready: it has started; draining: it is shutting down; overload: as
    in `Readiness`; warnings: what an operator should mend, in sentences."""

    ready: bool
    draining: bool
    overload: int
    warnings: tuple[str, ...]
    sources: tuple[SourceHealth, ...]


AskHealth = Callable[[], GatewayHealth]
"""Asked anew for every request."""


def add_health_routes(
    routes: Routes, ask: AskHealth, *, healthcheck: bool = True, lists: Lists = anyone
) -> None:
    """Serve `/livez`, `/readyz` and, if the configuration says so, `/health`."""
    if healthcheck:
        routes.add(HEALTH, alive)
    routes.add(LIVEZ, alive)
    routes.add(READYZ, readiness(ask, lists))


async def alive(request: PlainRequest) -> HttpResponse:
    """Answer 200 `OK`."""
    return HttpResponse(200, b"OK\n", headers=NO_STORE)


def readiness(ask: AskHealth, lists: Lists = anyone) -> Handler:
    """Make the handler: 200 or 503 with `Readiness`. Clients that may not know the sources get the rest."""

    async def handle(request: PlainRequest) -> HttpResponse:
        asked = read_parameters(ReadyParameters, {}, request.head.query)
        verbose = asked.verbose.lower() not in ("0", "false", "no")
        listed = await lists(request)
        view = ask()
        ready = view.ready and not view.draining and view.overload < _REFUSING
        body = Readiness(ready, view.draining, view.overload)
        if listed:
            body.sources = [
                source if verbose else SourceHealth(source.id, state=source.state) for source in view.sources
            ]
            body.warnings = view.warnings if verbose else UNSET
        return json_response(body, status=200 if ready else 503)

    return handle
