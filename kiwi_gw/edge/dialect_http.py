"""The HTTP routes of protocols: who asks, and what its protocol answers."""

from __future__ import annotations

from functools import cache
from typing import Any

from kiwi_gw.dialect_api import HttpRequest, HttpResponse, HttpRoute, openapi, read_parameters
from kiwi_gw.edge.admission import Admission
from kiwi_gw.edge.caller_checks import check_origin, identify
from kiwi_gw.edge.plain_request import Handler, PlainRequest, json_response
from kiwi_gw.edge.routing import Routes
from kiwi_gw.model import Action
from kiwi_gw.runtime.gateway import Gateway


def dialect_handler(gateway: Gateway, admission: Admission, route: HttpRoute[Any, Any, Any]) -> Handler:
    """Make the handler: 401 and the like, and 403 for pages of foreign origins, as for a handshake; 413 for a
    body that is too large; 400 for parameters or a body that are not of the declared types; else what the
    route answers."""

    async def handle(asked: PlainRequest) -> HttpResponse:
        origins, ends = gateway.loaded.settings.server.allowed_origins, asked.ends
        check_origin(asked.head, origins, ends.remote, secure=ends.secure)
        identity = await identify(gateway, admission, asked)
        body = await asked.read_body(route.max_body_bytes)
        may = gateway.hooks.authorize
        sources = tuple(info for info in gateway.sources() if may(identity, Action.SUBSCRIBE, info) is None)
        parameters = read_parameters(route.parameters, asked.parameters, asked.head.query)
        answer = route.answer(
            HttpRequest(asked.credential, parameters, identity, route.read_body(body), sources)
        )
        return answer if isinstance(answer, HttpResponse) else json_response(answer, ())

    return handle


def described(name: str, routes: Routes) -> Handler:
    """Make the handler: what can be asked for over HTTP, as OpenAPI."""

    @cache  # at the first request: the table is full then
    def answer() -> HttpResponse:
        return json_response(openapi(name, routes.operations), ())

    async def handle(request: PlainRequest) -> HttpResponse:
        return answer()

    return handle
