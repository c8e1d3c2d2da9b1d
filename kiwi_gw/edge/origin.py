"""Which web pages may open a connection (RFC 6455, 10.2; RFC 6454), and under which name of ours."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from kiwi_gw.edge.request_head import RequestHead
from kiwi_gw.loopback import is_loopback

_ORIGIN = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?P<host>(?:\*\.)?[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
)
_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class _Origin(NamedTuple):
    scheme: str
    host: str
    port: int | None


def why_refused(head: RequestHead, allowed_origins: Sequence[str], secure: bool) -> str | None:
    """Say what is against the page behind this request, for its author. None: it may connect.

    Allowed are: no Origin header (not a browser); the page's own server, compared with Host by scheme,
    host and port; what `allowed_origins` lists: `*` (everything), `null`, an origin, or every host below
    one: `https://*.example.com`. Case and default ports do not matter; a trailing dot does, as it does
    to browsers.

    secure: whether the *client* speaks TLS (with us, or with a proxy that is trusted to say so).
    """
    origins = head.values("origin")
    if not origins:
        return None
    if len(origins) > 1:
        return "there is more than one Origin header"
    if "*" in allowed_origins:
        return None
    if origins[0] == "null":
        return None if "null" in allowed_origins else "the page has no origin (null), and that is not listed"
    origin = _parse(origins[0])
    if origin is None or origin.host.startswith("*"):
        return "the Origin header is not an origin"
    scheme = "https" if secure else "http"
    host = head.header("host")
    own = None if host is None else _parse(f"{scheme}://{host}")
    if origin == own or any(_matches(origin, entry) for entry in allowed_origins):
        return None
    if own is not None and origin.host == own.host:
        return f"the page is of this host, but not of {scheme}:// and this port, and it is not listed"
    return "the page is of another host, and it is not listed"


def remedy(head: RequestHead) -> str:
    """Say to the operator what would let the page behind a refused request in."""
    origins = head.values("origin")
    if origins == ["null"]:
        return "serve the page from a web server: opened from a file it has no origin"
    if len(origins) != 1 or (origin := _parse(origins[0])) is None or origin.host.startswith("*"):
        return "none: no browser sends this"
    return f"if the page is yours, add {origins[0].lower()} to server.allowed_origins"


def host_allowed(host: str | None, here: str | None, allowed_origins: Sequence[str] = ()) -> bool:
    """Whether a request for this authority (the one of its target, else Host) is meant for us, where no
    client needs to say who he is.

    On loopback there are no strangers but web pages, and one whose own name was made to resolve to 127.0.0.1
    (DNS rebinding) is of the same origin as we are: only the name tells. So there it must be an IP address,
    `localhost`, or the host of an allowed origin. Who sends no name is no browser.

    here: our end of the connection, an IP address; None for a Unix socket, which no page can reach.
    """
    if host is None or here is None or not _is_loopback(here) or "*" in allowed_origins:
        return True
    if host.partition(":")[0] in (here, "localhost"):
        return True
    called = _parse(f"http://{host.removesuffix(':')}")
    if called is None:
        return False
    name = called.host.strip("[]")
    return name == "localhost" or _is_address(name) or _is_listed(name, allowed_origins)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_listed(name: str, allowed_origins: Sequence[str]) -> bool:
    for entry in allowed_origins:
        allowed = _parse_entry(entry)
        if allowed is not None and (name == allowed.host or _is_below(name, allowed.host)):
            return True
    return False


def _is_below(host: str, pattern: str) -> bool:
    """Whether the pattern is `*.` and a domain that this is a host of."""
    return pattern.startswith("*.") and host.endswith(pattern[1:]) and len(host) > len(pattern) - 1


def _matches(origin: _Origin, entry: str) -> bool:
    allowed = _parse_entry(entry)
    if allowed is None:
        return False
    if allowed.host.startswith("*."):
        same = (origin.scheme, origin.port) == (allowed.scheme, allowed.port)
        return same and _is_below(origin.host, allowed.host)
    return origin == allowed


def _parse(text: str) -> _Origin | None:
    match = _ORIGIN.fullmatch(text)
    if match is None:
        return None
    scheme = match["scheme"].lower()
    port = int(match["port"]) if match["port"] else _DEFAULT_PORTS.get(scheme)
    return _Origin(scheme, match["host"].lower(), port)


# Only what the configuration lists, and addresses of ours, are remembered, never what a client sends.
_parse_entry = lru_cache(maxsize=256)(_parse)
_is_loopback = lru_cache(maxsize=64)(is_loopback)
