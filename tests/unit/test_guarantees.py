"""docs/explanation/guarantees.md: what it promises is shown by tests that `make test` runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
HEAD = "| path | promise | shown by |\n|---|---|---|\n"
SEVERAL_BROKERS = {"tests/faults/test_cluster_faults.py"}
"""What `make test-all` alone runs: the other tests of their row are in `make test`."""


def test_every_promise_has_a_test_that_make_test_runs() -> None:
    table = (
        (ROOT / "docs" / "explanation" / "guarantees.md").read_text().partition(HEAD)[2].partition("\n\n")[0]
    )
    rows = {
        line.split(" | ")[0].strip("| "): re.findall(r"`(tests/[\w/.]+)`", line)
        for line in table.splitlines()
    }
    assert len(rows) > 20
    assert all(rows.values()), rows
    paths = sorted({path for named in rows.values() for path in named})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not extended", *paths]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    run = re.findall(r"^(tests/[\w/.]+\.py)::", listed, re.MULTILINE)
    assert {path for path in paths if not any(file.startswith(path) for file in run)} == SEVERAL_BROKERS
    for promise, named in rows.items():
        assert set(named) - SEVERAL_BROKERS, promise
