"""`kiwi-gw plugins`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kiwi_gw.cli.options import json_option, print_json, print_table
from kiwi_gw.errors import PluginError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from kiwi_gw.plugin_manager import PluginManager


@click.command()
@click.argument("names", nargs=-1)
@json_option
def plugins(names: tuple[str, ...], as_json: bool) -> int:
    """Show the installed plugins and what each provides.

    NAMES limits the list; a plugin that is not installed is named as module:object. One that needs an extra
    is shown with what to install. One that cannot be loaded is shown with the reason, and makes the exit
    code 1.
    """
    from kiwi_gw.plugin_manager import available

    installed = available()
    rows = [_describe(name, installed.get(name)) for name in (names or sorted(installed))]
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo("No plugin is installed.")
    else:
        print_table(
            ("PLUGIN", "FROM", "PROVIDES"),
            [(str(row["name"]), str(row["package"] or "-"), _summary(row)) for row in rows],
        )
    return 1 if any(row["error"] for row in rows) else 0


def _describe(name: str, point: EntryPoint | None) -> dict[str, object]:
    from kiwi_gw.plugin_manager import MissingExtraError, PluginManager

    manager = PluginManager()
    row: dict[str, object] = {
        "name": name,
        "package": f"{point.dist.name} {point.dist.version}" if point is not None and point.dist else None,
        "object": point.value if point is not None else name,
        "error": None,
        "needs": None,
    }
    try:
        manager.load(name)
        row.update(_provides(manager, name))
    except MissingExtraError as missing:
        row["needs"] = missing.requirement
    except PluginError as error:
        row["error"] = str(error)
    except Exception as error:  # noqa: BLE001  (a plugin's own code; shown, and the exit code says it)
        row["error"] = f"{type(error).__name__}: {error}"
    return row


def _provides(manager: PluginManager, name: str) -> dict[str, object]:
    return {
        "source_types": sorted(manager.source_types()),
        "dialect_types": sorted(manager.dialect_types(name)),
        "services": sorted(manager.service_types()),
        "config_sections": sorted(manager.config_sections(name)),
        "hooks": manager.hooks_of(name),
    }


_DECLARATIONS = frozenset({"source_types", "dialect_types", "services", "config_sections"})


def _summary(row: dict[str, object]) -> str:
    if row["error"]:
        return f"cannot be loaded: {row['error']}"
    if row["needs"]:
        return f"needs: pip install '{row['needs']}'"
    parts = []
    for key, word in (
        ("source_types", "source type"),
        ("dialect_types", "protocol"),
        ("config_sections", "section"),
        ("services", "service"),
    ):
        if names := row[key]:
            parts.append(f"{word} {', '.join(names)}")  # type: ignore[arg-type]
    hooks = [name for name in row["hooks"] if name not in _DECLARATIONS]  # type: ignore[attr-defined]
    if hooks:
        parts.append(f"hook {', '.join(hooks)}")
    return "; ".join(parts) or "nothing"
