"""The HTTP routes of protocols: who asks, and what its protocol answers."""

from __future__ import annotations

import inspect
import time
import zlib
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import aclosing, closing
from dataclasses import replace
from functools import cache
from typing import Any, Final, TypeVar

from kiwi_gw.dialect_api import (
    HttpRequest,
    HttpResponse,
    HttpRoute,
    HttpStream,
    NotStreamed,
    openapi,
    read_parameters,
)
from kiwi_gw.edge.admission import Admission, RejectedError, Rejection, rejection
from kiwi_gw.edge.caller_checks import check_origin, identify
from kiwi_gw.edge.cors import page_headers
from kiwi_gw.edge.http_errors import HttpError, http_error
from kiwi_gw.edge.plain_request import NO_STORE, Handler, PlainRequest, json_response
from kiwi_gw.edge.request_head import RequestHead
from kiwi_gw.edge.routing import Routes
from kiwi_gw.model import Credential, Identity, Refusal
from kiwi_gw.runtime.client_identity import client_at, who_pays
from kiwi_gw.runtime.gateway import Gateway
from kiwi_gw.runtime.request_load import RequestLoad
from kiwi_gw.runtime.request_rights import RequestRights

A = TypeVar("A")

Headers = tuple[tuple[str, str], ...]

_GZIP: Final = 16 + zlib.MAX_WBITS
_LITTLE_BYTES: Final = 32_768
"""A larger body is read when it is its request's turn; and any that is gzip, which may be a megabyte."""
_LONG_SECONDS: Final = 1.0
"""Who takes longer to send a body is judged again when it is there."""
_MOST_MEMBERS: Final = 64
"""Of a gzip body: to begin another one copies all that is behind it."""


def dialect_handler(
    gateway: Gateway, admission: Admission, route: HttpRoute[Any, Any, Any], name: str
) -> Handler:
    """Make the handler for a route of the protocol of that name.

    It answers 401 and the like, and 403 for pages of foreign origins, as for a handshake; 413 for a body that
    is too large, 415 for one that is of another type than the route takes; 400 for parameters or a
    body that are not of the declared types; else what the route answers."""

    async def answer(asked: PlainRequest) -> HttpResponse | HttpStream:
        if gateway.draining:
            raise RejectedError(Rejection.DRAINING, 503, "the gateway is about to stop; try again later")
        origins, ends = gateway.loaded.settings.server.allowed_origins, asked.ends
        check_origin(asked.head, origins, ends.remote, secure=ends.secure)
        client = client_at(ends.client)
        with gateway.request_load.body(id(ends) if client is None else client) as came:
            identity, body = await _caller(gateway, admission, asked, route, came)
            who = identity if identity.issued_token is None else replace(identity, issued_token=None)
            rights = RequestRights(gateway, who, (name, ends.remote), asked.watched)
            parameters = read_parameters(route.parameters, asked.parameters, asked.head.query)
            began, admitted = time.monotonic(), _admitted(route, parameters, rights)
            if body is None and not isinstance(admitted, HttpResponse):
                body = await _body(asked, route, came)
                if time.monotonic() - began > _LONG_SECONDS:
                    if (refusal := rights.unwelcome()) is not None:
                        raise rejection(refusal)
                    admitted = _admitted(route, parameters, rights)
            if isinstance(admitted, HttpResponse):
                return admitted
            assert body is not None  # noqa: S101  it was read
            rights.resume()
            zipped = bool(body) and asked.head.tokens("content-encoding") == ["gzip"]
            if zipped or len(body) > _LITTLE_BYTES:
                await rights.wait_turn()
            if zipped:
                body = _inflated(body, route.max_body_bytes, came)
            found = route.answer(
                HttpRequest(asked.credential, parameters, identity, route.read_body(body), rights, admitted)
            )
            payer = who_pays(identity, client, id(ends))
            if inspect.iscoroutine(found):
                with closing(found), gateway.request_load.wait(payer):
                    found = await found
        if isinstance(found, HttpStream):
            return replace(found, pieces=_counted(gateway.request_load, payer, found.pieces))
        return found if isinstance(found, HttpResponse) else json_response(found, ())

    async def answer_pages(asked: PlainRequest) -> HttpResponse | HttpStream:
        """Keep it out of caches, and let pages of allowed origins read it."""
        cors = page_headers(gateway, asked)
        try:
            response = await answer(asked)
        except Exception as error:
            raise _for_page(error, cors) from error
        headers = _shown_to_pages(response.headers, cors)
        if isinstance(response, HttpStream):
            return replace(response, pieces=_for_pages(response.pieces, cors), headers=headers)
        return HttpResponse(response.status, response.body, response.content_type, headers)

    return answer_pages if route.pages else answer


