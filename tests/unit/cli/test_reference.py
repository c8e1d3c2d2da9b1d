"""docs/reference/cli.md has the help of every command."""

from __future__ import annotations

import subprocess
import sys

import click

from kiwi_gw.cli.verbs import verbs
from tests.cli_reference import PAGE, PART, text
from tests.doc_blocks import replaced


def test_the_page_is_fresh() -> None:
    # In a process of its own: click keeps the help option of a command that another test has called alone.
    program = "import tests.cli_reference; print(tests.cli_reference.text(), end='')"
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    page = PAGE.read_text(encoding="utf-8")
    assert replaced(page, PART, made.stdout) == page, "run: python -m tests.cli_reference"


def test_every_command_is_on_it() -> None:
    for name in verbs.list_commands(click.Context(verbs)):
        assert f"## kiwi-gw {name}\n" in text()
