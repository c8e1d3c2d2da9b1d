"""Plain HTTP/1.1 on one connection: keep-alive, pipelining, and an orderly end."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
import trio

from kiwi_gw.edge.http_errors import HttpError, drain_input, refuse
from kiwi_gw.edge.http_exchange import ClientGone, Closing, HttpExchange, HttpLimits
from kiwi_gw.edge.plain_request import ConnectionEnds
from kiwi_gw.edge.request_head import FoundHead, RequestHead, read_head
from kiwi_gw.edge.routing import HttpMatch, Routes
from kiwi_gw.edge.upgrade import wants_websocket

Answered = Callable[[str, str, int, float], None]
"""Told of every request that was answered: its route (empty: there is none), method, status and seconds."""

Check = Callable[[RequestHead], None]
"""Asked about every request, before it is known what it is for. Raises HttpError."""

_log = structlog.get_logger(__name__)


def _not_recorded(route: str, method: str, status: int, seconds: float) -> None:
    pass


def _anything(head: RequestHead) -> None:
    pass


async def serve_http(
    stream: trio.abc.Stream,
    first: FoundHead,
    routes: Routes,
    limits: HttpLimits,
    closing: Closing,
    ends: ConnectionEnds,
    answered: Answered = _not_recorded,
    check: Check = _anything,
) -> None:
    """Serve the connection from its first request to its end, and close it.

    Every request is resolved by `routes`; a WebSocket handshake is refused with 400, since it must be
    the first request of its connection. Errors of the client are answered, errors of a handler
    become 500 with an id that is in the log.

    closing: once set, the running request is finished with `Connection: close` and an idle connection
    is closed at once. Raises nothing but cancellation.
    """
    try:
        found: FoundHead | None = first
        match: HttpMatch | None = None
        while found is not None:
            head = found.head
            exchange = HttpExchange(stream, found, limits, closing, ends, routes.add_page)
            began = time.monotonic()
            match = await _serve_one(exchange, head, routes, check, match if found.again else None)
            pattern = "" if match is None else match.pattern
            answered(pattern, head.method, exchange.status, time.monotonic() - began)
            received = await exchange.rest()
            if received is None:
                if exchange.unread:
                    await drain_input(stream)
                break
            if received:
                await trio.lowlevel.checkpoint()  # whoever has sent many at once is not the only one
            else:
                del exchange, found  # an idle connection does not hold on to the last body
                received = await closing.receive(stream, limits.idle_seconds)
            found = await read_head(stream, limits.head, received, before=head) if received else None
    except HttpError as error:
        routes.add_page(error.path, error)
        await refuse(stream, error, limits.send_seconds)
    except (ClientGone, trio.BrokenResourceError, trio.ClosedResourceError) as error:
        _log.debug("http_client_gone", reason=str(error))
        await trio.aclose_forcefully(stream)
    finally:
        # A TLS stream says goodbye, which a client that does not read must not delay for ever.
        with trio.move_on_after(limits.send_seconds):
            await stream.aclose()


async def _serve_one(
    exchange: HttpExchange, head: RequestHead, routes: Routes, check: Check, known: HttpMatch | None
) -> HttpMatch | None:
    """Return where it went, None if there is nothing. known: where it goes, if that is known."""
    try:
        check(head)
        match = known or _resolved(exchange, head, routes)
    except HttpError as error:
        await exchange.answer(error)
        return None
    await exchange.run(match.handler, match.parameters)
    return match


def _resolved(exchange: HttpExchange, head: RequestHead, routes: Routes) -> HttpMatch:
    """Find where a request goes. Raises HttpError."""
    if wants_websocket(head):
        exchange.last = True
        raise HttpError(400, "open a new connection for a WebSocket handshake")
    match = routes.resolve(head)
    if not isinstance(match, HttpMatch):
        raise HttpError(400, "not a plain request")
    return match
