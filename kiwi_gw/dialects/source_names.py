"""What protocols call sources: each name is that of one."""

from __future__ import annotations

from collections.abc import Iterable

from kiwi_gw.errors import PluginError


def check_distinct(names: Iterable[tuple[str, str]], where: str) -> None:
    """Raise PluginError for two sources with one name. names: ids of sources, with what they are called.
    where: which protocol calls them so, and by which key of the configuration."""
    owners: dict[str, str] = {}
    for source_id, name in names:
        if name in owners:
            both = f"the sources {owners[name]!r} and {source_id!r}"
            raise PluginError(f"{both} are both called {name!r} in {where}")
        owners[name] = source_id
