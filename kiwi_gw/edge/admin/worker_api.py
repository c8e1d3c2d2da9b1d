"""What the workers of one gateway ask each other, on Unix sockets in a folder that only they can enter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h11
import msgspec
import trio

from kiwi_gw.dialect_api import HttpResponse
from kiwi_gw.edge.admin.admin_view import TOPICS, AdminView, Topic
from kiwi_gw.edge.admin.app import page_of
from kiwi_gw.edge.http_errors import HttpError
from kiwi_gw.edge.plain_request import Handler, PlainRequest, json_response
from kiwi_gw.edge.routing import Routes

INCARNATION = "x-incarnation"
"""Header of a snapshot: how many worked in this slot before this one."""

_READ = 64 * 1024


def add_private_routes(routes: Routes, local_admin: AdminView, incarnation: int) -> None:
    """Serve what `ask` is used for."""

    async def snapshot(request: PlainRequest) -> HttpResponse:
        body = (await local_admin.snapshot()).dump()
        return HttpResponse(200, body, "application/json", ((INCARNATION, str(incarnation)),))

    async def disconnect(request: PlainRequest) -> HttpResponse:
        return json_response({"done": await local_admin.disconnect(request.parameters["id"])})

    routes.add_http("GET", "/snapshot", snapshot)
    routes.add_http("DELETE", "/connections/{id}", disconnect)
    for topic in TOPICS:
        routes.add_http("GET", f"/{topic}", _page(local_admin, topic))


def _page(local_admin: AdminView, topic: Topic) -> Handler:
    async def handle(request: PlainRequest) -> HttpResponse:
        asked = page_of(request)
        page = await local_admin.page(topic, asked.after, asked.limit)
        return json_response({"items": page.items, "next": page.next})

    return handle


class WorkerSilent(Exception):  # noqa: N818  (it says what happened)
    """A worker did not answer in time, or not what was asked."""


async def ask(path: Path, target: str, method: str = "GET", seconds: float = 2.0) -> tuple[bytes, str]:
    """Return body and incarnation of the answer of the worker at `path`. Raises WorkerSilent, and HttpError
    400 where it was asked for a page that is none."""
    try:
        with trio.fail_after(seconds):
            async with await trio.open_unix_socket(str(path)) as stream:
                return await _exchange(stream, target, method)
    except (OSError, RuntimeError, trio.TooSlowError, trio.BrokenResourceError, h11.ProtocolError) as error:
        raise WorkerSilent(f"{path.name}: {type(error).__name__}") from error


async def ask_json(path: Path, target: str, method: str = "GET") -> dict[str, Any]:
    body, _ = await ask(path, target, method)
    found: dict[str, Any] = msgspec.json.decode(body)
    return found


async def _exchange(stream: trio.abc.Stream, target: str, method: str) -> tuple[bytes, str]:
    connection = h11.Connection(h11.CLIENT)
    request = h11.Request(method=method, target=target, headers=[("Host", "worker"), ("Connection", "close")])
    await stream.send_all(connection.send(request) + connection.send(h11.EndOfMessage()))
    body, incarnation = bytearray(), ""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(_READ)))
        elif isinstance(event, h11.Response):
            if event.status_code == 400:
                raise HttpError(400, "`after` is not a key of this list")
            if event.status_code != 200:
                raise WorkerSilent(f"status {event.status_code}")
            found = [value for name, value in event.headers if name == INCARNATION.encode()]
            incarnation = found[0].decode() if found else ""
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return bytes(body), incarnation
        else:
            raise WorkerSilent(f"an unexpected {type(event).__name__}")
