"""What holds for any statement of SQL v2: it is read or refused in words, and what is written is ours."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.dialects.lenses.any_queries import checked_any, parse_any, read_and_compile_any
from kiwi_gw.dialects.lenses.queries import ReadStatement
from kiwi_gw.dialects.lenses.sql import GroupedStatement, Statement, read, read_any, written
from kiwi_gw.dialects.lenses.sql.engine_text import WrittenQuery
from kiwi_gw.dialects.lenses.sql.spark_text import constant_text, name_text
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.sql.tokens import Kind, tokenized
from kiwi_gw.query.tree import Node
from tests.effort import examples
from tests.unit.dialects.lenses.sql.grouped_texts import NASTY, grouped_texts
from tests.unit.dialects.lenses.sql.printed import conditions, printed
from tests.unit.dialects.lenses.sql.spark_words import check_words

_WORDS = (
    "SELECT", "DISTINCT", "FROM", "WHERE", "AND", "NOT", "GROUP", "BY", "HAVING", "ORDER", "ASC", "DESC",
    "NULLS", "LAST", "LIMIT", "JOIN", "LEFT", "FULL", "OUTER", "CROSS", "ON", "USING", "AS", "x", "y", "x.a",
    "y.a", "t", "a", "_value", "_key", "_meta", "_offset", "_vtype", "_sample", "count(*)", "sum(",
    "count(DISTINCT", "upper(", "row_number()", "OVER", "FILTER", "UNION", "`x y`", "'INT'", "1", "2", "-",
    "(", ")", "[", "]", ".", ".*", "*", ",", ";", "=", "<", "::", "5", "\ud83d", "\x00", "SET",
)  # fmt: skip


@given(
    st.lists(st.sampled_from(_WORDS), max_size=25).map(" ".join),
    st.sampled_from(
        ("", "SELECT a, count(*) FROM t ", "SELECT x.a FROM t x JOIN u y ON x.a = y.a ", "SELECT ")
    ),
)
@settings(max_examples=examples(400), deadline=None)
def test_any_words_are_read_or_refused_with_a_place(words: str, begin: str) -> None:
    text = begin + words
    found = _read(text)
    if isinstance(found, QueryError):
        assert found.words
        assert found.position is None or 0 <= found.position <= len(text)
    else:
        assert read_and_compile_any(text)[0].statement == found


def _read(text: str) -> Statement | GroupedStatement | QueryError:
    try:
        found = parse_any(checked_any(text))
    except QueryError as error:
        return error
    return found.statement if isinstance(found, ReadStatement) else found


@given(grouped_texts)
@settings(max_examples=examples(600), deadline=None)
def test_what_is_written_is_one_select_of_known_words(text: str) -> None:
    statement = _read(text)
    if isinstance(statement, GroupedStatement) and not isinstance(query := _written(statement), QueryError):
        check_words(query.sql, len(statement.tables))
        assert all(f"`{name}`" in query.sql for name in query.key)


def _written(statement: GroupedStatement) -> WrittenQuery | QueryError:
    try:
        return written(statement)
    except QueryError as error:
        return error


@given(conditions, st.sampled_from(("t", "a-b.c", "x y")), st.none() | st.integers(1, 10**9))
@settings(max_examples=examples(100), deadline=None)
def test_a_statement_of_one_record_is_that_of_v1(condition: Node, table: str, limit: int | None) -> None:
    text = printed(condition, table, limit)
    assert read_any(text) == read(text)


_TEXTS = st.text(st.characters(codec="utf-8")) | st.lists(st.sampled_from(NASTY)).map("".join)


@given(_TEXTS)
@settings(max_examples=examples(300), deadline=None)
def test_a_text_in_quotes_is_a_word_that_means_the_text(text: str) -> None:
    made = constant_text(text)
    assert set(made) <= set(string.printable) - set('"$`\t\n\r\x0b\x0c')
    assert "'" not in made[1:-1]
    (token, end) = tokenized(made, 2)
    assert (token.kind, end.kind) == (Kind.STRING, Kind.END)
    assert token.text == text.encode("utf-16", "replace").decode("utf-16")


@given(_TEXTS)
@settings(max_examples=examples(300), deadline=None)
def test_a_name_in_backticks_is_a_word_that_means_the_name(name: str) -> None:
    try:
        made = name_text(name, 0)
    except QueryError:
        assert not name or "${" in name or any(each == "\0" or "\ud800" <= each <= "\udfff" for each in name)
        return
    (token, end) = tokenized(made, 2)
    assert (token.kind, token.text, end.kind) == (Kind.NAME, name, Kind.END)


@pytest.mark.parametrize("name", ["", "${env:HOME}", "a${x}", "\0", "\ud83d"])
def test_a_name_that_spark_would_not_take_as_it_is_is_refused(name: str) -> None:
    with pytest.raises(QueryError, match="give it another name with AS"):
        name_text(name, 0)
