"""Codes are given and looked at by their names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import kiwi_gw
from kiwi_gw.codes import CloseCode, RefusalCode
from kiwi_gw.model import CloseReason

ROOT = Path(kiwi_gw.__file__).parent


def test_a_source_that_failed_has_the_code_of_its_reason() -> None:
    assert str(RefusalCode.FAILED) == CloseReason.FAILED.value


def test_none_is_written_down_again() -> None:
    """In the code of a refusal or a close, or in what one is compared with. (The client knows no server.)"""
    files = [file for file in sorted(ROOT.rglob("*.py")) if file.parts[-2] not in ("client", "tail")]
    assert len(files) > 200
    assert {str(file): found for file in files if (found := list(literal_codes(file.read_text())))} == {}


def test_it_finds_them() -> None:
    text = """
Refusal("busy", "no"); send_close(1000); socket.send_close(1000, "x"); Close(1008, "y")
refusal.code == "forbidden"; failed.code in ("unknown_source", other); refusal.code == "a_plugins_own"
"""
    assert len(list(literal_codes(text))) == 5


def literal_codes(text: str) -> Iterator[str]:
    """The expressions of a Python text with a code in them that is written as text or number."""
    codes = {*map(str, RefusalCode), *CloseCode}
    for node in ast.walk(ast.parse(text)):
        match node:
            case (
                ast.Call(ast.Name("Refusal" | "SubscribeRefused"), [ast.Constant(str()), *_])
                | ast.Call(ast.Name("Close"), [ast.Constant(int()), *_])
                | ast.Call(ast.Attribute(_, "send_close" | "abort"), [ast.Constant(int()), *_])
            ):
                yield ast.unparse(node)
            case ast.Compare(ast.Attribute(_, "code"), _, compared):
                parts = [item for part in compared for item in ast.walk(part)]
                if any(isinstance(item, ast.Constant) and item.value in codes for item in parts):
                    yield ast.unparse(node)
