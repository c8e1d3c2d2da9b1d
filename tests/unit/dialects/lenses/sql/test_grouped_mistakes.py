"""What is said of a statement of SQL v2 that cannot be run, where that is, and how long it takes."""
# ruff: noqa: S608

from __future__ import annotations

import pytest

from kiwi_gw.dialects.lenses.any_queries import checked_any, parse_any, read_and_compile_any
from kiwi_gw.dialects.lenses.sql import GroupedStatement, written
from kiwi_gw.dialects.lenses.sql.length import MAX_WRITTEN
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_TEXT
from tests.processor import least


@pytest.mark.parametrize(
    ("text", "words", "character"),
    [
        ("INSERT INTO t SELECT 1", "SELECT must come here", 1),
        ("SELECT count(*) FROM t; DROP TABLE t", "one statement, and nothing behind its semicolon", 25),
        ("SELECT a, a FROM t ORDER BY 1", "two columns are called 'a'", 11),
        ("SELECT count(*), count(a) FROM t", "two columns are called 'count'", 18),
        ("SELECT a, count(*) FROM t", "this is neither in GROUP BY nor in an aggregate", 8),
        ("SELECT a + b, count(*) FROM t GROUP BY a", "this is neither in GROUP BY nor in an aggregate", 12),
        ("SELECT count(*) FROM t GROUP BY a HAVING b > 1", "this is neither in GROUP BY", 42),
        ("SELECT count(*) FROM t GROUP BY a ORDER BY b", "this is neither in GROUP BY", 44),
        ("SELECT a FROM t HAVING a > 1", "this is neither in GROUP BY", 8),
        ("SELECT 1 AS x, 1.0 AS y FROM t GROUP BY 1", "a constant groups nothing", 8),
        ("SELECT max(sum(a)) FROM t", "an aggregate has no place in another one", 12),
        ("SELECT a FROM t WHERE count(*) > 1 GROUP BY a", "an aggregate has no place in WHERE", 23),
        ("SELECT count(*) FROM t GROUP BY sum(a)", "an aggregate has no place in GROUP BY", 33),
        ("SELECT count(*) AS n FROM t GROUP BY n", "an aggregate has no place in GROUP BY", 8),
        (
            "SELECT t.a FROM t JOIN u ON t.a = u.a AND max(t.b) = 1",
            "an aggregate has no place in ON",
            43,
        ),
        ("SELECT count(*) FROM t GROUP BY 2", "there is no column 2", 33),
        ("SELECT a FROM t ORDER BY 0", "there is no column 0", 26),
        ("SELECT * FROM t ORDER BY 1", "there is no column 1", 26),
        ("SELECT a FROM t ORDER BY 'a'", "a constant orders nothing", 26),
        ("SELECT a FROM t ORDER a", "BY must follow", 23),
        ("SELECT a FROM t ORDER BY a NULLS", "FIRST or LAST must follow", 33),
        ("SELECT DISTINCT a FROM t ORDER BY b", "ORDER BY has only columns where there is DISTINCT", 35),
        ("SELECT *, a FROM t ORDER BY a", "* is all of a record, and goes alone", 8),
        ("SELECT * FROM t GROUP BY a", "* is all of a record, and a group has many", 8),
        ("SELECT * FROM t JOIN u ON t.a = u.a", "* goes only with one table", 8),
        ("SELECT _value.* FROM t ORDER BY a", "_value.* goes only with one record at a time", 8),
        ("SELECT t.* FROM t ORDER BY a", "only _value, _key, _meta may be followed by .*", 8),
        ("SELECT _meta.* FROM t JOIN u ON t.a = u.a", "say of which table: name its members", 8),
        ("SELECT a FROM t JOIN u ON t.a = u.a", "say of which table a is: t.a, u.a", 8),
        ("SELECT t FROM t JOIN u ON t.a = u.a", "t is a table: say what of it, as t._value", 8),
        ("SELECT t.a FROM t JOIN u ON t.a = a", "say of which table a is: t.a, u.a", 35),
        ("SELECT t.a FROM t JOIN t ON t.a = t.b", "two tables are called 't'", 24),
        ("SELECT a.x FROM t a JOIN u b ON a.x = c.x JOIN u c ON c.x = a.x", "c is joined only later", 39),
        ("SELECT t.a FROM t JOIN u ON t.a < u.a", "ON must have, joined by AND, what of u equals", 29),
        ("SELECT t.a FROM t JOIN u ON t.a = 1", "ON must have", 29),
        ("SELECT t.a FROM t JOIN u ON t.a = u.a OR t.b = 1", "ON must have", 29),
        ("SELECT t.a FROM t JOIN u ON t.a + u.a = t.b", "ON must have", 29),
        ("SELECT t.a FROM t JOIN u ON u.a = u.b", "ON must have", 29),
        ("SELECT t.a FROM t JOIN u", "ON and a condition must follow", 25),
        ("SELECT t.a FROM t JOIN u USING (a)", "instead of USING write ON", 26),
        ("SELECT t.a FROM t CROSS JOIN u", "CROSS JOIN is not here", 19),
        ("SELECT t.a FROM t NATURAL JOIN u", "NATURAL JOIN is not here", 19),
        ("SELECT t.a FROM t LEFT SEMI JOIN u ON t.a = u.a", "JOIN must follow", 24),
        ("SELECT t.a FROM t, u", "tables are not joined by a comma", 18),
        (
            "SELECT a.x FROM a JOIN b ON a.x=b.x JOIN c ON a.x=c.x JOIN d ON a.x=d.x JOIN e ON a.x=e.x",
            "more than 4 tables",
            73,
        ),
        ("SELECT count(*) FROM (SELECT 1)", "there are no subqueries here", 22),
        ("SELECT count(*), (SELECT 1) FROM t", "there are no subqueries here", 19),
        ("SELECT a FROM t WHERE a IN (SELECT a FROM u)", "there are no subqueries here", 29),
        ("SELECT a FROM t UNION SELECT a FROM u", "a statement is one SELECT", 17),
        ("WITH x AS (SELECT 1) SELECT a FROM x", "a statement is one SELECT", 1),
        ("SELECT count(*) OVER (ORDER BY a) FROM t", "there are no windows over records here", 17),
        ("SELECT row_number() OVER (ORDER BY a) FROM t", "row_number needs a window over records", 8),
        ("SELECT count(*) FILTER (WHERE a) FROM t", "there is no FILTER here", 17),
        ("SELECT a FROM t SORT BY a", "there is ORDER BY", 17),
        ("SELECT a FROM t ORDER BY a LIMIT 5 OFFSET 2", "there is no OFFSET here", 36),
        ("SELECT percentile(a, 0.5) FROM t", "there is no percentile here; aggregates are count, sum", 8),
        ("SELECT sum(*) FROM t", "only count takes a *", 12),
        ("SELECT count(DISTINCT *) FROM t", "only count takes a *, and no DISTINCT", 23),
        ("SELECT median(DISTINCT a) FROM t", "median takes no DISTINCT", 15),
        ("SELECT min_by(a) FROM t", "min_by takes 2 arguments, and here are 1", 8),
        ("SELECT count() FROM t", "count takes 1 to 16 arguments, and here are 0", 8),
        ("SELECT upper(DISTINCT a), count(*) FROM t", "DISTINCT is not expected here", 14),
        ("SELECT count(*) FROM t WHERE _vtype='X'", "no such decoder", 37),
        ("SELECT count(*) FROM t WHERE a = 1 OR _vtype='INT'", "_vtype has a place only in a term", 39),
        ("SELECT count(*) FROM t HAVING _vtype='INT'", "_vtype has a place only in a term", 31),
        ("SELECT t.a FROM t JOIN u ON t.a = u.a AND u._vtype='INT'", "_vtype has a place only", 43),
        ("SELECT t.a FROM t JOIN u ON t.a = u.a WHERE _vtype='INT'", "say of which table _vtype is", 45),
        ("SELECT count(*) FROM t WHERE _sample=10", "_sample goes only with one record at a time", 38),
        ("SELECT max(_meta) FROM t", "_meta is no value", 12),
        ("SELECT reflect('java.lang.System', 'exit') FROM t ORDER BY 1", "reflect does not depend", 8),
        ("SELECT max(java_method('a', 'b')) FROM t", "java_method does not depend", 12),
        ("SELECT count(*), nope(1) FROM t", "there is no function nope", 18),
        ("SELECT max(upper(a, b)) FROM t", "upper takes", 12),
        ("SELECT count(*) FROM t HAVING 'a'", "a condition is BOOLEAN, and this is STRING", 31),
        ("SELECT count(*) FROM t WHERE a RLIKE '('", "the pattern '(' cannot be used", 38),
        ("SELECT count(*) FROM t WHERE a RLIKE '(a+)+b'", "a pattern here repeats nothing that has", 38),
        ("SELECT count(*) FROM t WHERE a RLIKE '(?:a|a)*'", "a pattern here repeats nothing that has", 38),
        ("SELECT max(split(a, 'a?a?a?a?a?')) FROM t", "a pattern here has no more than 4 rep", 21),
        ("SELECT count(*) FROM t WHERE a LIKE '%a%a%a%a%'", "a pattern here has no more than 4 %", 37),
        ("SELECT count(*) FROM t WHERE a LIKE b", "the pattern of like is a constant here", 37),
        ("SELECT max(repeat(a, b)) FROM t", "the last argument of repeat is a constant number, of 100", 22),
        ("SELECT max(repeat(a, 1e9)) FROM t", "the last argument of repeat is a constant number", 22),
        ("SELECT max(repeat(a, '999')) FROM t", "the last argument of repeat is a constant number", 22),
        ("SELECT max(repeat(a, 101)) FROM t", "the last argument of repeat is a constant number", 22),
        ("SELECT max(replace(a, b, c)) FROM t", "the last argument of replace is a constant text", 26),
        ("SELECT repeat(max(repeat(a, 9)), 9) FROM t", "repeat has no place in repeat here", 19),
        ("SELECT repeat(replace(a, 'b'), 9) AS x FROM t GROUP BY 1", "replace has no place in repeat", 15),
        ("SELECT count(*) AS `${env:HOME}` FROM t", "a column cannot be called so", 8),
        (
            f"SELECT concat(a, '{'$' * 3_000}') AS x, count(*) FROM t GROUP BY {', '.join('x' * 90)}",
            "it is too long: written out for Spark it has more than 32,768 characters",
            18,
        ),
        (
            f"SELECT a['{'$' * 3_000}'] AS x, count(*) FROM t GROUP BY x HAVING x > 1",
            "it is too long: written out for Spark",
            8,
        ),
    ],
)
def test_a_mistake_and_its_place(text: str, words: str, character: int) -> None:
    with pytest.raises(QueryError) as caught:
        written(parse_any(checked_any(text)))  # type: ignore[arg-type]
    assert caught.value.words.startswith(words)
    assert caught.value.position == character - 1


