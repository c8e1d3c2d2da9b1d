"""The hot path alone sends everyone everything, in every protocol."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from benchmarks.hot_path import WAYS, send
from benchmarks.profile import hot_path
from benchmarks.requests import ask


@pytest.mark.parametrize("way", WAYS)
def test_everyone_gets_everything(way: str) -> None:
    assert send(WAYS[way], 2, 3, 40) > 0


def test_the_command_has_a_line_for_every_way() -> None:
    done = CliRunner().invoke(hot_path, ["--rounds", "1", "--batches", "1"], catch_exceptions=False)
    requests = [f"a REQUEST that lets out {events} events" for events in (0, 500)]
    assert [line.partition(":")[0] for line in done.output.splitlines()] == [*WAYS, *requests]


@pytest.mark.parametrize("events", [0, 800, 2_000])
def test_everyone_gets_what_there_is_of_what_was_asked_for(events: int) -> None:
    assert ask(3, events) > 0
