"""The command line: `kiwi-gw VERB ...`, and `kiwi --config FILE` as the original's users know it.

Verbs import what they need when they run: `--help`, `tail` and `health` must not wait for the gateway's
own libraries.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from kiwi_gw.cli.options import EXIT_CONFIG, say_how_to_begin
from kiwi_gw.cli.verbs import verbs
from kiwi_gw.errors import ConfigError, KiwiError, leaves
from kiwi_gw.terminal import escape

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130  # 128 + SIGINT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code: 0, 1 (failed), 2 (wrong usage), 78 (bad configuration),
    130 (Ctrl-C in a client)."""
    try:
        code = _run(arguments)
        # Here and not at the interpreter's end, where a closed pipe could only be complained about.
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has had enough (`| head`). Python will flush once more on its way out: into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        # The original's name stays its own in help texts; `python -m kiwi_gw` is called by ours.
        name = os.path.basename(sys.argv[0])
        name = name if name in ("kiwi", "kiwi-gw") else "kiwi-gw"
        result = verbs.main(args=arguments, prog_name=name, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except ConfigError as error:
        for problem in error.problems:
            click.echo(escape(str(problem)), err=True)
        say_how_to_begin(error)
        return EXIT_CONFIG
    except KiwiError as error:
        _complain(error)
        return EXIT_FAILED
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is not None:
            return EXIT_INTERRUPTED
        expected, rest = group.split(KiwiError)
        if expected is None or rest is not None:
            raise
        for leaf in leaves(expected):
            _complain(leaf)
        return EXIT_FAILED
    return result if isinstance(result, int) else 0


def _complain(error: BaseException) -> None:
    # Line by line: a message may end with the last lines of a log.
    text = "\n".join(escape(line) for line in str(error).split("\n"))
    click.echo(f"kiwi-gw: {text}", err=True)
