"""What `GET /` answers: a page for people, and what clients of a protocol look for there."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kiwi_gw.dialect_api import Dialect, HttpResponse, WebSocketRoute
from kiwi_gw.edge.plain_request import NO_STORE, PlainRequest

_HOST = re.compile(r"[A-Za-z0-9._~-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class LandingPage:
    """name: of the gateway. dialects: the protocols that are served, by name."""

    name: str
    dialects: Mapping[str, Dialect]

    async def handle(self, request: PlainRequest) -> HttpResponse:
        """Answer a request for `/`."""
        head = request.head
        kind, body = self.answer(head.header("accept") or "", head.header("host") or "", request.ends.secure)
        return HttpResponse(200, body, kind, (*NO_STORE, ("Vary", "accept")))

    def answer(self, accept: str, host: str, secure: bool) -> tuple[str, bytes]:
        """Media type and body: the document that the Accept header names first, else the page. A host that
        is none (a header says what it likes) is taken for this machine."""
        where = host if _HOST.fullmatch(host) else "localhost"
        documents = {kind: make for item in self.dialects.values() for kind, make in item.documents.items()}
        for wanted in accept.lower().split(","):
            kind = wanted.partition(";")[0].strip()
            if kind in documents:
                return kind, documents[kind](where, secure)
        return "text/html; charset=utf-8", self._page(f"{'wss' if secure else 'ws'}://{where}")

    def _page(self, base: str) -> bytes:
        rows = (
            f"<li>{html.escape(name)}: <code>{html.escape(base + path)}</code></li>"
            for name, path in self._first_paths()
        )
        name = html.escape(self.name)
        return (
            f"<!doctype html><meta charset=utf-8><title>{name}</title>\n"
            f"<h1>{name}</h1>\n<p>A kiwi-gw gateway. It speaks, over WebSocket:</p>\n"
            f"<ul>{''.join(rows)}</ul>\n<p>Whether it is ready: <a href=/readyz>/readyz</a>.</p>\n"
        ).encode()

    def _first_paths(self) -> Iterator[tuple[str, str]]:
        """Every protocol that is spoken over WebSocket, with its first path."""
        for name, dialect in self.dialects.items():
            path = next((route.path for route in dialect.routes if isinstance(route, WebSocketRoute)), None)
            if path is not None:
                yield name, path
