"""Which web pages may open a connection (RFC 6455, 10.2; RFC 6454)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from kiwi_gw.edge.head import RequestHead

_ORIGIN = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?P<host>(?:\*\.)?[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
)
_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class _Origin(NamedTuple):
    scheme: str
    host: str
    port: int | None


def origin_allowed(head: RequestHead, allowed_origins: Sequence[str], secure: bool) -> bool:
    """Whether the page behind this request may connect.

    Allowed are: no Origin header (not a browser); the page's own server, compared with Host by scheme,
    host and port; what `allowed_origins` lists: `*` (everything), `null`, an origin, or every host below
    one: `https://*.example.com`. Case and default ports do not matter; a trailing dot does, as it does
    to browsers.

    secure: whether the *client* speaks TLS (with us, or with a proxy that is trusted to say so).
    """
    origins = head.values("origin")
    if not origins:
        return True
    if len(origins) > 1:
        return False
    if "*" in allowed_origins:
        return True
    if origins[0] == "null":
        return "null" in allowed_origins
    origin = _parse(origins[0])
    if origin is None or origin.host.startswith("*"):
        return False
    host = head.header("host")
    if host is not None and origin == _parse(f"{'https' if secure else 'http'}://{host}"):
        return True
    return any(_matches(origin, entry) for entry in allowed_origins)


def _matches(origin: _Origin, entry: str) -> bool:
    allowed = _parse_entry(entry)
    if allowed is None:
        return False
    if allowed.host.startswith("*."):
        below = allowed.host[1:]
        return (
            origin.scheme == allowed.scheme
            and origin.port == allowed.port
            and origin.host.endswith(below)
            and len(origin.host) > len(below)
        )
    return origin == allowed


def _parse(text: str) -> _Origin | None:
    match = _ORIGIN.fullmatch(text)
    if match is None:
        return None
    scheme = match["scheme"].lower()
    port = int(match["port"]) if match["port"] else _DEFAULT_PORTS.get(scheme)
    return _Origin(scheme, match["host"].lower(), port)


# Only what the configuration lists is remembered, never what a client sends.
_parse_entry = lru_cache(maxsize=256)(_parse)
