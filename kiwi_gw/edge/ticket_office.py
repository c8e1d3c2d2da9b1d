"""`POST /api/v1/ticket`: a one-use ticket for a client with credentials (see `tickets`).

Pages ask for it with `fetch`. Those of other origins may if `server.allowed_origins` has them, and only to
these is a preflight answered (Fetch standard, CORS protocol).
"""

from __future__ import annotations

from typing import Final

import msgspec
import structlog

from kiwi_gw.dialect_api import Operation
from kiwi_gw.edge.admission import Admission
from kiwi_gw.edge.asgi import App, Receive, Scope, Send, respond
from kiwi_gw.edge.caller_checks import check_origin, client_of, identify, request_head
from kiwi_gw.edge.http_errors import HttpError
from kiwi_gw.edge.routing import Routes
from kiwi_gw.edge.tickets import Tickets
from kiwi_gw.model import Refusal
from kiwi_gw.runtime.gateway import Gateway

log = structlog.get_logger(__name__)

PATH = "/api/v1/ticket"


class Ticket(msgspec.Struct, frozen=True):
    """It lets the client that asked for it in, once."""

    ticket: str
    expires_in_ms: int


TICKET: Final = Operation("POST", PATH, "A one-use ticket for a client.", answers={200: Ticket})


def tickets_given(gateway: Gateway) -> bool:
    """Whether there are any: where no client need say who it is, there is nothing to give."""
    wanted = gateway.limits.max_tickets
    return bool(wanted) and gateway.hooks.authenticates


def add_ticket_routes(routes: Routes, gateway: Gateway, tickets: Tickets, admission: Admission) -> None:
    """Serve tickets and the preflights of pages that ask for them."""
    routes.add(TICKET, office(gateway, tickets, admission))
    routes.add_http("OPTIONS", PATH, preflight(gateway))


def office(gateway: Gateway, tickets: Tickets, admission: Admission) -> App:
    """ASGI application: a `Ticket`. 401 and the like as for a handshake, 404 where no
    plugin authenticates clients, 429 if too many were not used. Until it is known who asks, a request counts
    as a new connection of its address."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        cors = _cors(gateway, scope)
        try:
            text = await _issue(gateway, tickets, admission, scope)
        except HttpError as error:  # with the headers without which a page would not learn why
            more = tuple((name.decode(), value.decode("latin-1")) for name, value in cors)
            raise HttpError(error.status, error.message, (*error.headers, *more)) from None
        lasts = gateway.limits.ticket_ttl_ms
        body = msgspec.json.encode(Ticket(text, lasts)) + b"\n"
        await respond(send, 200, body, b"application/json", ((b"cache-control", b"no-store"), *cors))

    return app


def preflight(gateway: Gateway) -> App:
    """ASGI application: what a page may send. 403 for those of origins that are not allowed."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        cors = _cors(gateway, scope)
        may = (
            (b"access-control-allow-methods", b"POST"),
            (b"access-control-allow-headers", b"authorization, content-type"),
            (b"access-control-max-age", b"600"),
        )
        await respond(send, 200, b"", headers=(*cors, *may))

    return app


async def _issue(gateway: Gateway, tickets: Tickets, admission: Admission, scope: Scope) -> str:
    if not tickets_given(gateway):
        raise HttpError(404, "no tickets are given: no plugin authenticates clients")
    credential = request_head(scope).credential(client_of(scope), secure=scope["scheme"] == "https")
    identity = await identify(gateway, admission, credential, scope, anonymous=False)
    try:
        text = tickets.issue(identity)
    except Exception as error:
        log.error("a ticket could not be kept", identity=identity.name, problem=type(error).__name__)
        raise HttpError(500, "the ticket could not be kept; the reason is in the log") from error
    if isinstance(text, Refusal):
        wait = str(max(1, gateway.limits.ticket_ttl_ms // 1000))
        raise HttpError(429, f"{text.code}: {text.message}", (("Retry-After", wait),))
    return text


def _cors(gateway: Gateway, scope: Scope) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers for the page behind the request, none where no page is. Raises HttpError 403."""
    allowed = gateway.loaded.settings.server.allowed_origins
    head = request_head(scope)
    origins = head.values("origin")
    if not origins:
        return ()
    check_origin(head, allowed, client_of(scope), secure=scope["scheme"] == "https")
    named = ((b"access-control-allow-origin", origins[0].encode("latin-1")), (b"vary", b"origin"))
    # With `*` any page may ask, and with `null` any in a frame, but none with what a browser adds by itself.
    return (
        named
        if "*" in allowed or origins[0] == "null"
        else (*named, (b"access-control-allow-credentials", b"true"))
    )
