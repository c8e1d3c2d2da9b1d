"""What the comparison of rows finds, and the table of kills in docs/explanation/faults.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.faults import PAGE
from benchmarks.kills import KILLS, PART, facts, table
from tests.doc_blocks import replaced
from tests.integration.spark.exactness import Account, has_all, judge
from tests.integration.spark.following import Following
from tests.integration.spark.numbered_records import Records, exploded, filtered
from tests.topics import Topics

RECORDS = Records(Topics(""), "flights", {0: [*range(0, 40, 2)], 1: [*range(1, 40, 2)]}, next=40)

Results = list[dict[str, Any]]


def in_real_time() -> Results:
    return [
        {"partition": p, "offset": o, "row": row, "value": {"p": p, "o": o, "x": x}}
        for own in RECORDS.rows(exploded).values()
        for p, o, row, x in own
    ]


def in_batches() -> Results:
    """Two batches."""
    rows = [row for own in RECORDS.rows(filtered).values() for row in own]
    values = [{"p": p, "o": o, "x": x} for p, o, _, x in rows]
    return [{"batch": n // 20, "row": n % 20, "value": value} for n, value in enumerate(values)]


def in_topic() -> Results:
    """As a topic has the same, of one partition."""
    return [{"partition": 0, "offset": n, "value": one["value"]} for n, one in enumerate(in_batches())]


def counted() -> Results:
    """A count after the first and the last record of every key, of 5 that each has."""
    counts = [(k, n, sum(range(k, 8 * n, 8))) for n in (1, 5) for k in range(8)]
    values = [{"k": k, "n": n, "total": total} for k, n, total in counts]
    return [{"batch": n // 8, "row": n % 8, "value": value} for n, value in enumerate(values)]


def found(source_id: str, results: Results) -> tuple[int, int, int]:
    """What is missing, doubled and displaced."""
    account, one = Account(), Following(source_id)
    one.results = results
    judge(one, RECORDS, account)
    assert account.exact is not any((account.missing, account.doubled, account.displaced))
    return account.missing, account.doubled, account.displaced


@pytest.mark.parametrize(
    ("source_id", "made"),
    [("exploded", in_real_time), ("batches", in_batches), ("batches", in_topic), ("counted", counted)],
)
def test_rows_that_are_missing_doubled_or_displaced(source_id: str, made: Callable[[], Results]) -> None:
    one = Following(source_id)
    one.results = made()
    assert has_all(one, RECORDS)
    assert found(source_id, made()) == (0, 0, 0)
    missing, doubled, displaced = found(source_id, made()[:-1])
    assert (missing, doubled) == (1, 0)
    missing, doubled, displaced = found(source_id, [*made(), made()[-1]])
    assert (missing, doubled) == (0, 1)
    assert displaced
    first, second, *others = made()
    _, _, displaced = found(source_id, [second, first, *others])
    assert displaced


def test_counts_that_never_were() -> None:
    results = counted()
    results[0]["value"]["total"] += 1
    assert found("counted", results) == (0, 1, 0)


def test_a_row_of_the_table() -> None:
    account = Account(rows=1_000, doubled=2, served=[1.0, 2.0, 9.0])
    shown = table([facts("java", "real time", 100, account)])
    assert "| Spark's JVM | real time | 100 | 1,000 | 0 | 2 | 0 | 2.0 s, 9.0 s |" in shown


def test_the_readme_shows_the_results() -> None:
    page = PAGE.read_text()
    assert replaced(page, PART, table(json.loads(KILLS.read_text()))) == page
