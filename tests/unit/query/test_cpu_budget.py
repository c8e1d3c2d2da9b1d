"""What a query may cost for one batch, and while it is read."""

from __future__ import annotations

import time

import pytest
import re2

from kiwi_gw.core.round_budget import ROUND_SECONDS
from kiwi_gw.model import TimeSlice
from kiwi_gw.query import cpu_budget, sql
from kiwi_gw.query.compiler import CompiledQuery, compile_query
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_READ
from kiwi_gw.query.values import RecordError

SLOW = "(a|b)*a(a|b){300}c"
"""RE2 has no small automaton for it: it takes microseconds for every character of a text like `TEXT`."""
TEXT = "".join("ab"[(n * n // 7 + n // 3) % 2] for n in range(8_000))


def query(where: str | None, select: str | None = None) -> CompiledQuery:
    return compile_query(sql.read(where, select), sql.ROOTS)


def columns(made: CompiledQuery, *values: object) -> dict[str, list[object]]:
    return {"value": list(values), "offset": list(range(len(values)))}


class Ticking:
    """A clock that goes on by so much whenever it is looked at."""

    def __init__(self, seconds: float) -> None:
        self.now, self._seconds = 0.0, seconds

    def __call__(self) -> float:
        self.now += self._seconds
        return self.now


@pytest.mark.parametrize("where", ["value > 3", "length(value) > 3"])
@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 10_000])
def test_a_filter_in_turns_is_the_filter(where: str, length: int) -> None:
    made = query(where)
    values = columns(made, *[str(number % 7) * (number % 7) for number in range(length)])
    turn = TimeSlice(0.0, Ticking(1.0))
    steps, turns = made.filter_steps(values, length, turn), 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found = done.value
            break
        turns += 1
    assert found == made.filter(values, length)
    each = made.at_once or 1
    assert turns == max(0, -(-length // each) - 1), "as many at once as may be"


def test_a_projection_in_turns_is_the_projection() -> None:
    made = query(None, "upper(value) AS a")
    values = columns(made, *(f"x{number}" for number in range(9)))
    turn = TimeSlice(0.0, Ticking(1.0))
    steps = made.project_steps(values, range(1, 9), turn)
    for _ in range(7):
        next(steps)
        assert turn.held > 0
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value == made.project(values, range(1, 9))


def test_a_turn_ends_behind_the_first_dear_event_of_a_small_batch() -> None:
    made = query(f"not regexp_like(value, '{SLOW}')")
    turn = TimeSlice(time.monotonic(), time.monotonic)
    steps = made.filter_steps(columns(made, *[TEXT[:3_000]] * 4), 4, turn)
    for _ in range(3):
        before = time.thread_time()
        next(steps)
        assert time.thread_time() - before < 2 * cpu_budget.SECONDS + 0.1
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value == ([0, 1, 2, 3], []), "none is lost because others came before it"


def test_only_filters_without_functions_are_evaluated_unwatched() -> None:
    assert query("value.a > 1 AND (key = 'x' OR value.b IS NULL)").at_once > 100
    for where in ("value like 'a%'", "cast(value AS INT) = 1", "length(value) = 1", "value in ('a', 'b')"):
        assert query(where).at_once == 0, where


@pytest.mark.cost
@pytest.mark.parametrize("terms", [1, 60])
def test_what_is_evaluated_unwatched_takes_less_than_a_turn(terms: int) -> None:
    made = query(" OR ".join(f"value.a > {number}" for number in range(terms)))
    assert made.at_once
    values = columns(made, *[{"a": -1}] * made.at_once)
    least = min(of_processor(made, values) for _ in range(5))
    assert least < 16 * ROUND_SECONDS, "on a machine that is sixteen times as slow as others"


def of_processor(made: CompiledQuery, values: dict[str, list[object]]) -> float:
    before = time.thread_time()
    assert made.filter(values, made.at_once) == ([], [])
    return time.thread_time() - before


def test_one_event_has_a_bound_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(cpu_budget, "_clock", lambda: now[0])
    with cpu_budget.limited(), cpu_budget.limited():  # what is in it has no more than what is around it
        cpu_budget.check_pattern_work(100, 100)
        now[0] += 2 * cpu_budget.SECONDS
        cpu_budget.check_pattern_work(100, 100)  # once it may have been something else
        now[0] += 2 * cpu_budget.SECONDS
        with pytest.raises(RecordError):
            cpu_budget.check_pattern_work(100, 100)
    cpu_budget.check_pattern_work(100, 100)


def test_one_text_may_be_too_much() -> None:
    made = query(f"regexp_like(value, '{SLOW}')")
    long = "b" * 100_000
    assert made.filter(columns(made, "b", long, "b"), 3) == ([], [1])
    for where in (
        f"regexp_extract(value, '{SLOW}') = 'x'",
        f"size(split(value, '{SLOW}')) = 1",
        f"value rlike '{SLOW}'",
        f"value like '{'a_' * 100}%'",
    ):
        made = query(where)
        assert made.filter(columns(made, long * 10), 1)[1] == [0], where


def test_constants_are_not_evaluated_for_longer_than_an_event() -> None:
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
    monkeypatch.setattr(cpu_budget, "SECONDS", 60.0)
    made = query(None, ", ".join(f"repeat(value, 60000) AS a{n}" for n in range(15)))
    values = columns(made, *["x"] * 100)
    texts = made.project(values, range(100))
    assert 0 < sum(map(len, texts)) <= cpu_budget.MOST_BYTES
    assert texts[0]
    assert texts[-1] == b""
    more = made.project(values, range(100), 10_000_000)  # of large events it is more
    assert all(more[:60])


MEGABYTE = "x" * 1_000_000
WHOLE = (
    "ceil(value.s) = {}",
    "instr(value.s, 'xy{}') > 0", "locate('xy{}', value.s) > 0", "contains(value.s, 'y{}')",
    "value.s rlike 'y{}'", "value.s like '%y{}%'", "value.s like '%y{}%z%'",
    "get_json_object(value.s, '$.a{}') = ''",
)  # fmt: skip


def repeated(term: str, count: int) -> CompiledQuery:
    return query(" OR ".join(term.format(number) for number in range(count)))


@pytest.mark.parametrize("term", WHOLE)
def test_an_event_is_read_so_often_and_then_it_is_bad(term: str) -> None:
    """Beyond 8 MiB, whatever reads them; those events that are short have no such end, and each event has an
    allowance of its own."""
    most = MAX_READ // len(MEGABYTE)
    dear = repeated(term, most + 1)
    record, short = {"s": MEGABYTE}, {"s": "x" * 4_000}
    assert dear.filter(columns(dear, short, record, short, record), 4) == ([], [1, 3])
    once = repeated(term, 1)
    assert once.filter(columns(once, *[record] * 20), 20) == ([], [])


def test_a_projection_reads_no_more() -> None:
    made = query(None, ", ".join(f"instr(value.s, '{number}') AS a{number}" for number in range(9)))
    texts = made.project(columns(made, {"s": MEGABYTE}, {"s": "x"}), range(2))
    assert texts[0] == b""
    assert texts[1] != b""


def test_long_arrays_are_looked_through_so_often() -> None:
    made = repeated("array_contains(value.a, 'x{}')", 3)
    assert made.filter(columns(made, {"a": [1] * 5_000}, {"a": [1] * 3_000}), 2) == ([], [0])


@pytest.mark.parametrize(
    "where", ["length(value.s) = {}", "value.s = '{}'", "size(value.s) = {}", "startswith(value.s, '{}')"]
)
def test_what_does_not_read_all_of_a_text_may_be_asked_again_and_again(where: str) -> None:
    made = repeated(where, 20)
    assert made.filter(columns(made, {"s": MEGABYTE}), 1) == ([], [])


@pytest.mark.parametrize(("where", "looks"), [("value.s <> value.t", True), ("value.s = 'x'", False)])
def test_the_clock_is_looked_at_behind_each_event_where_two_long_texts_are_compared(
    where: str, looks: bool
) -> None:
    made = query(where)
    assert (made.at_once == 0) is looks
