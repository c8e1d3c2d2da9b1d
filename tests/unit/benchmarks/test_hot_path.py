"""The hot path alone sends everyone everything, in every protocol."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from benchmarks.hot_path import WAYS, send
from benchmarks.profile import hot_path


@pytest.mark.parametrize("way", WAYS)
def test_everyone_gets_everything(way: str) -> None:
    assert send(WAYS[way], 2, 3, 40) > 0


def test_the_command_has_a_line_for_every_way() -> None:
    done = CliRunner().invoke(hot_path, ["--rounds", "1", "--batches", "1"], catch_exceptions=False)
    assert [line.partition(":")[0] for line in done.output.splitlines()] == list(WAYS)
