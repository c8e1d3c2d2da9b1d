"""Answers that need no application: an error as an exception, as bytes, and on its way to the client."""

from __future__ import annotations

from dataclasses import replace

import trio

from kiwi_gw.dialect_api import HttpResponse, InvalidRequest, RequestLimit
from kiwi_gw.edge.response_head import response_head
from kiwi_gw.errors import KiwiError

_DRAIN_BYTES = 2 * 1024 * 1024
_DRAIN_SECONDS = 1.0
_RETRY_AFTER_SECONDS = 5
_SOON = (("Retry-After", "1"),)


class HttpError(KiwiError):
    """A request that is answered with an error instead of being served.

    status: an HTTP status code, 400 to 599. message: a sentence for people, sent as the body; it must
    not repeat what the client sent, which may hold a token. headers: added to the answer. page: what is
    answered in the place of the message; None: text. path: of a request whose head is none, if it has one.
    """

    page: HttpResponse | None = None
    path = ""

    def __init__(self, status: int, message: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        if status == 503 and not any(name.lower() == "retry-after" for name, _ in headers):
            headers = (*headers, ("Retry-After", str(_RETRY_AFTER_SECONDS)))
        self.status = status
        self.message = message
        self.headers = headers
        super().__init__(f"{status} {message}")

    @property
    def response(self) -> HttpResponse:
        """Return the answer."""
        page = self.page or HttpResponse(self.status, f"{self.message}\n".encode())
        return replace(page, headers=(*self.headers, *page.headers))


def http_error(error: Exception) -> HttpError | None:
    """Return how what a handler has raised is answered. None: it is no answer, but a fault of ours."""
    if isinstance(error, InvalidRequest):
        return HttpError(400, str(error))
    if isinstance(error, RequestLimit):
        return HttpError(429, str(error), _SOON)
    return error if isinstance(error, HttpError) else None


def render_error(error: HttpError, *, body: bool = True) -> bytes:
    """Write the whole response, head and body. It always says `Connection: close`. body: False for HEAD."""
    response = error.response
    described = ("Content-Type", response.content_type), ("Content-Length", str(len(response.body)))
    head = response_head(response.status, response.headers, described, last=True)
    return head + (response.body if body else b"")


async def refuse(
    stream: trio.abc.Stream, error: HttpError, send_seconds: float = 10.0, *, body: bool = True
) -> None:
    """Answer with the error and close the stream, whatever the client does meanwhile.

    Takes at most `send_seconds` plus one second. Raises nothing but cancellation.
    """
    try:
        with trio.move_on_after(send_seconds) as scope:
            await stream.send_all(render_error(error, body=body))
        if not scope.cancelled_caught:
            await drain_input(stream)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # the client left before it was answered
    finally:
        await trio.aclose_forcefully(stream)


async def drain_input(stream: trio.abc.Stream) -> None:
    """Let the client read our last words before the socket is closed (RFC 9112, 9.6).

    A socket that is closed with unread bytes sends a reset, which may destroy the answer on its way; so
    our side is ended first and what still comes is read and thrown away, for a second at most.
    """
    with trio.move_on_after(_DRAIN_SECONDS):
        if isinstance(stream, trio.abc.HalfCloseableStream):
            await stream.send_eof()
        thrown_away = 0
        while thrown_away < _DRAIN_BYTES:
            data = await stream.receive_some(64 * 1024)
            if not data:
                return
            thrown_away += len(data)
