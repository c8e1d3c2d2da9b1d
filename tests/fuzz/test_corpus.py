"""What was found to be dear once stays cheap: every file of the corpus, by kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.judge import CORPUS, wrong
from tests.fuzz.targets import TARGETS

FILES = sorted(path for path in CORPUS.rglob("*") if path.is_file())


def test_every_kind_has_a_corpus() -> None:
    assert {path.parent.name for path in FILES} == set(TARGETS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_message_is_answered(path: Path) -> None:
    TARGETS[path.parent.name].read(path.read_bytes())  # raises whatever is no answer


@pytest.mark.cost
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_message_costs_no_more_than_it_may(path: Path) -> None:
    assert wrong(TARGETS[path.parent.name], path.read_bytes()) == ""
