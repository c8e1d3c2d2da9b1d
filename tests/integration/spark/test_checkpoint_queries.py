"""Queries with state go on from checkpoints on `DirectLocalFs`, also from those of LocalFs, and back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kiwi_spark.java.home import java_home
from tests.integration.spark import checkpoint_query
from tests.integration.spark.checkpoint_java import OURS, STOCK, classes_of_plugin
from tests.integration.spark.checkpoint_model import is_checksum

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(600)]

_BATCHES = 3
_JARS, _CLASS_PATH = "spark.jars", "spark.driver.extraClassPath"


class Query:
    """Runs of one query; every run has so many files more to read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sums: dict[str, int] = {}
        self._batches = 0

    def run(self, file_system: str, option: str = _JARS) -> None:
        """A Spark of its own; what it finds must be what all files so far add up to."""
        expected = [self._more() for _ in range(_BATCHES)]
        program = [sys.executable, checkpoint_query.__file__]
        done = subprocess.run(
            [*program, self._folder, file_system, option, classes_of_plugin()],
            env={**os.environ, "JAVA_HOME": str(java_home())},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        assert [json.loads(line) for line in done.stdout.splitlines()] == expected
        self._check(written_by=file_system)

    def _more(self) -> list[object]:
        number = self._batches
        self._batches += 1
        changed = checkpoint_query.write_input(self._folder, number)
        for key, x in changed.items():
            self._sums[key] = self._sums.get(key, 0) + x
        return [number, {key: self._sums[key] for key in changed}]

    def _check(self, written_by: str) -> None:
        """The newest commits have checksums by LocalFs alone; nowhere is one of another content."""
        commits = self._folder / "checkpoint" / "commits"
        for number in range(self._batches - _BATCHES, self._batches):
            assert (commits / str(number)).exists() or number < self._batches - 2
            assert not (commits / f".{number}.crc").exists() or written_by == STOCK
        for checksum in (self._folder / "checkpoint").rglob(".*.crc"):
            described = checksum.with_name(checksum.name[1:-4])
            if described.exists():
                assert is_checksum(checksum.read_bytes(), described.read_bytes()), checksum


def test_one_of_ours_goes_on(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.run(OURS)
    query.run(OURS, _CLASS_PATH)


def test_one_of_localfs_goes_on_with_ours_and_back(tmp_path: Path) -> None:
    query = Query(tmp_path)
    for file_system in (STOCK, OURS, STOCK):
        query.run(file_system)
