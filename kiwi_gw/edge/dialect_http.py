"""The HTTP routes of protocols: who asks, and what its protocol answers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from kiwi_gw.dialect_api import HttpRequest, HttpResponse, HttpRoute, openapi, read_parameters
from kiwi_gw.edge.admission import Admission, RejectedError
from kiwi_gw.edge.caller_checks import check_origin, identify
from kiwi_gw.edge.cors import page_headers
from kiwi_gw.edge.http_errors import HttpError
from kiwi_gw.edge.plain_request import NO_STORE, Handler, PlainRequest, json_response
from kiwi_gw.edge.routing import Routes
from kiwi_gw.model import Action, Credential, Identity, Refusal
from kiwi_gw.runtime.gateway import Gateway


def dialect_handler(gateway: Gateway, admission: Admission, route: HttpRoute[Any, Any, Any]) -> Handler:
    """Make the handler: 401 and the like, and 403 for pages of foreign origins, as for a handshake; 413 for a
    body that is too large; 400 for parameters or a body that are not of the declared types; else what the
    route answers."""

    async def answer(asked: PlainRequest) -> HttpResponse:
        origins, ends = gateway.loaded.settings.server.allowed_origins, asked.ends
        check_origin(asked.head, origins, ends.remote, secure=ends.secure)
        try:
            identity, body = await _caller(gateway, admission, asked, route)
        except RejectedError as error:
            if error.refusal is None or route.refused is None:
                raise
            return route.refused(error.refusal, error.status)
        may, known = gateway.hooks.authorize, replace(identity, issued_token=None)
        sources = tuple(info for info in gateway.sources() if may(known, Action.SUBSCRIBE, info) is None)
        parameters = read_parameters(route.parameters, asked.parameters, asked.head.query)
        found = route.answer(
            HttpRequest(asked.credential, parameters, identity, route.read_body(body), sources)
        )
        return found if isinstance(found, HttpResponse) else json_response(found, ())

    async def answer_about_someone(asked: PlainRequest) -> HttpResponse:
        """Keep it out of caches, and let pages of allowed origins read it: they log in here."""
        cors = page_headers(gateway, asked)
        try:
            response = await answer(asked)
        except HttpError as error:
            raise HttpError(error.status, error.message, (*error.headers, *NO_STORE, *cors)) from None
        kept = tuple(pair for pair in response.headers if pair[0].lower() != "cache-control")
        return replace(response, headers=(*kept, *NO_STORE, *cors))

    return answer if route.credential is None else answer_about_someone


async def _caller(
    gateway: Gateway, admission: Admission, asked: PlainRequest, route: HttpRoute[Any, Any, Any]
) -> tuple[Identity, bytes]:
    """Find out who asks, and read the body: behind that, so that nobody has it read in vain, unless the
    credentials are in it. Raises RejectedError."""
    find = route.credential
    if find is None:
        return await identify(gateway, admission, asked), await asked.read_body(route.max_body_bytes)
    body = b""

    async def read() -> Credential | Refusal:
        nonlocal body
        body = await asked.read_body(route.max_body_bytes)
        return find(asked.credential, body)

    return await identify(gateway, admission, asked, read), body


def described(name: str, routes: Routes) -> Handler:
    """Make the handler: what can be asked for over HTTP, as OpenAPI."""

    @cache  # at the first request: the table is full then
    def answer() -> HttpResponse:
        return json_response(openapi(name, routes.operations), ())

    async def handle(request: PlainRequest) -> HttpResponse:
        return answer()

    return handle