@pytest.mark.parametrize(
    "pattern",
    ["^(\\\\w+)-(\\\\d+)$", "[)(*+|]+", "(?i)(?:ab)+", "a{2,5}", "(\\\\.\\\\d+)?", "\\\\(a+\\\\)+", "^$"],
)
def test_a_pattern_that_java_is_soon_done_with(pattern: str) -> None:
    assert parse_any(checked_any(f"SELECT count(*) FROM t WHERE a RLIKE '{pattern}'"))


HOSTILE = {
    "longer than any": "SELECT count(*) FROM t WHERE " + "a = 1 AND " * 100_000 + "b",
    "nested": f"SELECT sum({'(' * 500}a{')' * 500}) FROM t",
    "aggregates": "SELECT " + "max(" * 100 + "a" + ")" * 100 + " FROM t",
    "words": "SELECT " + "a," * 2_000 + "b FROM t GROUP BY a",
    "groups": "SELECT count(*) FROM t GROUP BY " + "a," * 2_000 + "b",
    "joins": "SELECT a.x FROM a" + " JOIN b ON a.x = b.x" * 200,
    "a name of a column in itself": (
        f"SELECT {'+'.join('a' * 100)} AS a, count(*) FROM t GROUP BY 1 ORDER BY {','.join('a' * 90)}"
    ),
    "orders": "SELECT a FROM t ORDER BY " + "1," * 2_000 + "1",
    "a comment that is never closed": "SELECT count(*) /*" + "*" * 4_000,
    "signs": "SELECT " + "\x00" * (MAX_TEXT - 7),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_deep_or_huge_sql_is_refused(text: str) -> None:
    with pytest.raises(QueryError):
        read_and_compile_any(text)


@pytest.mark.cost
@pytest.mark.parametrize("texts", [1, 5, 25])
def test_what_is_accepted_is_written_in_little_time(texts: int) -> None:
    """As many characters as may be, of which each becomes six; many different texts are kept by no memory."""
    size = (MAX_WRITTEN // 2 // texts - 100) // 6
    columns = ", ".join(f"concat(a, '{n}{'$' * size}') AS x{n}" for n in range(texts))
    groups = ", ".join(f"x{n}" for n in range(texts))
    statement = parse_any(checked_any(f"SELECT {columns} FROM t GROUP BY {groups}"))
    assert isinstance(statement, GroupedStatement)
    assert len(written(statement).sql) < 3 * MAX_WRITTEN
    assert least(lambda: written(statement), 0.01) < 0.01


@pytest.mark.cost
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_deep_or_huge_sql_is_refused_within_5_ms(text: str) -> None:
    def refused() -> None:
        with pytest.raises(QueryError):
            read_and_compile_any(text)

    assert least(refused, 0.005) < 0.005


def test_what_was_refused_is_refused_again_and_not_by_v1() -> None:
    with pytest.raises(QueryError, match="there is no column 7"):
        parse_any(checked_any("SELECT a FROM t ORDER BY 7"))
    with pytest.raises(QueryError, match="there is no column 7"):
        checked_any("SELECT a FROM t ORDER BY 7")
