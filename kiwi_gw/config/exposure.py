"""Who can reach a gateway with this configuration, where that is more than its operator may expect."""

from __future__ import annotations

from kiwi_gw.config.load import LoadedConfig


def exposure_warnings(loaded: LoadedConfig) -> tuple[str, ...]:
    """Return what an operator should know about who can reach this gateway."""
    if loaded.plugins.implements("authenticate"):
        return ()
    cure = "no plugin authenticates clients (add a `tokens:` section, or listen on loopback)"
    server = loaded.settings.server
    public = tuple(
        f"anyone who reaches {address} can read every source: {cure}"
        for address in server.addresses
        if not address.local
    )
    if server.admin is None or server.admin.local:
        return public
    can = "see and cut every connection" if server.admin_unauthenticated else "see metrics, and nothing else"
    return (*public, f"anyone who reaches {server.admin} can {can}: {cure}")
