"""tests/faults/README.md: every test that it names exists, and every row has one."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    *(f"P{n}" for n in range(1, 11)),
    *("S1", "S2", "S3", "S4", "S6", "S7", "S8", "S9", "S10", "S11"),
    *(f"C{n}" for n in range(1, 11)),
    *(f"R{n}" for n in range(1, 17)),
]


def test_every_row_names_tests_and_every_test_exists() -> None:
    text = (ROOT / "tests" / "faults" / "README.md").read_text()
    rows = dict(re.findall(r"^\| ([PSCR]\d+) \| (.*) \|$", text, re.MULTILINE))
    assert list(rows) == ROWS
    for row, words in rows.items():
        named = re.findall(r"`((?:tests/[\w/]+\.py)?)::(\w+)`", words)
        assert named, row
        path = ""
        for file, name in named:
            path = file or path
            source = (ROOT / path).read_text()
            assert re.search(rf"^(async )?def {name}\(", source, re.MULTILINE), f"{row}: {path}::{name}"
