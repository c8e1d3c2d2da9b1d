"""Who a client is to limits: by its name, or where it has shown no credentials, by where it comes from."""

from __future__ import annotations

import ipaddress
from collections.abc import Hashable
from functools import lru_cache

from kiwi_gw.model import Identity


def client_at(address: object) -> str | None:
    """Find what counts as one client, of an address as its socket says it: an IPv4 address, a /64 network of
    IPv6 (who has one address of it has them all); None for a Unix socket, where nothing tells clients
    apart.
    """
    if not isinstance(address, tuple):
        return None
    return _client(str(address[0]))


@lru_cache(1024)  # every plain request asks, and most come from few places
def _client(host: str) -> str:
    found = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        # An IPv4 client at a socket for both.
        return str(found.ipv4_mapped or ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))
    return str(found)


def name_of(identity: Identity) -> str | None:
    """Return the name that stands for it; None if it is anyone's."""
    return None if identity.anonymous else identity.name


def who_pays(identity: Identity, client: Hashable | None, connection: int) -> Hashable:
    """Say whose shares of the gateway's time a connection uses. client: whose it is, as `client_at` has it;
    where nothing tells clients apart, each connection is one."""
    name = name_of(identity)
    if name is not None:
        return "name", name
    return ("connection", connection) if client is None else ("address", client)
