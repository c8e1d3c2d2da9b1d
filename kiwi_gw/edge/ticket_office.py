"""`POST /api/v1/ticket`: a one-use ticket for a client with credentials (see `tickets`).

Pages ask for it with `fetch`. Those of other origins may if `server.allowed_origins` has them, and only to
these is a preflight answered (Fetch standard, CORS protocol).
"""

from __future__ import annotations

from typing import Final

import msgspec
import structlog

from kiwi_gw.dialect_api import HttpResponse, Operation
from kiwi_gw.edge.admission import Admission
from kiwi_gw.edge.caller_checks import identify
from kiwi_gw.edge.cors import page_headers, preflight
from kiwi_gw.edge.http_errors import HttpError
from kiwi_gw.edge.plain_request import NO_STORE, Handler, PlainRequest, json_response
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
    routes.add_http("OPTIONS", PATH, preflight(gateway, lambda: "POST"))


def office(gateway: Gateway, tickets: Tickets, admission: Admission) -> Handler:
    """Make the handler: a `Ticket`. 401 and the like as for a handshake, 404 where no
    plugin authenticates clients, 429 if too many were not used. Until it is known who asks, a request counts
    as a new connection of its address."""

    async def handle(request: PlainRequest) -> HttpResponse:
        cors = page_headers(gateway, request)
        try:
            text = await _issue(gateway, tickets, admission, request)
        except HttpError as error:  # with the headers without which a page would not learn why
            raise HttpError(error.status, error.message, (*error.headers, *cors)) from None
        return json_response(Ticket(text, gateway.limits.ticket_ttl_ms), (*NO_STORE, *cors))

    return handle


async def _issue(gateway: Gateway, tickets: Tickets, admission: Admission, request: PlainRequest) -> str:
    if not tickets_given(gateway):
        raise HttpError(404, "no tickets are given: no plugin authenticates clients")
    identity = await identify(gateway, admission, request, anonymous=False)
    try:
        text = tickets.issue(identity)
    except Exception as error:
        log.error("a ticket could not be kept", identity=identity.name, problem=type(error).__name__)
        raise HttpError(500, "the ticket could not be kept; the reason is in the log") from error
    if isinstance(text, Refusal):
        wait = str(max(1, gateway.limits.ticket_ttl_ms // 1000))
        raise HttpError(429, f"{text.code}: {text.message}", (("Retry-After", wait),))
    return text
