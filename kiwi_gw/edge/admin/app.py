"""The admin address as ASGI applications.

`GET /metrics`, `/sources`, `/connections`, `/subscriptions`, and the last three below `/api/v1`, too;
`DELETE /api/v1/connections/ID`; `/livez` and `/readyz`. Lists are pages of `?limit=` items (100, at most
1,000): `{"sources": [...], "next": "/sources?after=..."}`, `next` null on the last one.
"""

from __future__ import annotations

from urllib.parse import parse_qs, quote

import msgspec
import trio

from kiwi_gw.edge.admin.access import AdminAccess, AdminRights
from kiwi_gw.edge.admin.admin_view import AdminView, Item, ListingPage, Topic, whole_number
from kiwi_gw.edge.asgi import App, Receive, Scope, Send, respond
from kiwi_gw.edge.health import NO_STORE, HealthView, add_health_routes
from kiwi_gw.edge.http_errors import HttpError
from kiwi_gw.edge.metrics.expose import content_type_for, expose
from kiwi_gw.edge.routing import Routes

_JSON = b"application/json"
_LIMIT, _MOST = 100, 1_000
_SOURCE_OF: dict[Topic, str] = {"sources": "id", "subscriptions": "source"}
"""Where an item has its source: these lists can be seen in part."""


def add_admin_routes(
    routes: Routes, admin_view: AdminView, access: AdminAccess, health: HealthView, *, measured: bool
) -> None:
    """Serve everything of the admin address. measured: whether there are metrics."""
    add_health_routes(routes, health, lists=access.allows)
    if measured:
        routes.add_http("GET", "/metrics", metrics(admin_view, access))
    topics: tuple[Topic, ...] = ("sources", "connections", "subscriptions")
    for topic in topics:
        for path in (f"/{topic}", f"/api/v1/{topic}"):
            routes.add_http("GET", path, listing(topic, path, admin_view, access))
    routes.add_http("DELETE", "/api/v1/connections/{id}", disconnect(admin_view, access))
    routes.add_http("DELETE", "/connections/{id}", disconnect(admin_view, access))


def metrics(admin_view: AdminView, access: AdminAccess) -> App:
    """ASGI application: a scrape, as text or as OpenMetrics, by `Accept`."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await access.metrics(scope)
        content_type = content_type_for(_header(scope, b"accept"))
        pieces = []
        for piece in expose(await admin_view.snapshot(), content_type):
            pieces.append(piece)
            await trio.lowlevel.checkpoint()  # events keep flowing
        await respond(send, 200, "".join(pieces).encode(), content_type.encode(), NO_STORE)

    return app


def listing(topic: Topic, path: str, admin_view: AdminView, access: AdminAccess) -> App:
    """ASGI application: one page."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        rights = await access.rights(scope)
        if not rights.everything and topic not in _SOURCE_OF:
            await access.everything(scope)
        after, limit = page_of(scope)
        if not rights.everything and topic == "sources":
            page = await _visible(admin_view, rights)
        else:
            page = await admin_view.page(topic, after, limit)
        items = page.items
        if not rights.everything:
            items = [_in_part(item) for item in items if rights.see(item[_SOURCE_OF[topic]])]
        following = f"{path}?limit={limit}&after={quote(page.next, safe='')}" if page.next else None
        missing = {"silentWorkers": page.silent} if page.silent else {}
        await respond_json(send, {topic: items, "next": following, **missing})

    return app


def _in_part(item: Item) -> Item:
    """Change an item for those who may not see the connections of others."""
    return {**item, "heldBy": None} if "heldBy" in item else item


async def _visible(admin_view: AdminView, rights: AdminRights) -> ListingPage:
    """List the sources that may be seen, at once: the key of a page is a source's id, maybe of a hidden
    one."""
    found: list[Item] = []
    silent: set[int] = set()
    after = ""
    while True:
        page = await admin_view.page("sources", after, _MOST)
        found += [item for item in page.items if rights.see(item["id"])]
        silent.update(page.silent)
        after = page.next
        if not after:
            return ListingPage(found, silent=tuple(sorted(silent)))


def disconnect(admin_view: AdminView, access: AdminAccess) -> App:
    """ASGI application: closes the connection that the path names; 204, or 404."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await access.everything(scope)
        if not await admin_view.disconnect(scope["path_params"]["id"]):
            raise HttpError(404, "there is no such connection")
        await send({"type": "http.response.start", "status": 204, "headers": [*NO_STORE]})
        await send({"type": "http.response.body", "body": b""})

    return app


async def respond_json(send: Send, body: Item) -> None:
    await respond(send, 200, msgspec.json.encode(body) + b"\n", _JSON, NO_STORE)


def page_of(scope: Scope) -> tuple[str, int]:
    """`after` and `limit` of a request. HttpError 400."""
    query = parse_qs(scope["query_string"].decode("latin-1"))
    unknown = set(query) - {"after", "limit", "access_token"}
    if unknown:
        raise HttpError(400, "a list takes `limit` and `after`")
    limit = whole_number(query.get("limit", [str(_LIMIT)])[0])
    if limit is None or not 1 <= limit <= _MOST:
        raise HttpError(400, f"`limit` is a number from 1 to {_MOST}")
    return query.get("after", [""])[0], limit


def _header(scope: Scope, name: bytes) -> str:
    return next((value for key, value in scope["headers"] if key == name), b"").decode("latin-1")
