"""Where the gateway listens."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass

from kiwi_gw.loopback import is_loopback

_HOST_AND_PORT = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%a-z]+)\]|(?P<host>[^\s:/\[\]]+)):(?P<port>[0-9]{1,5})")
_LONGEST_UNIX_PATH = 107  # sun_path of Linux, without its final zero


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """Hold a host name or IP address (v6 without brackets) and a port; the system chooses for port 0."""

    host: str
    port: int

    @property
    def local(self) -> bool:
        """Return whether only this machine can reach it."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """Hold the path of a Unix socket."""

    path: str

    @property
    def local(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"unix:{self.path}"


Address = TcpAddress | UnixAddress


def parse_address(text: str) -> Address:
    """Read `127.0.0.1:8000`, `[::1]:8000` or `unix:/run/kiwi-gw.sock`. Raises ValueError, in words."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path or "\0" in path:
            raise ValueError("needs a path after 'unix:', like unix:/run/kiwi-gw.sock")
        if len(path.encode()) > _LONGEST_UNIX_PATH:
            raise ValueError(f"the path of a Unix socket has at most {_LONGEST_UNIX_PATH} bytes")
        return UnixAddress(path)
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None:
        raise ValueError(f"must be host:port, [v6]:port or unix:/path, like 127.0.0.1:8000, not {text!r}")
    port = int(match["port"])
    if port > 65_535:
        raise ValueError(f"the port must be at most 65535, not {port}")
    return TcpAddress(match["v6"] or match["host"], port)


def clash(one: Address, other: Address) -> bool:
    """Return whether only one of two addresses can be listened on. A wildcard takes its port on every
    address, and `[::]` on those of IPv4 with it; port 0 is never the same twice. Names of hosts are not
    looked up."""
    if isinstance(one, UnixAddress):
        return isinstance(other, UnixAddress) and os.path.abspath(one.path) == os.path.abspath(other.path)
    if isinstance(other, UnixAddress):
        return False
    if one.port != other.port or one.port == 0:
        return False
    first, second = _host(one.host), _host(other.host)
    if first == second or _EVERY_V6 in (first, second):
        return True
    if _EVERY_V4 in (first, second):
        rest = second if first == _EVERY_V4 else first
        return isinstance(rest, str) or rest.version == 4
    return False


_EVERY_V4, _EVERY_V6 = ipaddress.ip_address("0.0.0.0"), ipaddress.ip_address("::")  # noqa: S104  (compared)


def _host(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | str:
    try:
        found = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return host.lower()
    return (found.version == 6 and found.ipv4_mapped) or found
