"""Files and functions that can be read at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import kiwi_gw

ROOT = Path(kiwi_gw.__file__).parents[1]
FILES = sorted(file for folder in ("kiwi_gw", "plugins") for file in (ROOT / folder).rglob("*.py"))
FILE_LINES, FUNCTION_LINES = 400, 60


def too_long(name: str, text: str) -> Iterator[str]:
    """Yield the file, if it is too long, and the functions that are, decorators not counted."""
    if text.count("\n") > FILE_LINES:
        yield name
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            if node.end_lineno - node.lineno >= FUNCTION_LINES:
                yield f"{name}: {node.name}"


def test_it_finds_long_files_and_functions() -> None:
    function = "async def f():\n" + "    pass\n" * (FUNCTION_LINES - 1)
    assert not list(too_long("a.py", function + "x = 1\n" * (FILE_LINES - FUNCTION_LINES)))
    assert list(too_long("a.py", function + "    pass\n")) == ["a.py: f"]
    assert list(too_long("a.py", "x = 1\n" * (FILE_LINES + 1))) == ["a.py"]


@pytest.mark.parametrize("folder", ["kiwi_gw", "plugins"])
def test_no_file_and_no_function_is_too_long(folder: str) -> None:
    files = [file for file in FILES if file.is_relative_to(ROOT / folder)]
    assert len(files) > 10
    assert not [line for file in files for line in too_long(str(file.relative_to(ROOT)), file.read_text())]
