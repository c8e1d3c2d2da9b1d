"""What is said of a statement that cannot be read, and where it is wrong; and how long that takes at most."""
# ruff: noqa: S608

from __future__ import annotations

import pytest

from kiwi_gw.dialects.lenses.sql import read
from kiwi_gw.dialects.lenses.sql.names import MORE_THAN_ONE
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_TEXT
from tests.processor import least


@pytest.mark.parametrize(
    ("text", "words", "character"),
    [
        ("", "there is nothing in it", 1),
        ("INSERT INTO t VALUES (1)", "SELECT must come here", 1),
        ("SELECT", "it ends too early: a value must follow", 7),
        ("SELECT a", "a comma, or FROM and a table, must follow", 9),
        ("SELECT a b FROM t", "a comma, or FROM and a table, must follow", 10),
        ("SELECT *, a FROM t", "* is all of a record, and goes alone", 8),
        ("SELECT a, * FROM t", "* is all of a record, and goes alone", 11),
        ("SELECT a.* FROM t", "only _value, _key, _meta may be followed by .*", 8),
        ("SELECT a, b.a FROM t", "two columns are called 'a'", 11),
        ("SELECT _value.*, _value.* FROM t", "two columns are called '_value.*'", 18),
        ("SELECT offset, _meta.* FROM t", "two columns are called 'offset'", 16),
        ("SELECT a AS 5 FROM t", "a name must follow", 13),
        ("SELECT _meta FROM t", "_meta is no value", 8),
        ("SELECT _meta.ofset FROM t", "_meta has no 'ofset' (did you mean offset?)", 8),
        ("SELECT _vtype FROM t", "_vtype has a place only in a term", 8),
        ("SELECT * FROM", "a table must follow", 14),
        ("SELECT * FROM 'flights'", "a table must follow", 15),
        ("SELECT * FROM t AS x", "'AS' is not expected here", 17),
        ("SELECT * FROM té", "'é' is not expected here", 16),
        ("SELECT * FROM t WHERE", "it ends too early: a value must follow", 22),
        ("SELECT * FROM t WHERE a = 1 b", "'b' is not expected here", 29),
        ("SELECT * FROM t; SELECT * FROM u", "one statement, and nothing behind its semicolon", 18),
        ("SELECT * FROM t LIMIT", "a whole number from 1 must follow LIMIT", 22),
        ("SELECT * FROM t LIMIT 0", "a whole number from 1 must follow LIMIT", 23),
        ("SELECT * FROM t LIMIT 1e3", "a whole number from 1 must follow LIMIT", 23),
        ("SELECT * FROM t LIMIT 99999999999999999999", "a whole number from 1 must follow LIMIT", 23),
        ("SELECT * FROM t LIMIT 5 OFFSET 3", "OFFSET has no place in an expression", 25),
        ("SELECT * FROM t WHERE _ktype='X'", "no such decoder: one of STRING, JSON", 30),
        ("SELECT * FROM t WHERE _ktype='AVROO'", "no such decoder (did you mean AVRO?)", 30),
        ("SELECT * FROM t WHERE _ktype=5", "no such decoder: one of STRING, JSON", 30),
        ("SELECT * FROM t WHERE _ktype=JSON", "_ktype has a place only in a term", 23),
        ("SELECT * FROM t WHERE a = 1 OR _ktype='INT'", "_ktype has a place only in a term", 32),
        ("SELECT * FROM t WHERE NOT _vtype='INT'", "_vtype has a place only in a term", 27),
        ("SELECT * FROM t WHERE _vtype='INT' AND _vtype='INT'", "_vtype is there twice", 40),
        ("SELECT * FROM t WHERE _vtype <> 'INT'", "_vtype has a place only in a term", 23),
        ("SELECT * FROM t WHERE _sample='5'", "_sample is a whole number from 1", 31),
        ("SELECT * FROM t WHERE _sample=0", "_sample is a whole number from 1", 31),
        ("SELECT * FROM t WHERE _sampleWindow=500", "_sampleWindow needs _sample", 23),
        ("SELECT * FROM t WHERE upper(_sample) = 'A'", "_sample has a place only in a term", 29),
        ("SET a SELECT * FROM t", "= and a value must follow", 7),
        ("SET a=; SELECT * FROM t", "a value must follow", 7),
        ("SET a=5 SELECT * FROM t", "a ; must follow", 9),
        ("SET 5=5; SELECT * FROM t", "the name of a setting must follow", 5),
        ("SET a=5; " * 33 + "SELECT * FROM t", "more than 32 settings", 293),
        ("SELECT count(*) FROM t", MORE_THAN_ONE, 8),
        ("SELECT a, Sum(b) FROM t", MORE_THAN_ONE, 11),
        ("SELECT 1 + max_by(a, b) FROM t", MORE_THAN_ONE, 12),
        ("SELECT row_number() OVER (ORDER BY a) FROM t", MORE_THAN_ONE, 8),
        ("SELECT DISTINCT a FROM t", MORE_THAN_ONE, 8),
        ("SELECT a FROM t GROUP BY a", MORE_THAN_ONE, 17),
        ("SELECT a FROM t WHERE a = 1 HAVING a", MORE_THAN_ONE, 29),
        ("SELECT a FROM t ORDER BY a", MORE_THAN_ONE, 17),
        ("SELECT a FROM t JOIN u ON t.a = u.a", MORE_THAN_ONE, 17),
        ("SELECT a FROM t, u", MORE_THAN_ONE, 16),
        ("SELECT a FROM (SELECT a FROM t)", MORE_THAN_ONE, 15),
        ("SELECT a FROM t UNION SELECT a FROM u", MORE_THAN_ONE, 17),
    ],
)
def test_a_mistake_and_its_place(text: str, words: str, character: int) -> None:
    with pytest.raises(QueryError) as caught:
        read(text)
    assert caught.value.words.startswith(words)
    assert caught.value.position == character - 1


HOSTILE = {
    "longer than any": "SELECT * FROM t WHERE " + "a = 1 AND " * 100_000 + "b",
    "nested": f"SELECT * FROM t WHERE {'(' * 500}a{')' * 500}",
    "nested to the end": "SELECT * FROM t WHERE " + "(" * (MAX_TEXT - 22),
    "negated": "SELECT * FROM t WHERE " + "NOT " * 500 + "a",
    "words": "SELECT " + "a," * 2_000 + "b FROM t",
    "a list": f"SELECT * FROM t WHERE a IN ({','.join('1' for _ in range(400))})",
    "settings": "SET a=1;" * 500 + "SELECT * FROM t",
    "a comment that is never closed": "SELECT /*" + "*" * 4_000,
    "a table of dashes": f"SELECT * FROM {'--a' * 1_300} (",
    "signs": "\x00" * 4_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_deep_or_huge_sql_is_refused(text: str) -> None:
    with pytest.raises(QueryError):
        read(text)


@pytest.mark.cost
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_deep_or_huge_sql_is_refused_within_5_ms(text: str) -> None:
    def refused() -> None:
        with pytest.raises(QueryError):
            read(text)

    assert least(refused, 0.005) < 0.005
