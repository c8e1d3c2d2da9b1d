"""Which hosts can only be this machine."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str | None) -> bool:
    """Return whether a name or an address can only be this machine."""
    if host is None:
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
