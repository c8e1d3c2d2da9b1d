"""What the configuration says to the protocols of Lenses."""

from __future__ import annotations

import subprocess
import sys
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


@pytest.mark.slow
def test_once_warmed_up_a_statement_of_either_kind_imports_nothing_more() -> None:
    program = (
        "import sys\n"
        "from kiwi_gw.query.warm_up import warm_up\n"
        "from kiwi_gw.dialects.lenses.plugin import LENSES\n"
        "warm_up()\n"
        "assert 'kiwi_gw.dialects.lenses.sql' not in sys.modules\n"
        "LENSES.warm_up()\n"
        "there = set(sys.modules)\n"
        "from kiwi_gw.dialects.lenses.any_queries import checked_any, parse_any\n"
        "parse_any(checked_any('SELECT n AS m FROM t WHERE upper(_key) LIKE \"a%\" AND n IN (1, 2)'))\n"
        "parse_any(checked_any('SELECT n, MAX(m) FROM t GROUP BY n HAVING MAX(m) > 1 ORDER BY n'))\n"
        "print(sorted(set(sys.modules) - there))\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
