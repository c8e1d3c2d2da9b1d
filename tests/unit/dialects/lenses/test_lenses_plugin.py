"""What the configuration says to the protocols of Lenses."""

from __future__ import annotations

from pathlib import Path

import pytest

from kiwi_gw.config import load
from kiwi_gw.dialects.lenses import plugin
from kiwi_gw.errors import PluginError

CONFIG = """
lenses: {enabled: ENABLED}
sources:
  - {type: counter, id: a, min: 0, interval_ms: 100, lenses: {topic: NAME}}
  - {type: counter, id: b, min: 0, interval_ms: 100}
"""


def configure(folder: Path, name: str, enabled: str) -> None:
    path = folder / "kiwi-gw.yml"
    path.write_text(CONFIG.replace("NAME", name).replace("ENABLED", enabled))
    loaded = load(path, {})
    plugin.configure(loaded.context())


def test_two_sources_cannot_be_one_table(tmp_path: Path) -> None:
    configure(tmp_path, "c", "true")
    configure(tmp_path, "b", "false")
    with pytest.raises(PluginError, match="the sources 'a' and 'b' are both called 'b'"):
        configure(tmp_path, "b", "true")
