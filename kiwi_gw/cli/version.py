"""`kiwi-gw version`."""

from __future__ import annotations

import click

from kiwi_gw.cli.options import json_option, print_json


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Show the version of the gateway and of what it stands on."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    from kiwi_gw import __version__

    found = {"kiwi-gw": __version__, "python": platform.python_version()}
    for name in ("trio", "trio-websocket", "aiokafka", "pyspark"):
        try:
            found[name] = installed(name)
        except PackageNotFoundError:  # an extra that is not installed has no version to show
            continue
    if as_json:
        print_json(found)
    else:
        for name, number in found.items():
            click.echo(f"{name} {number}")
