"""One table of everything that is served on the port. Protocols and handlers fill it at the start."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import structlog

from kiwi_gw.dialect_api import Dialect, ErrorPages, HttpFailure, Operation, WebSocketRoute
from kiwi_gw.edge.admission import RejectedError, Rejection
from kiwi_gw.edge.http_errors import HttpError
from kiwi_gw.edge.paths import PathTable
from kiwi_gw.edge.plain_request import NO_STORE, Handler
from kiwi_gw.edge.request_head import RequestHead
from kiwi_gw.edge.response_head import response_head
from kiwi_gw.edge.upgrade import Upgrade, check_upgrade, upgrade_required, wants_websocket

_log = structlog.get_logger(__name__)

_SHOWN = 200  # characters of what a client sent, in a line of the log


@dataclass(frozen=True, slots=True)
class ServedDialect:
    """A protocol on one of its WebSocket routes. name: of the protocol."""

    name: str
    dialect: Dialect
    route: WebSocketRoute
    max_message_bytes: int


@dataclass(frozen=True, slots=True)
class WebSocketMatch:
    """Where a sound WebSocket handshake goes. The origin is still to be checked."""

    served: ServedDialect
    parameters: Mapping[str, str]
    upgrade: Upgrade


@dataclass(frozen=True, slots=True)
class HttpMatch:
    """Where a plain request goes. pattern: the path as it is served, `{id}` for what differs."""

    handler: Handler
    pattern: str
    parameters: Mapping[str, str]


class Routes:
    """Paths are exact or have parameters (`paths`). max_message_bytes: where a route does not say so."""

    def __init__(self, max_message_bytes: int = 64 * 1024) -> None:
        self._max_message_bytes = max_message_bytes
        self._websocket: PathTable[ServedDialect] = PathTable()
        self._http: PathTable[dict[str, Handler]] = PathTable()
        self._error_pages: dict[str, ErrorPages] = {}
        self.operations: list[Operation] = []

    def add_websocket(self, name: str, dialect: Dialect, route: WebSocketRoute) -> None:
        """Serve a protocol there. ValueError if the path is taken, or is none."""
        taken = self._websocket.at(route.path)
        if taken is not None:
            raise ValueError(f"{route.path} is served by both {taken.name} and {name}")
        most = route.max_message_bytes or self._max_message_bytes
        self._websocket.add(route.path, ServedDialect(name, dialect, route, most))

    def add(self, operation: Operation, handler: Handler) -> None:
        """Serve with a handler what can be asked for, and describe it in `operations`."""
        self.add_http(operation.method, operation.path, handler, head=operation.head)
        self.operations.append(operation)

    def add_http(self, method: str, path: str, handler: Handler, *, head: bool = True) -> None:
        """Serve the path with a handler. head: HEAD is served as GET. ValueError if it is taken, or none."""
        methods = self._http.at(path)
        if methods is None:
            methods = {}
            self._http.add(path, methods)
        implied = method == "HEAD" and methods.get("HEAD") is methods.get("GET")
        if method in methods and not implied:
            raise ValueError(f"{method} {path} is served twice")
        methods[method] = handler
        if method == "GET" and head:
            methods.setdefault("HEAD", handler)

    def methods(self, path: str) -> str:
        """Return what a path takes, as headers have it."""
        return _allowed(self._http.at(path) or {})

    def add_error_pages(self, pages: ErrorPages) -> None:
        """Have errors at and below a path answered so. ValueError if others are for it."""
        if pages.path in self._error_pages:
            raise ValueError(f"{pages.path} has error pages already")
        self._error_pages[pages.path] = pages

    def add_page(self, path: str, error: HttpError) -> None:
        """Put the page to an error that it is answered with: that for the longest part of the path. One that
        cannot be sent is put down in the log."""
        if error.page is not None:
            return
        rejected = error if isinstance(error, RejectedError) else None
        refusal = None if rejected is None else rejected.refusal
        stopping = rejected is not None and rejected.reason is Rejection.DRAINING
        failure = HttpFailure(error.status, error.message, refusal, stopping)
        above = [known for known in self._error_pages if f"{path}/".startswith(f"{known}/")]
        if above:
            page = self._error_pages[max(above, key=len)].answer(failure)
            try:
                if page is not None:
                    response_head(page.status, page.headers, (), last=False)
                error.page = page
            except ValueError as broken:
                _log.error("error_page_failed", status=error.status, path=path[:_SHOWN], exc_info=broken)
            if NO_STORE[0] not in error.headers:
                error.headers = (*error.headers, *NO_STORE)

    def resolve(self, head: RequestHead) -> WebSocketMatch | HttpMatch:
        """Find it, or raise HttpError: 404 unknown path (also for an upgrade where only HTTP is served), 405
        wrong method, 426 a plain request where only WebSocket is spoken, 400 a bad handshake."""
        if wants_websocket(head):
            served = self._websocket.find(head.path)
            if served is None:
                raise HttpError(404, "no WebSocket protocol is served at this path")
            return WebSocketMatch(served[1], served[2], check_upgrade(head))
        found = self._http.find(head.path)
        if found is None:
            if self._websocket.find(head.path) is None:
                raise HttpError(404, "nothing is served at this path")
            if head.method in ("GET", "HEAD"):
                raise upgrade_required()
            raise HttpError(405, "this path takes WebSocket connections only", (("Allow", "GET"),))
        pattern, methods, parameters = found
        handler = methods.get(head.method)
        if handler is None:
            raise HttpError(405, "this path does not take that method", (("Allow", _allowed(methods)),))
        return HttpMatch(handler, pattern, parameters)


def _allowed(methods: Collection[str]) -> str:
    return ", ".join(sorted(methods))
