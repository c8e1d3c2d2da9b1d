"""Commands that plugins add to `kiwi-gw`, found by their entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kiwi_gw.errors import PluginError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

COMMANDS_GROUP = "kiwi_gw.commands"
"""Entry points of click commands, by the name of the verb. No pluggy hook: commands are wanted where no
configuration names plugins, and to import every installed plugin would take `--help` half a second."""


def installed() -> EntryPoints:
    """Find the commands of installed plugins, without importing them."""
    from importlib.metadata import entry_points  # (30 ms, which `tail` and `health` need not wait for)

    return entry_points(group=COMMANDS_GROUP)


def load(name: str) -> click.Command | None:
    """Import a plugin's command. One that does not load says so when it is run, and in the list of all."""
    for point in installed().select(name=name):
        try:
            found = point.load()
        except Exception as error:  # noqa: BLE001  (a plugin's own code; said where the command is wanted)
            return _broken(name, f"{type(error).__name__}: {error}")
        return found if isinstance(found, click.Command) else _broken(name, f"{point.value} is no command")
    return None


def _broken(name: str, why: str) -> click.Command:
    @click.command(name, help=f"(cannot be loaded: {why})", context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1)
    def broken(arguments: tuple[str, ...]) -> None:
        raise PluginError(f"command {name!r} cannot be loaded: {why}")

    return broken
