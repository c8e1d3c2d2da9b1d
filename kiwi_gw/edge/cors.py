"""What a page of another origin may read and send (Fetch standard, CORS protocol): one whose origin is in
`server.allowed_origins`, and no other."""

from __future__ import annotations

import re
from collections.abc import Callable

from kiwi_gw.dialect_api import HttpResponse
from kiwi_gw.edge.caller_checks import check_origin
from kiwi_gw.edge.plain_request import NO_STORE, Handler, PlainRequest
from kiwi_gw.runtime.gateway import Gateway

_NAMES = re.compile(r"[A-Za-z0-9, -]{1,256}")  # of headers
_USUAL = "authorization, content-type"


def page_headers(gateway: Gateway, request: PlainRequest) -> tuple[tuple[str, str], ...]:
    """Return the headers for the page behind the request, none where no page is. Raises HttpError 403."""
    allowed = gateway.loaded.settings.server.allowed_origins
    origins = request.head.values("origin")
    if not origins:
        return ()
    check_origin(request.head, allowed, request.ends.remote, secure=request.ends.secure)
    named = (("Access-Control-Allow-Origin", origins[0]), ("Vary", "origin"))
    # With `*` any page may ask, and with `null` any in a frame, but none with what a browser adds by itself.
    return (
        named
        if "*" in allowed or origins[0] == "null"
        else (*named, ("Access-Control-Allow-Credentials", "true"))
    )


def preflight(gateway: Gateway, methods: Callable[[], str]) -> Handler:
    """Make the handler: what a page may send, which is any header, for its origin is known. 403 for those of
    origins that are not allowed. methods: those that the path takes."""

    async def handle(request: PlainRequest) -> HttpResponse:
        wanted = request.head.header("access-control-request-headers") or _USUAL
        may = (
            ("Allow", methods()),
            ("Access-Control-Allow-Methods", methods()),
            ("Access-Control-Allow-Headers", wanted if _NAMES.fullmatch(wanted) else _USUAL),
            ("Access-Control-Max-Age", "600"),
        )
        return HttpResponse(204, headers=(*page_headers(gateway, request), *may, *NO_STORE))

    return handle
