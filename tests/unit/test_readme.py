"""What README.md shows is true: its plugin runs, its hooks, files and commands exist."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import click
import pluggy
import pytest

from kiwi_gw import hookspecs
from kiwi_gw.cli.verbs import verbs
from kiwi_gw.plugin_manager import PluginManager
from kiwi_gw.testing import check_source

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def block(language: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert len(found) == 1, f"README.md has {len(found)} blocks of {language}"
    return str(found[0])


async def test_the_source_it_shows_keeps_the_contract(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("ticks")
    monkeypatch.setitem(sys.modules, "ticks", module)
    exec(compile(block("python"), "README.md", "exec"), vars(module))  # noqa: S102  it is our own README
    plugins = PluginManager()
    plugins.load("ticks:plugin")
    report = await check_source(plugins.source_types()["tick"], {"type": "tick"})  # as it says
    assert not report.finite


def test_every_hook_is_in_its_table() -> None:
    manager = pluggy.PluginManager("kiwi_gw")
    manager.add_hookspecs(hookspecs)
    hooks = {name for name in vars(manager.hook) if not name.startswith("_")}
    table = README.split("The hooks, all in", 1)[1].split("What a hook raises", 1)[0]
    assert {
        name
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    } == hooks


def test_every_path_that_it_names_exists() -> None:
    named = re.findall(
        r"[`(]((?:kiwi_gw|core|edge|runtime|dialects|config|tests|plugins)/[\w./-]+)[`)]", README
    )
    assert named
    missing = [
        name for name in named if not (ROOT / name).exists() and not (ROOT / "kiwi_gw" / name).exists()
    ]
    assert missing == []


def test_every_command_that_it_names_exists() -> None:
    named = set(re.findall(r"kiwi-gw ([a-z]+)\b", README)) - {"stands", "is", "waits"}
    assert named
    assert named <= set(verbs.list_commands(click.Context(verbs)))
