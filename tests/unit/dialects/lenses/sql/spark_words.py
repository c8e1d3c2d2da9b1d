"""Takes SQL apart as Spark's lexer does, to see what of a client is in it: a model of Spark's grammar
(SqlBaseLexer.g4: STRING_LITERAL, BACKQUOTED_IDENTIFIER and so on)."""

from __future__ import annotations

import re
from typing import Final

from kiwi_gw.dialects.lenses.sql.aggregates import NUMBERS
from kiwi_gw.query.functions import registry

_WORDS: Final = re.compile(
    r"""(?P<string>'(?:[^'\\]|\\.)*')
    |(?P<name>`(?:[^`]|``)*`)
    |(?P<number>[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?D?(?![0-9A-Za-z_.]))
    |(?P<word>[A-Za-z][A-Za-z0-9_]*)
    |(?P<sign><=>|<=|>=|<>|[-+*/%<>=().,\[\]])
    |(?P<blank>\ )""",
    re.DOTALL | re.VERBOSE,
)
_KEYWORDS: Final = frozenset(
    [
        "SELECT",
        "DISTINCT",
        "FROM",
        "AS",
        "JOIN",
        "INNER",
        "LEFT",
        "RIGHT",
        "FULL",
        "ON",
        "WHERE",
        "GROUP",
        "BY",
        "HAVING",
        "ORDER",
        "ASC",
        "DESC",
        "NULLS",
        "FIRST",
        "LAST",
        "LIMIT",
        "AND",
        "OR",
        "NOT",
        "IS",
        "NULL",
        "TRUE",
        "FALSE",
        "IN",
        "BETWEEN",
        "LIKE",
        "ILIKE",
        "RLIKE",
        "ESCAPE",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "END",
        "CAST",
        "DIV",
    ]
)
_TYPES: Final = frozenset(("BIGINT", "INT", "DOUBLE", "STRING", "BOOLEAN", "DATE", "TIMESTAMP"))


def check_words(sql: str, tables: int) -> None:
    """Check that it is one SELECT of words that are the gateway's own, over tables `t0` and so on."""
    words = [found for found in _split(sql) if found.lastgroup != "blank"]
    assert "${" not in sql
    depth = 0
    for index, found in enumerate(words):
        word, following = found[0], words[index + 1][0] if index + 1 < len(words) else ""
        depth += (word == "(") - (word == ")")
        assert depth >= 0
        if found.lastgroup == "string":
            assert word.isascii()
            assert word.isprintable()
        if found.lastgroup == "word" and word not in _KEYWORDS | _TYPES:
            if following == "(":
                assert word in registry() or word in NUMBERS, word
            else:
                assert re.fullmatch(r"t\d", word), word
                assert int(word[1:]) < tables
    assert depth == 0
    assert [found[0] for found in words].count("SELECT") == 2


def _split(sql: str) -> list[re.Match[str]]:
    """Two signs that begin a comment cannot stand side by side: blanks are words, too."""
    found: list[re.Match[str]] = []
    place = 0
    while place < len(sql):
        word = _WORDS.match(sql, place)
        assert word is not None, sql[place:]
        assert not (word[0] in "-*/" and found and found[-1][0] in ("-", "/"))
        found.append(word)
        place = word.end()
    return found