def _shown_to_pages(headers: Headers, cors: Headers) -> Headers:
    kept = [pair for pair in headers if pair[0].lower() != "cache-control"]
    return (*kept, *NO_STORE, *cors)


async def _for_pages(pieces: AsyncGenerator[bytes, None], cors: Headers) -> AsyncGenerator[bytes, None]:
    """Do as `answer_pages` with what is raised instead of an answer."""
    async with aclosing(pieces):
        try:
            async for piece in pieces:
                yield piece
        except Exception as error:
            raise _for_page(error, cors) from error


def _for_page(error: Exception, cors: Headers) -> Exception:
    """Return an error whose answer a page may read, if there is an answer to it."""
    if isinstance(error, NotStreamed):
        headers = _shown_to_pages(error.response.headers, cors)
        return NotStreamed(replace(error.response, headers=headers))
    said = http_error(error)
    if said is None:
        return error
    said.headers = (*said.headers, *NO_STORE, *cors)
    return said


async def _counted(
    load: RequestLoad, who: Hashable, pieces: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """Count an answer in pieces among those that wait. Raises RequestLimit."""
    with load.wait(who):
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece


async def _caller(
    gateway: Gateway,
    admission: Admission,
    asked: PlainRequest,
    route: HttpRoute[Any, Any, Any],
    came: Callable[[int], None],
) -> tuple[Identity, bytes | None]:
    """Find out who asks. Returns the body where the credentials are in it; else it is read behind that, so
    that nobody has it read in vain. Raises RejectedError."""
    find = route.credential
    if find is None:
        return await identify(gateway, admission, asked), None
    body = b""

    async def read() -> Credential | Refusal:
        nonlocal body
        body = await _body(asked, route, came)
        return find(asked.credential, body)

    return await identify(gateway, admission, asked, read), body


def _admitted(route: HttpRoute[Any, Any, Any], parameters: Any, rights: RequestRights) -> object:
    return None if route.admit is None else route.admit(parameters, rights)


async def _body(asked: PlainRequest, route: HttpRoute[Any, Any, Any], came: Callable[[int], None]) -> bytes:
    """Read the body as it comes. Raises HttpError."""
    if _has_body(asked.head):
        if route.json_only and _media_type(asked.head) != "application/json":
            raise HttpError(415, "the Content-Type must be application/json")
        if asked.head.tokens("content-encoding") not in ([], ["identity"], ["gzip"]):
            words = "the Content-Encoding may be gzip or identity"
            raise HttpError(415, words, (("Accept-Encoding", "gzip"),))
    return await asked.read_body(route.max_body_bytes, came)


def _has_body(head: RequestHead) -> bool:
    return bool(head.header("transfer-encoding") or (head.header("content-length") or "").strip("0"))


def _media_type(head: RequestHead) -> str:
    return (head.header("content-type") or "").partition(";")[0].strip().lower()


def _inflated(body: bytes, most: int, came: Callable[[int], None]) -> bytes:
    """Return what a gzip body is of, which may have several members (RFC 1952). Raises HttpError."""
    found, members = b"", 0
    while body:
        members += 1
        if members > _MOST_MEMBERS:
            raise HttpError(400, f"a gzip body has at most {_MOST_MEMBERS} members")
        inflator = zlib.decompressobj(_GZIP)
        try:
            found += inflator.decompress(body, most + 1 - len(found))
        except zlib.error:
            raise HttpError(400, "the body is not gzip") from None
        if len(found) > most:
            raise HttpError(413, f"the body is larger than {most} bytes")
        if not inflator.eof:
            raise HttpError(400, "the body is not gzip")
        body = inflator.unused_data
    came(len(found))
    return found


def described(name: str, routes: Routes) -> Handler:
    """Make the handler: what can be asked for over HTTP, as OpenAPI."""

    @cache  # at the first request: the table is full then
    def answer() -> HttpResponse:
        return json_response(openapi(name, routes.operations), ())

    async def handle(request: PlainRequest) -> HttpResponse:
        return answer()

    return handle
