"""`DirectLocalFs` does what Hadoop's LocalFs does, in a hundredth of the time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.spark.checkpoint_java import OURS, STOCK, output

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def compare(seed: int, sequences: int, folder: Path) -> None:
    lines = output(
        "SameAsStock", STOCK, folder / "stock", OURS, folder / "ours", seed, sequences, folder=folder
    )
    assert lines == [f"compared {20 * sequences}"]


def test_same_results_and_errors(tmp_path: Path) -> None:
    compare(1, 80, tmp_path)


@pytest.mark.extended
@pytest.mark.long
def test_same_results_and_errors_of_many(tmp_path: Path) -> None:
    compare(2, 1000, tmp_path)


@pytest.mark.extended
def test_what_a_checkpoint_file_takes(tmp_path: Path, figure: Callable[[str, object], None]) -> None:
    for name, file_system, files in (("LocalFs", STOCK, 30), ("DirectLocalFs", OURS, 300)):
        (took,) = output("CheckpointFileTime", file_system, tmp_path / name, files, folder=tmp_path)
        figure(f"a checkpoint file by {name}", f"{took} ms")
