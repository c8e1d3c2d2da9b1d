"""docs/reference/cli.md has the help of every command."""

from __future__ import annotations

import click

from kiwi_gw.cli.verbs import verbs
from tests.cli_reference import PAGE, PART, text
from tests.doc_blocks import replaced


def test_the_page_is_fresh() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert replaced(page, PART, text()) == page, "run: python -m tests.cli_reference"


def test_every_command_is_on_it() -> None:
    for name in verbs.list_commands(click.Context(verbs)):
        assert f"## kiwi-gw {name}\n" in text()
