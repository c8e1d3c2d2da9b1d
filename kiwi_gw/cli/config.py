"""`kiwi-gw config`: its schema, what is in force, and a file to start from."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kiwi_gw.cli.options import config_file, environment, json_option, note, print_json, print_table
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
@click.option(
    "--example",
    "name",
    help="Write this example instead: kafka, secured, spark, zetta, and what --list shows.",
)
@click.option("--list", "listed", is_flag=True, help="List the examples.")
@click.option("--force", is_flag=True, help="Overwrite a file that exists.")
def init(file: Path | None, name: str | None, listed: bool, force: bool) -> None:
    """Write a commented configuration to FILE, or print it.

    The examples are configurations, and what goes with them: alert rules, a dashboard, a page that watches.
    """
    from kiwi_gw.config import init as starter
    from kiwi_gw.config.examples import example, examples

    if listed:
        print_table(("EXAMPLE", "WHAT IT IS"), [(found, _what(path)) for found, path in examples().items()])
        return
    source = None if name is None else example(name)
    text = starter() if source is None else source.read_text(encoding="utf-8")
    if file is None or str(file) == "-":
        sys.stdout.write(text)
        return
    try:
        with file.open("w" if force else "x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise KiwiError(f"{file} exists; --force overwrites it") from None
    except OSError as error:
        raise KiwiError(f"{file}: {error.strerror}") from None
    runs = source is None or source.stem == name
    note(f"{file} written" + (f"; run it: kiwi-gw run --config {file}" if runs else ""))


_WITHOUT_COMMENTS = {
    "airlines.csv": "Airlines by their codes: the table that `demo` joins flights with",
    "client.html": "A page with a token, positions and the display of gaps",
    "grafana.json": "A dashboard for Grafana",
    "kiwi-gw.schema.json": "The configuration as JSON Schema, for editors",
    "watch.html": "A page that watches a source, by push or pull",
}


def _what(path: Path) -> str:
    """Return what the first comment of a file says, up to the end of a sentence."""
    if path.name in _WITHOUT_COMMENTS:
        return _WITHOUT_COMMENTS[path.name]
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("# ") and "yaml-language-server" not in line:
                return line.removeprefix("# ").partition(". ")[0].strip().rstrip(".:")
    return ""
