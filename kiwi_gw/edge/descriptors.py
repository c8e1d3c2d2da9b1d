"""How many connections the process may have at all: each costs a descriptor."""

from __future__ import annotations

import resource

_OTHERS = 512
"""Descriptors beside the clients': brokers, files, plain HTTP, clients that have not said what they want."""


def raise_limit(connections: int) -> str | None:
    """Raise the soft limit of descriptors as far as so many connections need (0: any number), and as far as
    it may be raised.

    Returns a warning in words where that is not far enough.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if not connections:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return None
    wanted = connections + _OTHERS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed >= wanted:
        return None
    return (
        f"this process may have {allowed} descriptors: too few for server.limits.max_connections "
        f"({connections}); raise the limit (ulimit -Hn, LimitNOFILE=) to {wanted}"
    )
