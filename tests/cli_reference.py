"""The help of all commands in docs/reference/cli.md, as `kiwi-gw COMMAND --help` shows it.

`python -m tests.cli_reference` writes it anew; `tests/unit/cli/test_reference.py` says when to.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from kiwi_gw.cli.verbs import verbs
from tests.doc_blocks import rewrite

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "cli.md"
PART = "commands"


def text() -> str:
    """One section for each command."""
    return "\n".join(_sections(click.Context(verbs, info_name="kiwi-gw", **verbs.context_settings)))


def _sections(context: click.Context) -> Iterator[str]:
    command = context.command
    if context.parent is not None:
        yield f"## {context.command_path}\n\n```text\n{command.get_help(context).strip()}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from _sections(click.Context(found, parent=context, info_name=name, terminal_width=100))


if __name__ == "__main__":
    rewrite(PAGE, PART, text())
