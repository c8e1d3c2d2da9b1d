"""What import-linter cannot see: whose names a layer knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kiwi_gw

ROOT = Path(kiwi_gw.__file__).parent
STRANGERS = ("kiwi", "zetta", "lenses", "pulsar", "kafka", "counter", "spark")
"""Protocols and plugins. The core and the runtime work for all of them and must not know one."""

_OURS = re.compile(r"(?i:kiwi[_-]gw)|\bCounter\b|\b[Cc]ounters\b|\bperf_counter\b")
"""The package itself, what `collections` and `time` have, and a plain word."""

_NAME = re.compile(rf"(?<![a-z])(?:{'|'.join(STRANGERS)})", re.IGNORECASE)


def names(text: str) -> list[str]:
    """The strangers that a text names: in code, comments and strings alike, and as a part of a name."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", _OURS.sub("", text))
    return _NAME.findall(words)


def test_it_finds_them_wherever_they_stand() -> None:
    text = "import kiwi_gw.model  # kafka\nif name == 'Zetta': self._pulsar_id = LensesSession(KIWI)\nkafka2"
    assert names(text) == ["kafka", "Zetta", "pulsar", "Lenses", "KIWI", "kafka"]
    ours = "from kiwi_gw.core import feed  # pip install kiwi-gw; Kiwi_GW; encounter; Counter(); counters"
    assert names(ours) == []


@pytest.mark.parametrize("layer", ["core", "runtime"])
def test_a_layer_names_no_protocol_and_no_plugin(layer: str) -> None:
    files = sorted((ROOT / layer).rglob("*"))
    assert any(file.suffix == ".py" for file in files)
    found = {
        f"{file.relative_to(ROOT)}:{number}": line
        for file in files
        if file.suffix == ".py"
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if names(line)
    }
    assert found == {}
    assert not [file for file in files if names(file.name)]
