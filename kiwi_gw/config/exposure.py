"""Who can reach a gateway with this configuration, where that is more than its operator may expect."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from kiwi_gw.api import Diagnostic
from kiwi_gw.config.load import LoadedConfig


def exposure_warnings(loaded: LoadedConfig) -> tuple[str, ...]:
    """Return what an operator should know about who can reach this gateway."""
    if loaded.plugins.implements("authenticate"):
        return ()
    cure = "no plugin authenticates clients (add a `tokens:` section, or listen on loopback)"
    server = loaded.settings.server
    able = "read every source, and write to those with `publish: true`"
    able = able if _written(loaded) else "read every source"
    public = tuple(
        f"anyone who reaches {address} can {able}: {cure}"
        for address in server.addresses
        if not address.local
    )
    if server.admin is None or server.admin.local:
        return public
    can = "see and cut every connection" if server.admin_unauthenticated else "see metrics, and nothing else"
    return (*public, f"anyone who reaches {server.admin} can {can}: {cure}")


def writers(loaded: LoadedConfig, told: Collection[Diagnostic]) -> Sequence[Diagnostic]:
    """Say of every source that clients may write to who of them may, as `runtime.hooks.decide` has it, where
    no plugin has. told: what plugins say."""
    judges = [name for name, _ in loaded.plugins.each("authorize")]
    addresses = loaded.settings.server.addresses
    reached = ", ".join(map(str, addresses))
    level: Literal["ok", "warning"]
    if judges:
        level, words = "ok", f"who may write to it is said client by client by the plugin {', '.join(judges)}"
    elif loaded.plugins.implements("authenticate"):
        level, words = "warning", "clients may write to it, but no plugin gives the right to (`authorize`)"
    else:
        level = "ok" if all(address.local for address in addresses) else "warning"
        words = f"may be written to by anyone who reaches {reached}: no plugin authenticates clients"
    said = {finding.where for finding in told}
    places = [("sources", source_id, "publish") for source_id in _written(loaded)]
    return [Diagnostic(level, f"source {place[1]}", words, place) for place in places if place not in said]


def _written(loaded: LoadedConfig) -> Sequence[str]:
    """Return the sources that clients may write to."""
    types = loaded.plugins.source_types()
    return [
        source.id
        for source in loaded.settings.sources.values()
        if types[source.type].description_of(source.settings).publish
    ]
