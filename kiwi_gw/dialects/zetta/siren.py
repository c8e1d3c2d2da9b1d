"""Where the clients of this protocol find the socket: a link of the root resource, in Siren."""

from __future__ import annotations

from typing import Final

import msgspec

MEDIA_TYPE: Final = "application/vnd.siren+json"

EVENTS: Final = "http://rels.zettajs.io/events"


def root(host: str, secure: bool) -> bytes:
    """Write the root resource for clients that reach the gateway as `host`. secure: over TLS."""
    http, websocket = ("https", "wss") if secure else ("http", "ws")
    links = [
        {"rel": ["self"], "href": f"{http}://{host}/"},
        {"rel": [EVENTS], "href": f"{websocket}://{host}/events"},
    ]
    return msgspec.json.encode({"class": ["root"], "links": links}) + b"\n"
