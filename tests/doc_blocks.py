"""Parts of a document that are made anew from time to time, between two marks:

<!-- keys: begin -->
...
<!-- keys: end -->
"""

from __future__ import annotations

import re
from pathlib import Path


def replaced(text: str, name: str, content: str) -> str:
    """Return the text with `content` between the marks of that name, with an empty line before and after it.

    Raises:
        ValueError: it has not each mark once, the one behind the other.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    found = re.fullmatch(f"(.*{begin}).*({end}.*)", text, re.DOTALL)
    if found is None or not text.count(begin) == text.count(end) == 1:
        raise ValueError(f"the document needs the lines {begin} and {end}, once")
    return f"{found[1]}\n\n{content.strip()}\n\n{found[2]}"


def rewrite(path: Path, name: str, content: str) -> None:
    """Replace that part of a file. Raises ValueError as `replaced` does."""
    path.write_text(replaced(path.read_text(encoding="utf-8"), name, content), encoding="utf-8")
