"""The document of queries: fresh, and true."""

from __future__ import annotations

from pathlib import Path

from kiwi_gw.marked import replaced
from kiwi_gw.query import limits, sql
from kiwi_gw.query.functions import registry
from kiwi_gw.query.offloaded import LITTLE_BYTES, LITTLE_WORDS
from kiwi_gw.query.reference import FILE, PART, tables
from kiwi_gw.query.worker import QUESTION_SECONDS
from kiwi_gw.runtime.errands import MOST_OF_ONE
from kiwi_gw.runtime.offloads import MOST

TEXT = (Path(__file__).parents[3] / "config" / FILE).read_text(encoding="utf-8")


def test_the_tables_are_fresh() -> None:
    assert replaced(TEXT, PART, tables()) == TEXT, "python -m kiwi_gw.query.reference config"


def test_every_function_is_in_them() -> None:
    for function in registry().values():
        assert not function.usage or f"| `{function.usage}` | {function.summary} |" in TEXT


def test_the_limits_of_what_is_read_by_the_loop_are_those() -> None:
    assert f"at most {LITTLE_BYTES} bytes and {LITTLE_WORDS} words and signs is read and compiled by" in TEXT
    assert f"{MOST} may wait, of one connection {MOST_OF_ONE}" in TEXT
    assert f"and {QUESTION_SECONDS:g} s of the\nprocessor's time for one query" in TEXT


def test_the_limits_are_those() -> None:
    for limit, said in (
        (
            "length of its texts, together",
            f"`server.limits.query_bytes`, {limits.MAX_TEXT:,} bytes",
        ),
        ("words and signs in it", f"{sql.MAX_WORDS:,}"),
        ("depth", str(limits.MAX_DEPTH)),
        ("parts of its tree", str(limits.MAX_NODES)),
        ("a string that a function makes", f"{limits.MAX_STRING // 1024} KiB"),
    ):
        assert f"| {limit} | {said} |" in TEXT
