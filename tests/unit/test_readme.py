"""What README.md and docs/ say is so: names, figures, links, alerts. (Their blocks: test_snippets.py.)"""

from __future__ import annotations

import re
import sys
import tomllib
import types

import click
import pluggy
import pytest
import yaml

from kiwi_gw import __version__, hookspecs
from kiwi_gw.cli.verbs import verbs
from kiwi_gw.plugin_manager import PluginManager
from kiwi_gw.testing import check_source
from tests.doc_snippets import ROOT, pages, snippets

TEXTS = {name: path.read_text(encoding="utf-8") for name, path in pages().items()}
README = TEXTS["README.md"]
PLUGINS = TEXTS["docs/guides/plugins.md"]
ALERTS = ROOT / "config" / "monitoring" / "alerts.yml"


def test_the_readme_is_one_page() -> None:
    assert len(README.splitlines()) <= 200


def test_the_version_and_the_extras_are_those_that_there_are() -> None:
    assert f"\n{__version__}, " in README.partition("## Status")[2]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    table = TEXTS["docs/start/install.md"].partition("| extra | for |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(extras)


@pytest.mark.parametrize("name", ["README.md", "docs/deploy/sizing.md"])
def test_figures_are_those_that_were_measured(name: str) -> None:
    measured = TEXTS["docs/explanation/benchmarks.md"] + TEXTS["docs/reference/limits.md"]
    text = README.partition("## How fast")[2].partition("\n## ")[0] if name == "README.md" else TEXTS[name]
    figures = re.findall(r"\b(?:\d{1,3}(?:,\d{3})+|\d+\.\d+)(?:%| ms| us| KiB|x)?", text)
    assert len(figures) >= 6
    assert [figure for figure in figures if figure not in measured] == []


async def test_the_source_that_is_shown_keeps_the_contract(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ticks,) = [block for block in snippets(PLUGINS) if block.title == "ticks.py"]
    module = types.ModuleType("ticks")
    monkeypatch.setitem(sys.modules, "ticks", module)
    exec(compile(ticks.text, "plugins.md", "exec"), vars(module))  # noqa: S102  it is our own page
    plugins = PluginManager()
    plugins.load("ticks:plugin")
    report = await check_source(plugins.source_types()["tick"], {"type": "tick"})
    assert not report.finite


def test_every_hook_is_in_the_table() -> None:
    manager = pluggy.PluginManager("kiwi_gw")
    manager.add_hookspecs(hookspecs)
    hooks = {name for name in vars(manager.hook) if not name.startswith("_")}
    table = PLUGINS.partition("## The hooks")[2].partition("What a hook raises")[0]
    assert {
        name
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    } == hooks


def test_every_alert_has_an_entry_in_the_runbook() -> None:
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    entries = re.findall(r"^## (\w+)$", TEXTS["docs/deploy/runbook.md"], re.MULTILINE)
    assert entries == [rule["alert"] for rule in rules]
    for rule in rules:
        assert rule["annotations"]["runbook"] == f"docs/deploy/runbook.md#{rule['alert'].lower()}"


@pytest.mark.parametrize("name", TEXTS)
def test_every_path_that_it_names_exists(name: str) -> None:
    named = re.findall(
        r"[`(]((?:kiwi_gw|core|edge|runtime|dialects|config|tests|plugins|docs)/[\w./-]+)[`)#:]", TEXTS[name]
    )
    places = (ROOT, ROOT / "kiwi_gw", (ROOT / name).parent)
    assert [path for path in named if not any((place / path).exists() for place in places)] == []


def test_every_link_of_the_readme_leads_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert len(links) > 20
    for link in links:
        path, _, anchor = link.partition("#")
        assert (ROOT / path).exists(), link
        if anchor:
            heads = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads}, link


@pytest.mark.parametrize("name", TEXTS)
def test_every_command_that_it_names_exists(name: str) -> None:
    named = set(re.findall(r"^(?:\$ )?kiwi-gw ([a-z]+)\b|`kiwi-gw ([a-z]+)\b", TEXTS[name], re.MULTILINE))
    assert {word for pair in named for word in pair if word} <= set(verbs.list_commands(click.Context(verbs)))


def test_every_key_of_tokens_is_described() -> None:
    section = TEXTS["docs/reference/configuration.md"].partition("### `tokens`")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| `(tokens\.[^`]+)` \|.*\| (.*?) ?\|$", section, re.MULTILINE)
    assert len(rows) > 20
    assert [key for key, meaning in rows if not meaning.strip()] == []
