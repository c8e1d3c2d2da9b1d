"""What is kept of the queries that clients had, and that what is not kept is gone at once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress

import pytest

from kiwi_gw.query import caql, sql
from kiwi_gw.query.caql import reader as of_caql
from kiwi_gw.query.compiler import compile_query, query_codegen
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.sql import reader as of_sql
from kiwi_gw.query.weighted_lru import WeightedLru

ROOTS = frozenset(caql.TOPIC_ROOTS)


LITTLE = 4_000


@pytest.fixture
def little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for one in (of_sql._conditions, of_sql._selections, of_caql._known, query_codegen._recent):
        one.clear()
        monkeypatch.setattr(one, "_most", LITTLE)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Nothing but counting of references frees anything; what there was is not looked at."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()


def dear(number: int) -> str:
    return " OR ".join(f"value.n{i} * {number} > {i}" for i in range(40))


def others() -> None:
    """So many queries that none that is not in use is kept."""
    for number in range(10):
        compile_query(sql.read(dear(1_000 + number), None), sql.ROOTS)


def test_what_is_kept_is_not_made_again() -> None:
    recent: WeightedLru[list[int]] = WeightedLru(10)
    assert recent.get("a", 5, lambda: [1]) is recent.get("a", 5, lambda: [2])


def test_what_was_not_needed_for_longest_goes_first() -> None:
    recent: WeightedLru[str] = WeightedLru(10)
    recent.get("a", 5, lambda: "first")
    recent.get("b", 5, lambda: "second")
    recent.get("a", 5, lambda: "never")
    recent.get("c", 5, lambda: "third")
    assert [recent.get(key, 0, lambda: "again") for key in "acb"] == ["first", "third", "again"]


def test_the_last_is_kept_whatever_it_weighs() -> None:
    recent: WeightedLru[str] = WeightedLru(10)
    recent.get("a", 5, lambda: "small")
    recent.get("b", 50, lambda: "large")
    assert recent.get("b", 50, lambda: "again") == "large"
    assert recent.get("a", 5, lambda: "again") == "again"


def test_nothing_is_kept_of_what_could_not_be_made() -> None:
    recent: WeightedLru[str] = WeightedLru(10)

    def fails() -> str:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        recent.get("a", 5, fails)
    assert recent.get("a", 5, lambda: "made") == "made"


@pytest.mark.parametrize(
    ("where", "calls_itself"),
    [(f"value.n > {2**40}", 0), ("upper(" * 24 + "value.a" + ")" * 24 + " = 'A'", 2), (dear(3), 0)],
)
def test_a_compiled_query_is_gone_with_its_last_user(
    where: str, calls_itself: int, little_is_kept: None, uncollected: None
) -> None:
    made = weakref.ref(compile_query(sql.read(where, "value.a, upper(value.b)"), sql.ROOTS))
    names = made()._keep.__globals__  # type: ignore[union-attr]
    inner = [weakref.ref(one) for one in names.values() if getattr(one, "__globals__", None) is names]
    assert len(inner) == calls_itself
    del names
    others()
    assert made() is None
    assert [one() for one in inner] == [None] * calls_itself


def test_a_query_in_use_is_shared_however_many_came_after_it(little_is_kept: None) -> None:
    query = sql.read("value.n > 123456", None)
    made = compile_query(query, sql.ROOTS)
    others()
    assert compile_query(query, sql.ROOTS) is made
    assert made.filter({"value": [{"n": 1}, {"n": 200_000}]}, 2) == ([1], [])


@pytest.mark.slow
def test_what_strangers_ask_leaves_a_bounded_number_of_objects(
    little_is_kept: None, uncollected: None
) -> None:
    def asked(first: int) -> int:
        for number in range(first, first + 12):
            compile_query(sql.read(dear(number), None), sql.ROOTS)
            where = " or ".join(f"data.n{i} > {number}" for i in range(40))
            compile_query(caql.read(f"where {where}"), ROOTS)
            with pytest.raises(QueryError):
                caql.read(f"where {where} or")
            with pytest.raises(QueryError):
                sql.read(f"{dear(number)} OR", None)
        gc.collect()
        return len(gc.get_objects())

    full = asked(0)
    assert asked(100) - full < 500, "each of these queries is hundreds of objects"


@pytest.mark.parametrize("where", [dear(2), f"{dear(2)} OR", f"{dear(2)} OR nope(1)", "a IN (" + "1, " * 300])
def test_a_parser_leaves_nothing_for_the_garbage_collector(where: str, uncollected: None) -> None:
    for text in ("value.a > 1", where):  # what is made once is
        with suppress(QueryError):
            sql.read(text, f"value.a, {text} AS b")
        gc.collect()
    of_sql._conditions.clear()
    of_sql._selections.clear()
    gc.collect()
    with suppress(QueryError):
        sql.read(where, None)
    with suppress(QueryError):
        sql.read(None, f"upper(value.a), CASE WHEN {where} THEN 1 ELSE trim(key) END AS b")
    assert gc.collect() == 0


def test_what_is_asked_for_again_and_again_is_kept(little_is_kept: None) -> None:
    often = sql.read("value.n > 654321", None)
    made = weakref.ref(compile_query(often, sql.ROOTS))
    for number in range(20):
        compile_query(sql.read(dear(2_000 + number), None), sql.ROOTS)
        compile_query(often, sql.ROOTS)
    assert made() is not None
