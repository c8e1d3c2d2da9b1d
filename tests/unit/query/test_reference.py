"""The document of queries: fresh, and true."""

from __future__ import annotations

from kiwi_gw.core import accounts, evaluation
from kiwi_gw.core.round_budget import LIGHT_USER_SECONDS, ROUND_SECONDS, ROUND_SHARE
from kiwi_gw.dialects.zetta import topic_plan_cache
from kiwi_gw.query import cpu_budget, decoded_batch, limits, patterns, sql
from kiwi_gw.query.compiler import event_budget
from kiwi_gw.query.functions import containers, registry, strings
from kiwi_gw.query.limits import MAX_READ
from kiwi_gw.query.worker import QUESTION_SECONDS
from kiwi_gw.query.worker_messages import SMALL_QUERY_BYTES, SMALL_QUERY_WORDS
from kiwi_gw.runtime import offloads
from kiwi_gw.runtime.offload_queue import MOST_OF_ONE
from kiwi_gw.runtime.offloads import MOST
from tests.doc_blocks import replaced
from tests.query_reference import PAGE, PART, tables
from tests.unit.config.test_limits import figures

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_tables_are_fresh() -> None:
    assert replaced(TEXT, PART, tables()) == TEXT, "python -m tests.query_reference"


def test_every_function_is_in_them() -> None:
    for function in registry().values():
        assert not function.usage or f"| `{function.usage}` | {function.summary} |" in TEXT


def test_the_limits_of_what_is_read_by_the_loop_are_those() -> None:
    assert (
        f"at most {SMALL_QUERY_BYTES} bytes and {SMALL_QUERY_WORDS} words and signs is read and compiled by"
        in TEXT
    )
    assert f"{MOST} may wait, of one connection {MOST_OF_ONE}" in TEXT
    assert f"and {QUESTION_SECONDS:g} s of the\nprocessor's time for one query" in TEXT


SHORT, FEW = event_budget.SHORT, event_budget.FEW
READ = [MAX_READ, event_budget._READ, containers._COMPARES.pace * event_budget._READ]
LIMITS: dict[str, list[float]] = {
    "length of its texts, together": [limits.MAX_TEXT],
    "words and signs in it": [sql.MAX_WORDS],
    "depth": [limits.MAX_DEPTH],
    "parts of its tree": [limits.MAX_NODES],
    "what it keeps: text, constants, code, and the programs of its patterns": [limits.MAX_QUERY],
    "a string that a function makes": [limits.MAX_STRING],
    "an array that a function makes": [limits.MAX_ITEMS],
    "all that functions make of one event": [limits.MAX_MADE],
    "all that calls read of long texts and arrays": [SHORT, FEW, *READ],
    "a text that is read as JSON": [limits.MAX_JSON],
    "a result for constants that is kept": [limits.MAX_FOLDED, limits.MAX_FOLDED_ITEMS],
    "a regular expression": [limits.MAX_PATTERN, limits.MAX_COUNTED, limits.MAX_TABLES],
    "steps of a pattern, and of all patterns": [limits.MAX_PROGRAM, limits.MAX_PROGRAMS],
    "room of RE2 for a pattern": [patterns._MEMORY, patterns._LEAN],
    "different signs that `trim` takes away": [strings._FEW_SIGNS],
    "steps of a pattern times characters": [cpu_budget._MOST_WORK],
    "JSON that a `select` makes": [cpu_budget.MOST_BYTES, cpu_budget.BYTES_A_BYTE],
    "processor time for one event": [cpu_budget.SECONDS],
    "time of the event loop for one query": [],
    "time for reading and compiling": [],
    "different queries of one connection": [],
    "different queries of a source, of an identity": [],
    "the newest batches decoded": [decoded_batch.MAX_BATCHES, decoded_batch.MOST_BYTES],
    "what the queries have made of those": [decoded_batch.MAX_RESULT_BYTES],
    "batches as a whole": [],
    "queries that are in use, compiled": [8 * 1024, limits.MAX_QUERY],
    "patterns that no query in use has": [patterns._MOST_RECENT],
    "which frames the topics of Zetta's events make": [topic_plan_cache.MOST_BYTES],
    "what the process beside the loop": [offloads._KEPT_BYTES],
    "what evaluations have made that are not ready": [evaluation.MOST_HELD],
    "those that are not, but were asked for last": [limits.MAX_KEPT],
}
"""By how a row begins: the figures of it, in their order. (8 KiB of a compiled query are measured.)"""


def test_every_row_of_the_limits_says_what_the_code_has() -> None:
    section = TEXT.partition("\n## What it may cost\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ") for line in section.splitlines() if line.startswith("|")]
    rows = [row for row in rows if row not in ("limit", "what | most", "---|---")]
    assert len(rows) == len(LIMITS)
    for row, (begins, meant) in zip(rows, LIMITS.items(), strict=True):
        assert row.startswith(begins)
        assert figures(row) == meant, row


def test_the_turns_and_shares_of_evaluation_are_those() -> None:
    words = " ".join(TEXT.split())
    assert f"all together have {ROUND_SECONDS * 1000:g} ms of a round" in words
    assert ROUND_SHARE == 1 / 5
    assert "or a fifth of a longer one" in words
    assert f"those whose connection uses little {LIGHT_USER_SECONDS * 1000:g} ms besides" in words
    first, most = evaluation.FIRST_IDLE_SECONDS * 1000, evaluation.IDLE_SECONDS * 1000
    begins = first / evaluation.IDLE_SHARE
    assert evaluation.IDLE_SHARE == 1 / 10
    assert (
        f"idle for {begins:g} ms goes on with it, for a tenth of that time at once, {most:g} ms at" in words
    )
    assert (accounts.SAVED_SECONDS, accounts.COMPILING_SAVED_SECONDS) == (1, 2)
    assert "saved for a second (for reading and compiling, two)" in words
    kept = f"the last {accounts.MOST_KEPT:,} connections that have ended, and of {evaluation._QUERIES_KEPT} q"
    assert kept in words
