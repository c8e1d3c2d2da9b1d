"""What `GET /` answers: a page for people, and what clients of a protocol look for there."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kiwi_gw.dialects.base import Dialect

Document = Callable[[str, bool], bytes]
"""Makes a document for clients that reach the gateway as that host, over TLS or not."""

_HOST = re.compile(r"[A-Za-z0-9._~-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Front:
    """name: of the gateway. documents: what else there is than the page, by media type."""

    name: str
    dialects: Sequence[Dialect]
    documents: Mapping[str, Document]

    def answer(self, accept: str, host: str, secure: bool) -> tuple[str, bytes]:
        """Media type and body: the document that the Accept header names first, else the page. A host that
        is none (a header says what it likes) is taken for this machine."""
        where = host if _HOST.fullmatch(host) else "localhost"
        for wanted in accept.lower().split(","):
            kind = wanted.partition(";")[0].strip()
            if kind in self.documents:
                return kind, self.documents[kind](where, secure)
        return "text/html; charset=utf-8", self._page(f"{'wss' if secure else 'ws'}://{where}")

    def _page(self, base: str) -> bytes:
        rows = (
            f"<li>{html.escape(dialect.name)}: <code>{html.escape(base + dialect.paths[0])}</code></li>"
            for dialect in self.dialects
        )
        name = html.escape(self.name)
        return (
            f"<!doctype html><meta charset=utf-8><title>{name}</title>\n"
            f"<h1>{name}</h1>\n<p>A kiwi-gw gateway. It speaks, over WebSocket:</p>\n"
            f"<ul>{''.join(rows)}</ul>\n<p>Whether it is ready: <a href=/readyz>/readyz</a>.</p>\n"
        ).encode()
