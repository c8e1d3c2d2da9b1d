"""One table of everything that is served on the port. Dialects and applications fill it at the start."""

from __future__ import annotations

from dataclasses import dataclass

from kiwi_gw.dialects.base import Dialect
from kiwi_gw.edge.answers import HttpError
from kiwi_gw.edge.asgi import App
from kiwi_gw.edge.head import RequestHead
from kiwi_gw.edge.upgrade import Upgrade, check_upgrade, upgrade_required, wants_websocket


@dataclass(frozen=True, slots=True)
class WebSocketRoute:
    """Where a sound WebSocket handshake goes. The origin is still to be checked."""

    dialect: Dialect
    upgrade: Upgrade


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """Where a plain request goes. name: the path as it is served, `{id}` for what differs."""

    app: App
    name: str


class Routes:
    """Paths are matched exactly, as they were sent: nothing is decoded or normalised first."""

    def __init__(self) -> None:
        self._websocket: dict[str, Dialect] = {}
        self._http: dict[str, dict[str, App]] = {}
        self._below: dict[str, dict[str, App]] = {}

    def add_websocket(self, dialect: Dialect) -> None:
        """Serve the dialect on all its paths. ValueError if one of them is taken."""
        for path in dialect.paths:
            if path in self._websocket:
                taken = self._websocket[path].name
                raise ValueError(f"{path} is served by both {taken} and {dialect.name}")
        self._websocket.update(dict.fromkeys(dialect.paths, dialect))

    def add_http(self, method: str, path: str, app: App) -> None:
        """Serve the path with an ASGI application; GET also serves HEAD. ValueError if it is taken."""
        methods = self._http.setdefault(path, {})
        if method in methods:
            raise ValueError(f"{method} {path} is served twice")
        methods[method] = app

    def add_http_below(self, method: str, prefix: str, app: App) -> None:
        """Serve every path that is one segment longer than the prefix, which ends in a slash. ValueError if
        it is taken. A path of its own wins."""
        methods = self._below.setdefault(prefix, {})
        if method in methods:
            raise ValueError(f"{method} {prefix} is served twice")
        methods[method] = app

    def resolve(self, head: RequestHead) -> WebSocketRoute | HttpRoute:
        """Raises HttpError: 404 unknown path (also for an upgrade where only HTTP is served), 405 wrong
        method, 426 a plain request where only WebSocket is spoken, 400 a bad handshake."""
        if wants_websocket(head):
            dialect = self._websocket.get(head.path)
            if dialect is None:
                raise HttpError(404, "no WebSocket protocol is served at this path")
            return WebSocketRoute(dialect, check_upgrade(head))
        name, methods = head.path, self._http.get(head.path)
        if methods is None and not head.path.endswith("/"):
            above = head.path[: head.path.rfind("/") + 1]
            name, methods = f"{above}{{id}}", self._below.get(above)
        if methods is None:
            if head.path not in self._websocket:
                raise HttpError(404, "nothing is served at this path")
            if head.method in ("GET", "HEAD"):
                raise upgrade_required()
            raise HttpError(405, "this path takes WebSocket connections only", (("Allow", "GET"),))
        app = methods.get(head.method)
        if app is None and head.method == "HEAD":
            app = methods.get("GET")
        if app is None:
            allowed = sorted({*methods, *(["HEAD"] if "GET" in methods else [])})
            raise HttpError(405, "this path does not take that method", (("Allow", ", ".join(allowed)),))
        return HttpRoute(app, name)
