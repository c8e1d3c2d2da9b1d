"""What holds for any statement: it is read or refused in words, and what need not be read would not pass."""
# ruff: noqa: S608

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.dialects.lenses.queries import checked as text_of
from kiwi_gw.dialects.lenses.queries import parse, read_and_compile
from kiwi_gw.dialects.lenses.sql import Statement, read
from kiwi_gw.dialects.lenses.sql.names import ROOTS
from kiwi_gw.query.compiler import compile_query
from kiwi_gw.query.errors import QueryError
from tests.effort import examples

_WORDS = (
    "SELECT", "FROM", "WHERE", "AND", "OR", "NOT", "LIMIT", "SET", "AS", "IN", "LIKE", "BETWEEN", "IS",
    "NULL",
    "CASE", "WHEN", "GROUP", "BY", "JOIN", "DISTINCT", "DATE", "INTERVAL", "a", "_value", "_key", "_meta",
    "_headers", "_offset", "_ts", "_ktype", "_vtype", "_sample", "_sampleWindow", "offset", "timestamp",
    "__keysize", "count", "upper", "cast", "trim", "t", "`x y`", "'INT'", "'x'", "1", "-", "--", "/*", "*/",
    "(",
    ")", "[", "]", ".", ".*", "*", ",", ";", "=", "<", ">=", "::", "||", "5", "1e400", "\ud83d", "\x00", "\n",
)  # fmt: skip


@given(st.lists(st.sampled_from(_WORDS), max_size=25), st.booleans())
@settings(max_examples=examples(300), deadline=None)
def test_any_words_are_read_or_refused_with_a_place(words: list[str], begun: bool) -> None:
    text = ("SELECT * FROM t WHERE " if begun else "") + " ".join(words)
    found = _read(text)
    if isinstance(found, QueryError):
        assert found.words
        assert found.position is None or 0 <= found.position <= len(text)
    else:
        assert read_and_compile(text)[0] == found


def _read(text: str) -> Statement | QueryError:
    try:
        return parse(text_of(text)).statement
    except QueryError as error:
        return error


_numbers = st.integers(-1, 6)
_names = st.sampled_from(("_meta.offset", "_offset", "_ts", "_meta.timestamp", "_partition"))
_terms = st.one_of(
    st.builds("{} {} {}".format, _names, st.sampled_from(("<", "<=", ">", ">=", "=", "<>", "<=>")), _numbers),
    st.builds("{2} {1} {0}".format, _names, st.sampled_from(("<", "<=", ">", ">=", "=")), _numbers),
    st.builds("{} IN ({}, {})".format, _names, _numbers, _numbers),
    st.builds("{} BETWEEN {} AND {}".format, _names, _numbers, _numbers),
    st.builds("NOT {} > {}".format, _names, _numbers),
    st.builds("({} = {} OR {} = {})".format, _names, _numbers, _names, _numbers),
)


@given(st.lists(_terms, min_size=1, max_size=4).map(" AND ".join))
@settings(max_examples=examples(200), deadline=None)
def test_what_need_not_be_read_would_not_pass(condition: str) -> None:
    statement = read(f"SELECT * FROM t WHERE {condition}")
    places = [(p, o, t) for p in range(3) for o in range(6) for t in (None, 0, 3, 5)]
    columns = dict(zip(("partition", "offset", "timestamp"), zip(*places, strict=True), strict=True))
    compiled = compile_query(statement.query, ROOTS)
    kept, _ = compiled.filter({root: columns[root] for root in compiled.roots}, len(places))
    narrowed = statement.narrowed
    assert not (kept and narrowed.nothing)
    for partition, offset, time in (places[index] for index in kept):
        assert narrowed.partitions is None or partition in narrowed.partitions
        assert _between(narrowed.first_offset, offset, narrowed.last_offset)
        assert time is None or _between(narrowed.first_time, time, narrowed.last_time)
        assert time is not None or (narrowed.first_time is None and narrowed.last_time is None)


def _between(first: int | None, number: int, last: int | None) -> bool:
    return (first is None or first <= number) and (last is None or number <= last)
