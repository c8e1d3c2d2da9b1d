"""What docs/explanation says of the code is so: every file and every function that it names exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "explanation"
NAMED = re.compile(r"`((?:kiwi_gw|plugins|tests)/[\w/]+(?:\.py)?)(?::([\w.]+))?`")
"""A file or a folder, and a name in it: `kiwi_gw/core/window.py:Window.append`."""
WALKS = {"One event": 12, "One SUBSCRIBE": 15, "One plain request": 12, "One Spark row": 12}
"""How many files the table of each walk may name: who follows it has to open them all."""
NOT_PLAIN = ("nobody", "somebody", "whoever", "what is no ")


def names(node: ast.AST, prefix: str = "") -> Iterator[str]:
    """Yield the classes, functions and constants below a node, as `Class.method`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name
            if isinstance(child, ast.ClassDef):
                yield from names(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.Assign):
            yield from (prefix + target.id for target in child.targets if isinstance(target, ast.Name))
        elif isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            yield prefix + child.target.id


def untrue(text: str, root: Path) -> list[str]:
    """Return what a text names and the tree below `root` does not have."""
    wrong = []
    for path, name in NAMED.findall(text):
        file = root / path
        if not file.exists():
            wrong.append(path)
        elif name and name not in set(names(ast.parse(file.read_text(encoding="utf-8")))):
            wrong.append(f"{path}:{name}")
    return wrong


@pytest.mark.parametrize("document", ["architecture.md", "glossary.md"])
def test_what_is_named_exists(document: str) -> None:
    text = (DOCS / document).read_text(encoding="utf-8")
    assert len(NAMED.findall(text)) > 50
    assert untrue(text, ROOT) == []
    assert [word for word in NOT_PLAIN if word in text.lower()] == []


def test_every_term_has_one_sentence_and_a_place() -> None:
    terms = []
    for line in (DOCS / "glossary.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith("| term |"):
            _, term, meaning, where, _ = line.split("|")
            assert NAMED.fullmatch(where.strip()), line
            assert meaning.strip(), line
            terms.append(term)
    assert len(terms) == len(set(terms)) > 50


def test_the_walks_are_short() -> None:
    assert len((DOCS / "architecture.md").read_text(encoding="utf-8").splitlines()) < 190


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_goes_through_few_files(walk: str) -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    _, _, section = text.partition(f"\n## {walk}: ")
    steps = [line for line in section.partition("\n## ")[0].splitlines() if re.match(r"\| \d", line)]
    files = {path for step in steps for path, _ in NAMED.findall(step)}
    assert len(steps) > 5
    assert len(files) <= WALKS[walk], sorted(files)


def test_the_search_notices_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "kiwi_gw").mkdir()
    (tmp_path / "kiwi_gw" / "one.py").write_text("class A:\n    x: int\n    def f(self): ...\nB = 1\n")
    text = "`kiwi_gw/one.py:A.f` `kiwi_gw/one.py:A.x` `kiwi_gw/one.py:B` `kiwi_gw/one.py:f` `kiwi_gw/two.py`"
    assert untrue(text, tmp_path) == ["kiwi_gw/one.py:f", "kiwi_gw/two.py"]
