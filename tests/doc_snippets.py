"""The fenced blocks of README.md and docs/: what tests run as it is printed.

A block that cannot be run has a line `<!-- not run: why -->` before it, and a place in the list of
tests/unit/test_snippets.py. One with `title="name"` is that file. tests/integration/test_documentation.py
runs the others of a page in their order, in one folder: commands (`sh`), commands with what they answer
(`console`, where `...` is anything and a number any number), and messages to the address in the title (`>` is
sent, `<` is heard).
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
_FENCE = re.compile(r"^( *)```(\w*)(?: title=\"([^\"]+)\")?$")
_SHELLS = ("bash", "shell")
_MARK = re.compile(r"^ *<!-- not run: (.+) -->$")


@dataclass(frozen=True, slots=True)
class Snippet:
    """One block. title: empty, or a file's name, or the address of a WebSocket; not_run: why, or empty."""

    line: int
    language: str
    title: str
    text: str
    not_run: str


def pages() -> dict[str, Path]:
    """Return README.md and all pages of docs/, by their paths in the repository."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {str(path.relative_to(ROOT)): path for path in found}


def snippets(text: str) -> list[Snippet]:
    """Return the blocks of a page, in their order. Raises ValueError if one is not written as it must be."""
    found: list[Snippet] = []
    opened: tuple[int, str, str] | None = None
    lines: list[str] = []
    mark = ""
    for number, line in enumerate(text.splitlines(), 1):
        if opened is not None:
            if line.strip() == "```":
                body = textwrap.dedent("\n".join(lines)) + "\n"
                found.append(Snippet(*opened, body, mark))
                opened, mark = None, ""
            else:
                lines.append(line)
        elif line.lstrip().startswith("```"):
            fence = _FENCE.match(line)
            if fence is None or not fence[2]:
                raise ValueError(
                    f'line {number}: ```language or ```language title="name", not {line.strip()}'
                )
            language = "sh" if fence[2] in _SHELLS else fence[2]
            opened, lines = (number, language, fence[3] or ""), []
        elif line.strip():
            marked = _MARK.match(line)
            mark = marked[1] if marked else ""
    return found
