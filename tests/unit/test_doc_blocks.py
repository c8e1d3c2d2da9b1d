"""Parts of documents between two marks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doc_blocks import replaced, rewrite

TEXT = "before\n<!-- keys: begin -->\n\nold\n\n<!-- keys: end -->\nafter <!-- other: begin -->\n"


def test_what_is_between_the_marks_is_replaced() -> None:
    new = TEXT.replace("old", "new \\1")
    assert replaced(TEXT, "keys", "new \\1") == replaced(TEXT, "keys", "new \\1\n") == new
    assert replaced(new, "keys", "old") == TEXT
    assert replaced(replaced(TEXT, "keys", ""), "keys", "old") == TEXT


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        TEXT.replace("<!-- keys: end -->", ""),
        TEXT + TEXT,
        "<!-- keys: end -->\n<!-- keys: begin -->\n",
        TEXT + "<!-- keys: end -->",
    ],
)
def test_each_mark_must_be_there_once_and_in_order(text: str) -> None:
    with pytest.raises(ValueError, match="needs the lines <!-- keys: begin --> and <!-- keys: end -->, once"):
        replaced(text, "keys", "new\n")


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "document.md"
    path.write_text(TEXT, encoding="utf-8")
    rewrite(path, "keys", "größer")
    assert path.read_text(encoding="utf-8") == TEXT.replace("old", "größer")
