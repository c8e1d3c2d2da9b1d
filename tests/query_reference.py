"""The tables of functions in docs/reference/queries.md, made from the registry.

`python -m tests.query_reference` writes them anew; a test says when to.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kiwi_gw.query.functions import modules
from kiwi_gw.query.functions.base import Function
from tests.doc_blocks import rewrite

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "queries.md"
PART = "functions"

# Titles of the modules of functions; operators that are written as functions are on numbers.
_TITLES: Final = {
    "conditionals": "Choices",
    "operators": "Numbers",
    "numbers": "Numbers",
    "strings": "Texts",
    "regular_expressions": "Regular expressions",
    "dates": "Dates and timestamps",
    "json_text": "JSON, arrays and objects",
    "containers": "JSON, arrays and objects",
}


def tables() -> str:
    """Write one table for each kind of functions that have a `usage`."""
    by_title: dict[str, list[Function]] = {title: [] for title in _TITLES.values()}
    for module, functions in modules().items():
        title = _TITLES.get(module, module.capitalize())
        by_title.setdefault(title, []).extend(each for each in functions if each.usage)
    parts: list[str] = []
    for title, listed in by_title.items():
        rows = [_row(each) for each in sorted(listed, key=lambda each: each.name)]
        if rows:
            head = [f"### {title}\n", "| function | gives | types |", "|---|---|---|"]
            parts.append("\n".join([*head, *rows]))
    return "\n\n".join(parts)


def _row(function: Function) -> str:
    types = "by its arguments"
    if function.result is not None:
        types = f"{', '.join(map(str, function.wants)) or 'none'} → {function.result}"
    return f"| `{function.usage}` | {function.summary} | {types} |"


if __name__ == "__main__":
    rewrite(PAGE, PART, tables())
