"""`POST /api/v1/ticket`: a one-use ticket for whoever shows credentials (see `tickets`).

Pages ask for it with `fetch`. Those of other origins may if `server.allowed_origins` has them, and only to
these is a preflight answered (Fetch standard, CORS protocol).
"""

from __future__ import annotations

import msgspec
import structlog

from kiwi_gw.edge.admission import Admission, rejection
from kiwi_gw.edge.answers import HttpError
from kiwi_gw.edge.asgi import App, Receive, Scope, Send, respond
from kiwi_gw.edge.callers import check_caller, check_origin
from kiwi_gw.edge.head import RequestHead
from kiwi_gw.edge.routing import Routes
from kiwi_gw.edge.tickets import Tickets
from kiwi_gw.model import Refusal
from kiwi_gw.runtime.gateway import Gateway

log = structlog.get_logger(__name__)

PATH = "/api/v1/ticket"

_NOBODY = Refusal("no_token", "credentials are needed: a ticket says who a client is")


def tickets_given(gateway: Gateway) -> bool:
    """Whether there are any: where nobody need say who they are, there is nothing to give."""
    wanted = gateway.loaded.settings.server.limits.max_tickets
    return bool(wanted) and gateway.hooks.authenticates


def add_ticket_routes(routes: Routes, gateway: Gateway, tickets: Tickets, admission: Admission) -> None:
    """Serve tickets and the preflights of pages that ask for them."""
    routes.add_http("POST", PATH, office(gateway, tickets, admission))
    routes.add_http("OPTIONS", PATH, preflight(gateway))


def office(gateway: Gateway, tickets: Tickets, admission: Admission) -> App:
    """ASGI application: `{"ticket", "expires_in_ms"}`. 401 and the like as for a handshake, 404 where no
    plugin authenticates clients, 429 if too many were not used. Until it is known who asks, a request counts
    as a new connection of its address."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        cors = _cors(gateway, scope)
        try:
            text = await _issue(gateway, tickets, admission, scope)
        except HttpError as error:  # with the headers without which a page would not learn why
            more = tuple((name.decode(), value.decode("latin-1")) for name, value in cors)
            raise HttpError(error.status, error.message, (*error.headers, *more)) from None
        lasts = gateway.loaded.settings.server.limits.ticket_ttl_ms
        body = msgspec.json.encode({"ticket": text, "expires_in_ms": lasts}) + b"\n"
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
    credential = _head(scope).credential(_remote(scope), secure=scope["scheme"] == "https")
    place = admission.place(scope["client"])
    place.enter()  # as for a handshake, while it is found out who this is
    try:
        identity = await gateway.authenticate(credential)
        if isinstance(identity, Refusal):
            raise rejection(identity)
        if identity.anonymous:
            raise rejection(_NOBODY)
        here = scope["server"][0] if scope["server"] is not None else None
        origins = gateway.loaded.settings.server.allowed_origins
        await check_caller(gateway, credential, identity, here, origins)
    finally:
        place.leave()
    try:
        text = tickets.issue(identity)
    except Exception as error:
        log.error("a ticket could not be kept", identity=identity.name, problem=type(error).__name__)
        raise HttpError(500, "the ticket could not be kept; the reason is in the log") from error
    if isinstance(text, Refusal):
        wait = str(max(1, gateway.loaded.settings.server.limits.ticket_ttl_ms // 1000))
        raise HttpError(429, f"{text.code}: {text.message}", (("Retry-After", wait),))
    return text


def _remote(scope: Scope) -> str:
    client = scope["client"]
    return f"{client[0]}:{client[1]}" if client is not None else "unix"


def _head(scope: Scope) -> RequestHead:
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
    query = scope["query_string"].decode("latin-1")
    return RequestHead(scope["method"], PATH, PATH, query, headers, scope["http_version"], b"")


def _cors(gateway: Gateway, scope: Scope) -> tuple[tuple[bytes, bytes], ...]:
    """The headers for the page behind the request, none where no page is. Raises HttpError 403."""
    allowed = gateway.loaded.settings.server.allowed_origins
    head = _head(scope)
    origins = head.values("origin")
    if not origins:
        return ()
    check_origin(head, allowed, _remote(scope), secure=scope["scheme"] == "https")
    named = ((b"access-control-allow-origin", origins[0].encode("latin-1")), (b"vary", b"origin"))
    # With `*` any page may ask, and with `null` any in a frame, but none with what a browser adds by itself.
    return (
        named
        if "*" in allowed or origins[0] == "null"
        else (*named, (b"access-control-allow-credentials", b"true"))
    )
