"""Where the rows of a query in real time end, as its checkpoint has it."""

from __future__ import annotations

import pytest

from kiwi_spark.driver.checkpoints import ResumePoint
from kiwi_spark.driver.last_rows import as_text, read_places

BEGIN = {"a": {0: 10, 1: 20}, "b": {0: 30}}


class Files(dict[str, str]):
    """The files of a checkpoint, by their paths."""

    def read(self, path: str) -> str | None:
        return self.get(path)

    def write(self, path: str, text: str) -> None:
        self[path] = text

    def names(self, folder: str) -> list[str]:
        return []

    def remove(self, folder: str) -> None: ...


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("a 0 7 2\na 1 20 0\nb 0 0 1\n", {"a": {0: (7, 2), 1: (20, 0)}, "b": {0: (0, 1)}}),
        ("a 0 7 2\n", {"a": {0: (7, 2), 1: (20, 0)}, "b": {0: (30, 0)}}),
        ("a 0 11 1\na 2 7 2\nc 0 7 2\n", {"a": {0: (11, 1), 1: (20, 0)}, "b": {0: (30, 0)}}),
        ("", {"a": {0: (10, 0), 1: (20, 0)}, "b": {0: (30, 0)}}),
    ],
    ids=[
        "all known",
        "one known",
        "beyond what two inputs of one topic begin with, or no partitions of ours",
        "none known",
    ],
)
def test_places(text: str, places: dict[str, dict[int, tuple[int, int]]]) -> None:
    files = Files({"/state/0/last-rows/4": text, "/state/0/last-rows/5": "a 0 1 1\n"})
    assert read_places(files, ResumePoint("/state/0", 5, []), BEGIN) == places
    again = Files({"/state/0/last-rows/4": as_text(places)})
    assert read_places(again, ResumePoint("/state/0", 5, []), BEGIN) == places


def test_a_new_query_has_none() -> None:
    places = read_places(Files(), ResumePoint("/state/0", 0, []), BEGIN)
    assert as_text(places) == "a 0 10 0\na 1 20 0\nb 0 30 0\n"
