"""`kiwi-gw config`: its schema, what is in force, and a file to start from."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kiwi_gw.cli.options import config_file, environment, json_option, note, print_json
from kiwi_gw.errors import KiwiError


@click.group()
def config() -> None:
    """Look at the configuration, or begin one."""


@config.command()
@click.argument("plugins", nargs=-1)
def schema(plugins: tuple[str, ...]) -> None:
    """Print the JSON Schema (draft-07) of the configuration file, for editors.

    It covers the keys of all installed plugins, and of PLUGINS given as module:object.
    """
    from kiwi_gw.config.json_schema import json_schema, text
    from kiwi_gw.errors import PluginError
    from kiwi_gw.plugin_manager import PluginManager, available

    manager = PluginManager()
    for name in sorted(available()):
        try:
            manager.load(name)
        except PluginError as error:
            # The schema of the rest is better than none, and better than one that is silently short.
            note(f"kiwi-gw: left out: {error}")
    for name in plugins:
        manager.load(name)
    click.echo(text(json_schema(manager)), nl=False)


@config.command()
@config_file
@json_option
def show(config_path: Path, as_json: bool) -> None:
    """Print what is in force with FILE and the environment, defaults included, secrets masked."""
    from kiwi_gw.config import load, shown
    from kiwi_gw.config import show as as_yaml

    settings = load(config_path, environment()).settings
    if as_json:
        print_json(shown(settings))
    else:
        click.echo(as_yaml(settings), nl=False)


@config.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite a file that exists.")
def init(file: Path | None, force: bool) -> None:
    """Write a commented configuration to FILE, or print it."""
    from kiwi_gw.config import init as starter

    if file is None or str(file) == "-":
        sys.stdout.write(starter())
        return
    try:
        with file.open("w" if force else "x", encoding="utf-8") as out:
            out.write(starter())
    except FileExistsError:
        raise KiwiError(f"{file} exists; --force overwrites it") from None
    except OSError as error:
        raise KiwiError(f"{file}: {error.strerror}") from None
    note(f"{file} written; run it: kiwi-gw run --config {file}")
