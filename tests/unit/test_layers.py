"""What import-linter cannot see: whose names a layer knows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

import kiwi_gw

ROOT = Path(kiwi_gw.__file__).parent
PROTOCOLS = ("kiwi", "zetta", "lenses", "pulsar")
STRANGERS = (*PROTOCOLS, "kafka", "counter", "spark")
"""Protocols and plugins. The core and the runtime work for all of them and must not know one."""

KNOW_NO_PROTOCOL = (
    "config",
    "edge",
    "workers",
    "testing",
    "dialect_api",
    "app.py",
    "addresses.py",
    "api",
    "hookspecs.py",
)
"""These must not know a protocol: it is a plugin like any other."""

_OURS = re.compile(
    r"(?i:kiwi[_-]?gw)|\bKiwiError\b|/etc/kiwi/|\bkiwi\.yml\b|\bCounter\b|\b[Cc]ounters\b|\bperf_counter\b"
)
"""The package itself with its base error and its file, what `collections` and `time` have, a plain word."""


def names(text: str, strangers: Sequence[str] = STRANGERS) -> list[str]:
    """The strangers that a text names: in code, comments and strings alike, and as a part of a name."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", _OURS.sub("", text))
    return re.findall(rf"(?<![a-z])(?:{'|'.join(strangers)})", words, re.IGNORECASE)


def lines_with(files: Iterable[Path], strangers: Sequence[str]) -> dict[str, str]:
    """The lines of Python files that name one, by file and number."""
    return {
        f"{file.relative_to(ROOT)}:{number}": line
        for file in files
        if file.suffix == ".py"
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if names(line, strangers)
    }


def test_it_finds_them_wherever_they_stand() -> None:
    text = "import kiwi_gw.model  # kafka\nif name == 'Zetta': self._pulsar_id = LensesSession(KIWI)\nkafka2"
    assert names(text) == ["kafka", "Zetta", "pulsar", "Lenses", "KIWI", "kafka"]
    ours = (
        "from kiwi_gw.core import source_hub  # pip install kiwi-gw; Kiwi_GW; encounter; Counter(); counters"
    )
    assert names(ours) == []


@pytest.mark.parametrize("layer", ["core", "runtime"])
def test_a_layer_names_no_protocol_and_no_plugin(layer: str) -> None:
    files = sorted((ROOT / layer).rglob("*"))
    assert any(file.suffix == ".py" for file in files)
    assert lines_with(files, STRANGERS) == {}
    assert not [file for file in files if names(file.name)]


@pytest.mark.parametrize("layer", KNOW_NO_PROTOCOL)
def test_what_is_beside_the_protocols_names_none_of_them(layer: str) -> None:
    path = ROOT / layer
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    assert any(file.suffix == ".py" for file in files)
    assert lines_with(files, PROTOCOLS) == {}
    assert not [file for file in files if names(file.name, PROTOCOLS)]


@pytest.mark.parametrize("protocol", ["kiwi", "zetta"])
def test_a_protocol_is_named_in_its_folder_and_where_it_is_registered_and_nowhere_else(protocol: str) -> None:
    """But for programs that are clients of it, and for what a query language is called after."""
    clients = ("cli", "client", "query")
    files = [
        file
        for file in sorted(ROOT.rglob("*.py"))
        if file.relative_to(ROOT).parts[0] not in clients
        and not file.is_relative_to(ROOT / "dialects" / protocol)
    ]
    assert {line.rpartition(":")[0] for line in lines_with(files, [protocol])} == {"plugin_manager.py"}
