"""Addresses of a gateway, as people write them."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kiwi_gw.loopback import is_loopback

_SCHEMES = {"ws": False, "http": False, "wss": True, "https": True}


@dataclass(frozen=True, slots=True)
class Address:
    """Hold where a gateway is. host, port: where to connect, unless `socket_path` is set. resource: path and
    query of the request, which may hold a token."""

    host: str
    port: int
    resource: str = field(repr=False)
    tls: bool = False
    socket_path: str | None = None

    @property
    def authority(self) -> str:
        """Return the value of the `Host` header (RFC 9110, 7.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Return whether what is sent there cannot leave this machine."""
        return self.socket_path is not None or is_loopback(self.host)

    def __str__(self) -> str:
        """Format it for people and logs: without the query, which may hold a token."""
        path = self.resource.partition("?")[0]
        if self.socket_path is not None:
            return f"unix:{self.socket_path}" + ("" if path == "/" else f":{path}")
        return f"{'wss' if self.tls else 'ws'}://{self.authority}{path}"


def parse_address(text: str) -> Address:
    """Read `ws://host:port/path`, `wss://`, `http://`, `https://`, `host:port`, `host`,
    `unix:/path/to/socket` and `unix:/path/to/socket:/resource`.

    Without a scheme the port defaults to 8000, the gateway's own. Raises ValueError, in words, for anything
    else.
    """
    if text.startswith("unix:"):
        path, _, resource = text.removeprefix("unix:").partition(":")
        if not path:
            raise ValueError("unix: needs the path of a socket, as in unix:/run/kiwi.sock")
        return Address("localhost", 80, resource or "/", socket_path=path)
    default_port: int | None = None
    if "://" not in text:
        text, default_port = f"ws://{text}", 8000
    parts = urlsplit(text)
    if parts.scheme not in _SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
        raise ValueError(f"{parts.scheme}:// is not an address of a gateway; use {known}, unix: or host:port")
    if not parts.hostname:
        raise ValueError(f"no host in {text!r}; an address looks like ws://localhost:8000")
    if parts.username is not None:
        raise ValueError("a user in the address is not used; give a token with --token")
    tls = _SCHEMES[parts.scheme]
    try:
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{parts.netloc!r}: {error}") from None
    resource = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not resource.isascii() or any(c <= " " or c == "\x7f" for c in resource):
        raise ValueError("the path of an address must be percent-encoded")
    return Address(parts.hostname, port or default_port or (443 if tls else 80), resource, tls)
