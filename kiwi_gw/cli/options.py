"""Options that several verbs take, and the ways in which all of them print."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from kiwi_gw.errors import ConfigError
from kiwi_gw.terminal import escape, wants_colour

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_CONFIG: Final = "/etc/kiwi/config/kiwi.yml"
EXIT_CONFIG: Final = 78  # EX_CONFIG of sysexits.h


def _config_option(is_eager: bool = False) -> Callable[[F], F]:
    return click.option(
        "-c",
        "--config",
        "config_path",
        type=click.Path(path_type=Path),
        default=DEFAULT_CONFIG,
        show_default=True,
        is_eager=is_eager,
        # CONFIG and LOG_LEVEL are the original server's names; ours come first.
        envvar=["KIWI_GW_CONFIG", "CONFIG"],
        show_envvar=True,
        help="The configuration, a YAML file.",
    )


config_option = _config_option()

timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    help="Seconds that a plugin may take; Spark needs some for its start.",
)

libraries_option = click.option(
    "-v", "--verbose", is_flag=True, help="Show what plugins and client libraries log, too."
)

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object for scripts.")


def config_file(command: F) -> F:
    """`FILE`, which may also be given as `--config FILE` or in the environment; passed as `config_path`."""

    def overrule(ctx: click.Context, _: click.Parameter, file: Path | None) -> None:
        if file is None:
            return
        if ctx.get_parameter_source("config_path") is ParameterSource.COMMANDLINE:
            raise click.UsageError("the file is given twice: as FILE and as --config")
        ctx.params["config_path"] = file

    argument = click.argument(
        "file", required=False, type=click.Path(path_type=Path), callback=overrule, expose_value=False
    )
    # `--config` is looked at first (is_eager), so that FILE can take its place.
    return argument(_config_option(is_eager=True)(command))


def print_json(value: object) -> None:
    import json

    click.echo(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print columns as wide as their widest cell; the last may be of any length, and have several lines."""
    cells: list[list[str]] = []
    for row in rows:
        first, *more = row[-1].rstrip("\n").split("\n")
        cells.append([*map(escape, row[:-1]), escape(first)])
        cells.extend([*[""] * (len(row) - 1), escape(line)] for line in more)
    widths = [max(len(row[i]) for row in [list(headings), *cells]) for i in range(len(headings))]
    click.echo(paint(_line(headings, widths), bold=True))
    for cell_row in cells:
        click.echo(_line(cell_row, widths))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def paint(text: str, **style: Any) -> str:
    """Return the text in colour where standard output is a terminal that wants it."""
    return click.style(text, **style) if wants_colour(sys.stdout) else text


def note(text: str) -> None:
    """Print a line for the user on standard error."""
    click.echo(escape(text), err=True)


def say_how_to_begin(error: ConfigError) -> None:
    """Say how to come by a configuration, where the file is not there."""
    if error.unreadable and not any(Path(problem.file).exists() for problem in error.problems):
        note("to begin: kiwi-gw config init kiwi-gw.yml; kiwi-gw run --config kiwi-gw.yml")


def environment() -> dict[str, str]:
    """Return a copy of the environment, for a verb's options to be laid over."""
    return dict(os.environ)


def listen_to_libraries(verbose: bool) -> None:
    """For a verb that connects: shows what plugins and client libraries log, or nothing of it."""
    from kiwi_gw import logs

    if verbose:
        logs.configure("debug")
    else:
        logs.silence()  # what goes wrong is printed, and this would say it twice
