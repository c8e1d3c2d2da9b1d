"""The part of ASGI 3 that plain HTTP applications use here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


async def respond(
    send: Send,
    status: int,
    body: bytes,
    content_type: bytes = b"text/plain; charset=utf-8",
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> None:
    """Send a whole response. `headers` are added to the type and length of the body."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", content_type),
                (b"content-length", b"%d" % len(body)),
                *headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})


def answering(answer: Callable[[str, str, bool], tuple[str, bytes]]) -> App:
    """Make an application that answers with the media type and body for an Accept and a Host header, under
    TLS or not."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        given = {name: value.decode("latin-1") for name, value in scope["headers"]}
        secure = scope["scheme"] == "https"
        kind, body = answer(given.get(b"accept", ""), given.get(b"host", ""), secure)
        more = ((b"cache-control", b"no-store"), (b"vary", b"accept"))
        await respond(send, 200, body, kind.encode(), more)

    return app
