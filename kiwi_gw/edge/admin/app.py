"""What the admin address answers.

`GET /metrics`, `/sources`, `/connections`, `/subscriptions`, and the last three below `/api/v1`, too;
`DELETE /api/v1/connections/ID`; `/livez` and `/readyz`; `/`, a page with links. Lists are pages of `?limit=`
items (100, at most 1,000): `{"sources": [...], "next": "/sources?after=..."}`, `next` null on the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import quote

import trio
from msgspec import Meta, Struct

from kiwi_gw.dialect_api import HttpResponse, read_parameters
from kiwi_gw.edge.admin.access import AdminAccess, AdminRights
from kiwi_gw.edge.admin.admin_view import TOPICS, AdminView, ListingPage, Topic
from kiwi_gw.edge.admin.views import Item
from kiwi_gw.edge.health import AskHealth, add_health_routes
from kiwi_gw.edge.http_errors import HttpError
from kiwi_gw.edge.metrics.expose import content_type_for, expose
from kiwi_gw.edge.plain_request import NO_STORE, Handler, PlainRequest, json_response
from kiwi_gw.edge.routing import Routes

_MOST = 1_000
_SOURCE_OF: dict[Topic, str] = {"sources": "id", "subscriptions": "source"}
"""Where an item has its source: these lists can be seen in part."""


class PageParameters(Struct, frozen=True, forbid_unknown_fields=True):
    """access_token: of the client, for `authenticate`."""

    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=_MOST, description=f"a number from 1 to {_MOST}")] = 100
    access_token: str = ""


def add_admin_routes(
    routes: Routes, admin_view: AdminView, access: AdminAccess, health: AskHealth, *, measured: bool
) -> None:
    """Serve everything of the admin address. measured: whether there are metrics."""
    add_health_routes(routes, health, lists=access.allows)
    if measured:
        routes.add_http("GET", "/metrics", metrics(admin_view, access))
    pages = [
        *(["/metrics"] if measured else []),
        *(f"/{topic}" for topic in TOPICS),
        "/readyz?verbose",
        "/livez",
    ]
    routes.add_http("GET", "/", index(pages))
    for topic in TOPICS:
        for path in (f"/{topic}", f"/api/v1/{topic}"):
            routes.add_http("GET", path, listing(topic, path, admin_view, access))
    routes.add_http("DELETE", "/api/v1/connections/{id}", disconnect(admin_view, access))
    routes.add_http("DELETE", "/connections/{id}", disconnect(admin_view, access))


def index(pages: Sequence[str]) -> Handler:
    """Make the handler: a page for people who have come by the address alone. It holds no names."""
    links = "".join(f"<li><a href={page}>{page}</a></li>" for page in pages)
    body = (
        "<!doctype html><meta charset=utf-8><title>kiwi-gw</title>\n"
        f"<h1>kiwi-gw</h1>\n<p>What operators can ask for here:</p>\n<ul>{links}</ul>\n"
    ).encode()

    async def handle(request: PlainRequest) -> HttpResponse:
        return HttpResponse(200, body, "text/html; charset=utf-8", NO_STORE)

    return handle


def metrics(admin_view: AdminView, access: AdminAccess) -> Handler:
    """Make the handler: a scrape, as text or as OpenMetrics, by `Accept`."""

    async def handle(request: PlainRequest) -> HttpResponse:
        await access.metrics(request)
        content_type = content_type_for(request.head.header("accept") or "")
        pieces = []
        for piece in expose(await admin_view.snapshot(), content_type):
            pieces.append(piece)
            await trio.lowlevel.checkpoint()  # events keep flowing
        return HttpResponse(200, "".join(pieces).encode(), content_type, NO_STORE)

    return handle


def listing(topic: Topic, path: str, admin_view: AdminView, access: AdminAccess) -> Handler:
    """Make the handler: one page."""

    async def handle(request: PlainRequest) -> HttpResponse:
        rights = await access.rights(request)
        if not rights.everything and topic not in _SOURCE_OF:
            await access.everything(request)
        asked = page_of(request)
        if not rights.everything and topic == "sources":
            page = await _visible(admin_view, rights)
        else:
            page = await admin_view.page(topic, asked.after, asked.limit)
        items = page.items
        if not rights.everything:
            items = [_in_part(item) for item in items if rights.see(item[_SOURCE_OF[topic]])]
        following = f"{path}?limit={asked.limit}&after={quote(page.next, safe='')}" if page.next else None
        missing = {"silentWorkers": page.silent} if page.silent else {}
        return json_response({topic: items, "next": following, **missing})

    return handle


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


def disconnect(admin_view: AdminView, access: AdminAccess) -> Handler:
    """Make the handler: closes the connection that the path names; 204, or 404."""

    async def handle(request: PlainRequest) -> HttpResponse:
        await access.everything(request)
        if not await admin_view.disconnect(request.parameters["id"]):
            raise HttpError(404, "there is no such connection")
        return HttpResponse(204, headers=NO_STORE)

    return handle


def page_of(request: PlainRequest) -> PageParameters:
    """Read which page is asked for. Raises InvalidRequest."""
    return read_parameters(PageParameters, {}, request.head.query)
