"""What a query may cost for one batch, and while it is read."""

from __future__ import annotations

import time

import pytest
import re2

from kiwi_gw.query import effort, sql
from kiwi_gw.query.compiler import Compiled, compiled
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.values import RecordError

SLOW = "(a|b)*a(a|b){300}c"
"""RE2 has no small automaton for it: it takes microseconds for every character of a text like `TEXT`."""
TEXT = "".join("ab"[(n * n // 7 + n // 3) % 2] for n in range(8_000))


def query(where: str | None, select: str | None = None) -> Compiled:
    return compiled(sql.read(where, select), sql.ROOTS)


def columns(made: Compiled, *values: object) -> dict[str, list[object]]:
    return {"value": list(values), "offset": list(range(len(values)))}


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 1_000])
def test_portions_are_all_there_is(length: int) -> None:
    found = [index for first, last in effort.portions(length) for index in range(first, last)]
    assert found == list(range(length))


def test_no_portion_begins_when_the_time_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(effort, "_clock", lambda: now[0])
    seen = []
    with effort.limited(1_000):
        for first, last in effort.portions(1_000):
            seen.append((first, last))
            now[0] += 0.09
    assert seen == [(0, 4), (4, 6), (6, 7), (7, 8), (8, 9), (9, 10)]  # twice 0.1 s, and 0.1 ms for each event
    with effort.limited(), effort.limited(10_000):  # what is in it has no more than what is around it
        effort.heavy(100, 100)
        now[0] += 0.2
        effort.heavy(100, 100)  # once it may have been something else
        now[0] += 0.2
        with pytest.raises(RecordError):
            effort.heavy(100, 100)
    effort.heavy(100, 100)


def test_a_slow_filter_leaves_the_rest_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "SECONDS", 0.02)
    monkeypatch.setattr(effort, "SECONDS_AN_EVENT", 0.0)
    made = query(f"not regexp_like(value, '{SLOW}')")
    before = time.thread_time()
    kept, bad = made.kept(columns(made, *[TEXT] * 1_000), 1_000)
    assert time.thread_time() - before < 1
    assert 0 < len(kept) < 1_000
    assert kept == list(range(len(kept)))
    assert bad == 1_000 - len(kept)
    # For a while it is not asked at all, and then as before.
    before = time.thread_time()
    assert made.kept(columns(made, *[TEXT] * 1_000), 1_000) == ([], 1_000)
    assert time.thread_time() - before < 0.02
    rests = time.monotonic() + effort.REST * 0.02
    monkeypatch.setattr(effort, "now", lambda: rests)
    assert made.kept(columns(made, "b"), 1) == ([0], 0)
    assert made.kept(columns(made, "b"), 1) == ([0], 0)


def test_a_slow_projection_leaves_the_rest_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "SECONDS", 0.02)
    monkeypatch.setattr(effort, "SECONDS_AN_EVENT", 0.0)
    made = query(None, f"regexp_replace(value, '{SLOW}|.', 'x') AS a")
    texts = made.projected(columns(made, *[TEXT] * 1_000), range(1_000))
    assert len(texts) == 1_000
    assert texts[-1] == b""


def test_one_text_may_be_too_much() -> None:
    made = query(f"regexp_like(value, '{SLOW}')")
    long = "b" * 100_000
    assert made.kept(columns(made, "b", long, "b"), 3) == ([], 1)
    for where in (
        f"regexp_substr(value, '{SLOW}') = ''",
        f"regexp_instr(value, '{SLOW}') = 1",
        f"regexp_extract(value, '{SLOW}') = 'x'",
        f"regexp_count(value, '{SLOW}') = 1",
        f"value rlike '{SLOW}'",
        f"value like '{'a_' * 100}%'",
    ):
        made = query(where)
        assert made.kept(columns(made, long * 10), 1)[1] == 1, where


def test_constants_are_not_evaluated_for_longer_than_a_batch() -> None:
    slow = f"length(regexp_replace(repeat('ab', 30000), '{SLOW}|.', ''))"
    before = time.thread_time()
    query(" OR ".join(f"{slow} = {n}" for n in range(15)))
    assert time.thread_time() - before < 1


@pytest.mark.parametrize("one", ["key rlike 'x{{1,{}}}'", "regexp_replace(key, 'x{{1,{}}}', '') = 'a'"])
def test_the_patterns_of_a_query_are_counted_together(one: str) -> None:
    def some(count: int, steps: int) -> str:
        return " OR ".join(one.format(steps + n) for n in range(count))

    query(some(4, 200))
    query(" OR ".join([some(1, 500)] * 15))  # one pattern, whatever the number of its uses
    before = time.thread_time()
    for count, steps, wrong in (
        (2, 500, "too large programs"),
        (40, 100, "keep more than|too large programs"),
    ):
        with pytest.raises(QueryError, match=wrong):
            query(some(count, steps))
    assert time.thread_time() - before < 0.5


def test_a_pattern_is_given_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    really = re2.compile

    def compile_it(pattern: bytes, options: re2.Options) -> object:
        seen.append(options.max_mem)
        return really(pattern, options)

    monkeypatch.setattr(re2, "compile", compile_it)
    query(" OR ".join(f"key rlike 'only-here-{n}-[0-9]'" for n in range(4)))
    assert seen == [20_480, 8_192, 8_192, 8_192]


def test_projections_of_a_batch_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "SECONDS", 60.0)
    made = query(None, ", ".join(f"repeat(value, 60000) AS a{n}" for n in range(15)))
    values = columns(made, *["x"] * 100)
    texts = made.projected(values, range(100))
    assert 0 < sum(map(len, texts)) <= effort.MOST_BYTES
    assert texts[0]
    assert texts[-1] == b""
    more = made.projected(values, range(100), 10_000_000)  # of large events it is more
    assert all(more[:60])
