"""When a query is the one that its checkpoint was made by."""

from __future__ import annotations

import ast
import threading
import time

import pytest

from kiwi_spark.driver.query_identity import digest, tokens

RECORDED = "7440f71e5b04ca535def162a178dc2d2dd751d2cd2023bd41ae8fb448826ca2b"
SQL = "SELECT k, count(*) AS n FROM f -- the flights\nWHERE k <> '-- no comment' GROUP BY k"


@pytest.mark.parametrize(
    "same",
    [
        "select k,count ( * )  AS n\nFROM f WHERE k<>'-- no comment' /* all\n of them */ group by k",
        "/* a /* new */ one */ SELECT k, COUNT(*) AS n FROM f WHERE k <> '-- no comment' GROUP BY k -- x",
    ],
)
def test_comments_line_breaks_and_the_case_of_keywords_mean_nothing(same: str) -> None:
    assert tokens(same) == tokens(SQL)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT 'a  b'", "SELECT 'a b'"),
        ("SELECT 'it''s'", "SELECT 'it' 's'"),
        (r"SELECT 'a\'--b'", r"SELECT 'a\''"),
        (r"SELECT r'\' -- x", r"SELECT r'\'' -- x"),
        ("SELECT `a  b`", "SELECT `a b`"),
        ("SELECT m.Key", "SELECT m.key"),
        ("SELECT /*+ BROADCAST(t) */ a", "SELECT a"),
        ("SELECT 1.5", "SELECT 1 .5"),
        ('SELECT "A"', 'SELECT "a"'),
        ("SELECT a - -1", "SELECT a --1"),
    ],
)
def test_what_means_something_is_compared(one: str, other: str) -> None:
    assert tokens(one) != tokens(other)


@pytest.mark.parametrize("text", ["/*" * 30_000, "'" * 60_001, "-" * 60_000, "a" * 60_000, "/*+" * 20_000])
def test_it_takes_time_in_proportion_to_the_text(text: str) -> None:
    began = time.process_time()
    tokens(text)
    assert time.process_time() - began < 0.5


MODULE = '''
"""Pipelines."""
import math
LIMIT = 5

def helper(x):
    return x > LIMIT

def f(inputs):
    """All of them."""
    return inputs["a"].filter(helper)

def g(inputs):
    return math.pi
'''


def test_layout_comments_and_docstrings_of_code_mean_nothing() -> None:
    edited = MODULE.replace('"""Pipelines."""', "# Pipelines").replace(
        '    """All of them."""\n', "\n    # all\n"
    )
    assert digest(edited, "f") == digest(MODULE, "f")


@pytest.mark.parametrize(
    "change", [("LIMIT = 5", "LIMIT = 6"), ("x > LIMIT", "x < LIMIT"), ('["a"]', '["b"]')]
)
def test_an_edit_of_the_function_or_of_what_it_uses_of_its_module_is_noticed(change: tuple[str, str]) -> None:
    assert digest(MODULE.replace(*change), "f") != digest(MODULE, "f")


def test_another_function_of_the_module_is_another_querys() -> None:
    assert digest(MODULE.replace("math.pi", "math.e"), "f") == digest(MODULE, "f")
    assert digest(MODULE.replace("math.pi", "math.e"), "g") != digest(MODULE, "g")


@pytest.mark.parametrize("add_empty", [False, True], ids=["as before 3.12", "as from 3.12 on"])
def test_code_is_the_same_code_in_every_version_of_python(
    monkeypatch: pytest.MonkeyPatch, add_empty: bool
) -> None:
    """Python 3.12 has added `type_params` to functions and classes, an empty list mostly; 3.13 leaves out of
    `ast.dump` what is empty. The digest was recorded by 3.11."""
    parse = ast.parse

    def parsed(source: str) -> ast.Module:
        tree = parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                fields = [name for name in type(node)._fields if name != "type_params"]
                if add_empty:
                    fields.append("type_params")
                    vars(node)["type_params"] = []
                vars(node)["_fields"] = tuple(fields)
        return tree

    monkeypatch.setattr(ast, "parse", parsed)
    source = "class A:\n    x = 1\ndef f(a, *, b=None):\n    return A.x + a if b is None else b'q' * 2\n"
    assert digest(source, "f") == RECORDED
    assert digest(source.replace("None):", "0):"), "f") != RECORDED
    assert digest(source.replace("b is None", "b is 0"), "f") != RECORDED


def test_one_thread_at_a_time_reads_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython 3.11 counts the depth of syntax trees for all threads together: `SystemError: AST constructor
    recursion depth mismatch` ended a query when another one started."""
    parse, together = ast.parse, threading.Barrier(2)
    at_once: list[bool] = []

    def parsed(source: str) -> ast.Module:
        try:
            together.wait(0.2)
            at_once.append(True)
        except threading.BrokenBarrierError:
            at_once.append(False)
        return parse(source)

    threads = [threading.Thread(target=digest, args=(MODULE, "f")) for _ in range(2)]
    with monkeypatch.context() as patched:  # pytest reads code, too
        patched.setattr(ast, "parse", parsed)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert at_once == [False, False]
