"""Every block of README.md and docs/ is one that a test runs or checks, or says why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from kiwi_gw.config import load
from tests.doc_snippets import Snippet, pages, snippets

BLOCKS = [
    (name, block) for name, path in pages().items() for block in snippets(path.read_text(encoding="utf-8"))
]
LANGUAGES = {"console", "html", "js", "json", "python", "sh", "text", "yaml"}
"""All that there are tests of."""
NOT_RUN = {
    ("README.md", "it would need a package index"),
    ("README.md", "tests/integration/test_demo.py runs the demo, and this is one of the tests"),
    ("docs/deploy/compose.md", "needs a container engine"),
    ("docs/deploy/container.md", "needs a container engine"),
    ("docs/deploy/kubernetes.md", "needs a Kubernetes cluster"),
    ("docs/deploy/monitoring.md", "Prometheus reads it"),
    ("docs/deploy/proxies.md", "needs Caddy"),
    ("docs/deploy/proxies.md", "needs nginx"),
    ("docs/deploy/systemd.md", "needs systemd"),
    ("docs/start/install.md", "it would need a package index"),
    ("docs/start/install.md", "the tests run in what this makes"),
}
"""All that is not run. Whatever is marked otherwise needs its place here, and a reason that convinces."""
IN_A_BROWSER_OR_NODE = {
    ("README.md", ""),  # tests/integration/test_documented_scripts.py, as the next three
    ("docs/guides/authentication.md", "page.html"),
    ("docs/guides/authentication.md", "subprotocol.js"),
    ("docs/guides/authentication.md", "ticket.js"),
    ("docs/guides/clients.md", ""),  # tests/integration/test_resume.py
    ("docs/guides/clients.md", "client.html"),  # tests/integration/test_whole_page.py
    ("docs/start/browser.md", "watch.html"),  # tests/integration/test_node.py
}


def of(*languages: str) -> list[object]:
    """The blocks in these languages, as parameters of a test."""
    return [
        pytest.param(block, id=f"{name}:{block.line}")
        for name, block in BLOCKS
        if block.language in languages and not block.not_run
    ]


def test_languages_are_known() -> None:
    assert {block.language for _, block in BLOCKS if not block.not_run} <= LANGUAGES


def test_what_is_not_run_is_known() -> None:
    assert {(name, block.not_run) for name, block in BLOCKS if block.not_run} == NOT_RUN


def test_every_script_of_a_page_has_a_test() -> None:
    assert {
        (name, block.title) for name, block in BLOCKS if block.language in ("js", "html")
    } == IN_A_BROWSER_OR_NODE


@pytest.mark.parametrize("block", of("yaml"))
def test_a_configuration_is_one(block: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = yaml.safe_load(block.text)
    if "ticks:plugin" in given.get("plugins", ()):
        (ticks,) = [one for _, one in BLOCKS if one.title == "ticks.py"]
        (tmp_path / "ticks.py").write_text(ticks.text)
        monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "kiwi-gw.yml"
    path.write_text(block.text)
    environment = {"DASHBOARD_TOKEN": "dashboard-0123456789", "PROMETHEUS_TOKEN": "prometheus-0123456789"}
    assert load(path, environment).settings.sources


@pytest.mark.parametrize("block", of("json"))
def test_json_is_json(block: Snippet) -> None:
    for line in block.text.splitlines():
        json.loads(line)


@pytest.mark.parametrize("block", of("python"))
def test_python_is_python(block: Snippet) -> None:
    compile(block.text, block.title, "exec")


def test_blocks_are_found() -> None:
    text = (
        '<!-- not run: no -->\n```sh\na\n```\n1.\n\n    ```yaml title="b.yml"\n    c: 1\n      d\n    ```\n'
    )
    assert snippets(text) == [
        Snippet(2, "sh", "", "a\n", "no"),
        Snippet(7, "yaml", "b.yml", "c: 1\n  d\n", ""),
    ]


@pytest.mark.parametrize("line", ["```", "```sh run", "```yaml title=a"])
def test_a_block_says_what_it_is(line: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        snippets(f"{line}\n```\n")
