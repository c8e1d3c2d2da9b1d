"""`kiwi-gw run`."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from kiwi_gw.cli.options import config_option, environment

_LEVELS = {
    "trace": "debug",  # the original server's finest
    "debug": "debug",
    "info": "info",
    "warn": "warning",
    "warning": "warning",
    "error": "error",
}


@click.command()
@config_option
@click.option(
    "-l",
    "--log-level",
    type=click.Choice(list(_LEVELS), case_sensitive=False),
    envvar=["KIWI_GW_LOG_LEVEL", "LOG_LEVEL"],
    show_envvar=True,
    help="How much to log; wins over the file's `logging.level`.",
)
@click.option("-q", "--quiet", is_flag=True, help="Log warnings and errors only.")
@click.option("-v", "--verbose", is_flag=True, help="Log everything.")
def run(config_path: Path, log_level: str | None, quiet: bool, verbose: bool) -> int:
    """Run the gateway.

    It watches its configuration file and applies valid changes at once; SIGHUP makes it look now.
    SIGTERM and SIGINT let clients go in peace; a second one ends it at once.
    """
    if quiet and verbose:
        raise click.UsageError("--quiet and --verbose contradict each other")
    level = "debug" if verbose else "warning" if quiet else log_level
    environ = environment()
    if level is not None:
        environ["KIWI_GW_LOGGING__LEVEL"] = _LEVELS[level.lower()]
    with _leaving_before_the_start():
        gc.disable()  # modules stay: to look for garbage among them took 4 % of the start
        from kiwi_gw.app import serve

        gc.freeze()
        gc.enable()
        return serve(config_path, environ)


@contextmanager
def _leaving_before_the_start() -> Iterator[None]:
    """Leave at once by a signal that comes while modules are imported: there is nothing to stop yet.

    Without a handler of its own the first process of a container would even ignore SIGTERM. `serve`
    puts its own handlers in place as soon as there is something to stop.
    """

    def leave(signum: int, frame: FrameType | None) -> None:
        os._exit(0)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
