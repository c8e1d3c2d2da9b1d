"""Which hosts can only be this machine."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str | None) -> bool:
    """Return whether a name or an address can only be this machine. IPv4 in IPv6 counts as IPv4."""
    if host is None:
        return False
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
