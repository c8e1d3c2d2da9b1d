"""The HTTP routes of protocols as ASGI applications: who asks, and what its protocol answers."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from kiwi_gw.dialect_api import HttpRequest, HttpResponse, HttpRoute, InvalidRequest, openapi, read_parameters
from kiwi_gw.edge.admission import Admission
from kiwi_gw.edge.asgi import App, Receive, Scope, Send, respond
from kiwi_gw.edge.caller_checks import check_origin, client_of, identify, request_head
from kiwi_gw.edge.http_errors import HttpError
from kiwi_gw.edge.routing import Routes
from kiwi_gw.model import Action
from kiwi_gw.runtime.gateway import Gateway


def dialect_app(gateway: Gateway, admission: Admission, route: HttpRoute[Any, Any, Any]) -> App:
    """ASGI application: 401 and the like, and 403 for pages of foreign origins, as for a handshake; 413 for a
    body that is too large; 400 for parameters or a body that are not of the declared types; else what the
    route answers."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        head, remote, secure = request_head(scope), client_of(scope), scope["scheme"] == "https"
        check_origin(head, gateway.loaded.settings.server.allowed_origins, remote, secure=secure)
        credential = head.credential(remote, secure=secure)
        identity = await identify(gateway, admission, credential, scope)
        body = await _body(receive, route.max_body_bytes)
        may = gateway.hooks.authorize
        sources = tuple(info for info in gateway.sources() if may(identity, Action.SUBSCRIBE, info) is None)
        try:
            query = scope["query_string"].decode("latin-1")
            parameters = read_parameters(route.parameters, scope["path_params"], query)
            request = HttpRequest(credential, parameters, identity, route.read_body(body), sources)
        except InvalidRequest as invalid:
            raise HttpError(400, str(invalid)) from None
        answer = route.answer(request)
        if not isinstance(answer, HttpResponse):
            answer = HttpResponse(200, msgspec.json.encode(answer) + b"\n", "application/json")
        headers = tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers)
        await respond(send, answer.status, answer.body, answer.content_type.encode("latin-1"), headers)

    return app


def described(name: str, routes: Routes) -> App:
    """ASGI application: what can be asked for over HTTP, as OpenAPI."""

    @cache  # at the first request: the table is full then
    def body() -> bytes:
        return msgspec.json.encode(openapi(name, routes.operations)) + b"\n"

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, body(), b"application/json")

    return app


async def _body(receive: Receive, most: int) -> bytes:
    """Read the whole body. Raises HttpError 413."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message["body"]
        if len(body) > most:
            raise HttpError(413, f"the body is larger than {most} bytes")
        more = message["more_body"]
    return body
