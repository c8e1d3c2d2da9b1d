"""What SQL becomes: trees, names of columns, and errors with their place."""
# ruff: noqa: SIM905

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_NODES, MAX_TEXT
from kiwi_gw.query.sql import MAX_WORDS, read
from kiwi_gw.query.tree import FunctionCall, Literal, Node, Path
from tests.effort import examples


def condition(text: str) -> Node:
    found = read(text, None).where
    assert found is not None
    return found


def names(text: str) -> list[str]:
    found = read(None, text).select
    assert found is not None
    return [column.name[0] for column in found]


def wrong(text: str) -> tuple[str, int | None]:
    with pytest.raises(QueryError) as caught:
        read(text, None)
    assert caught.value.part == "where"
    return caught.value.words, caught.value.position


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("value.a", "value['a']"),
        ("value.A.b", "value['A', 'b']"),
        ("value.a[0]['b c'].d", "value['a', 0, 'b c', 'd']"),
        ("value['a']", "value['a']"),
        ("(value).a", "value['a']"),
        ("value.a.b.c.d.e.f.g[1].h", "value['a', 'b', 'c', 'd', 'e', 'f', 'g', 1, 'h']"),
        ("value.`a b`.`select`", "value['a b', 'select']"),
        ("value.end.in.case.null.select", "value['end', 'in', 'case', 'null', 'select']"),
        ("value.`it``s`", "value['it`s']"),
        ("timestamp > 1", ">(timestamp[],1)"),
        ("partition = 1 and offset = 2 and a", "and(=(partition[],1),and(=(offset[],2),a[]))"),
        # operators
        ("a = b", "=(a[],b[])"),
        ("a == b", "=(a[],b[])"),
        ("a <> b", "<>(a[],b[])"),
        ("a != b", "<>(a[],b[])"),
        ("a <=> b", "<=>(a[],b[])"),
        ("a < 1 or a > 2", "or(<(a[],1),>(a[],2))"),
        ("a <= 1 or b >= 2 and c", "or(<=(a[],1),and(>=(b[],2),c[]))"),
        ("(a or b) and c", "and(or(a[],b[]),c[])"),
        ("!a", "not(a[])"),
        ("NOT a = b", "not(=(a[],b[]))"),
        ("not not a", "not(not(a[]))"),
        ("a + b * c - d", "-(+(a[],*(b[],c[])),d[])"),
        ("a / b % c", "%(/(a[],b[]),c[])"),
        ("a DIV b", "div(a[],b[])"),
        ("-a", "neg(a[])"),
        ("+a", "a[]"),
        ("a || b || 'c'", "concat(concat(a[],b[]),'c')"),
        ("a - -1", "-(a[],-1)"),
        # predicates
        ("a IS NULL", "is_null(a[])"),
        ("a is not null", "not(is_null(a[]))"),
        ("a is true", "is_true(a[])"),
        ("a is not false", "not(is_false(a[]))"),
        ("a is unknown", "is_null(a[])"),
        ("a is distinct from b", "not(<=>(a[],b[]))"),
        ("a is not distinct from b", "<=>(a[],b[])"),
        ("a = b IS NULL", "is_null(=(a[],b[]))"),
        ("NOT a IS NULL", "not(is_null(a[]))"),
        ("a in (1, 'b', c)", "in(a[],1,'b',c[])"),
        ("a not in (1)", "not(in(a[],1))"),
        ("a between 1 and 2 and b", "and(between(a[],1,2),b[])"),
        ("a not between b + 1 and 2", "not(between(a[],+(b[],1),2))"),
        ("a like 'b%'", "like(a[],'b%')"),
        ("a not like 'b!%' escape '!'", "not(like(a[],'b!%','!'))"),
        ("a ilike 'b'", "ilike(a[],'b')"),
        ("a rlike 'b' or a regexp 'c'", "or(rlike(a[],'b'),rlike(a[],'c'))"),
        ("a like any ('b', 'c')", "or(like(a[],'b'),like(a[],'c'))"),
        ("a not like all ('b', 'c')", "and(not(like(a[],'b')),not(like(a[],'c')))"),
        # functions keep their names
        ("UPPER(a)", "upper(a[])"),
        ("nvl(a, b)", "nvl(a[],b[])"),
        ("if(a, 1, 2)", "if(a[],1,2)"),
        ("mod(a, 2)", "mod(a[],2)"),
        ("year(a)", "year(a[])"),
        ("left(a, 1)", "left(a[],1)"),
        ("get_json_object(a, '$.b')", "get_json_object(a[],'$.b')"),
        ("split(a, ',')[0]", "element_at(split(a[],','),1)"),
        ("f()", "f()"),
        ("substring(a FROM 2 FOR 3)", "substring(a[],2,3)"),
        ("substr(a, 2)", "substring(a[],2)"),
        ("trim(a)", "trim(a[])"),
        ("trim(BOTH 'x' FROM a)", "trim('x',a[])"),
        ("trim(LEADING FROM a)", "ltrim(a[])"),
        ("position('a' IN b)", "position('a',b[])"),
        # CASE and CAST
        ("case when a then 1 when b then 2 else 3 end", "case(a[],1,b[],2,3)"),
        ("CASE a WHEN 1 THEN 'x' END", "case(=(a[],1),'x')"),
        ("CAST(a AS bigint)", "cast(a[] as BIGINT)"),
        ("a::string", "cast(a[] as STRING)"),
        ("-a::int", "neg(cast(a[] as INT))"),
        ("cast(a as long)", "cast(a[] as BIGINT)"),
        ("int(a) = double(b)", "=(cast(a[] as INT),cast(b[] as DOUBLE))"),
        ("DATE '2026-01-31'", "cast('2026-01-31' as DATE)"),
        ("timestamp '2026-01-31 12:00:00'", "cast('2026-01-31 12:00:00' as TIMESTAMP)"),
        # constants
        ("null", "None"),
        ("TRUE", "True"),
        ("1", "1"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("1L", "cast(1 as BIGINT)"),
        ("1.5", "1.5"),
        (".5", "0.5"),
        ("5.", "5.0"),
        ("1e3", "1000.0"),
        ("1D", "1.0"),
        ("-1.5e-1d", "-0.15"),
        ("'a'", "'a'"),
        ('"a"', "'a'"),
        ("'a''b'", "'ab'"),
        (r"'a\'b\n\\'", repr("a'b\n\\")),
        (r"'\u00e9\U0001F600'", "'é😀'"),
        (r"'\ud83d\ude00\ud83d\101\0\u12\U99999999'", repr("😀?A\0u12U99999999")),
        (r"'\%\_\q'", repr(r"\%\_" + "q")),
        (r"r'a\n'", repr(r"a\n")),
        ("'a' 'b'", "'ab'"),
        # comments
        ("a -- the rest\n = /* b */ 1", "=(a[],1)"),
    ],
)
def test_what_it_becomes(text: str, key: str) -> None:
    assert condition(text).key == key


@pytest.mark.parametrize(
    ("text", "words", "position"),
    [
        ("", "there is nothing in it", 0),
        ("  ", "there is nothing in it", 0),
        ("value.a >", "it ends too early", 9),
        ("value.a > > 1", "'>'", 10),
        ("a b", "'b' is not expected here", 2),
        ("(a", "a ) must follow", 2),
        ("a[1", "a ] must follow", 3),
        ("a)", "')' is not expected here", 1),
        ("é = 'x", "this ' is never closed", 4),
        ("a = `b", "this ` is never closed", 4),
        ("a\n= \n)", "')'", 5),
        ("a and sum(*)", "Spark source", 10),
        ("count(distinct a) > 1", "Spark source", 6),
        ("coalesce(*)", "* is not expected", 9),
        ("a > (select 1)", "Spark source", 5),
        ("a in (SELECT b)", "Spark source", 6),
        ("exists(select 1)", "Spark source", 7),
        ("rank() over (order by a)", "Spark source", 7),
        ("a JOIN b", "Spark source", 2),
        ("a FROM b", "Spark source", 2),
        ("1.5BD", "no decimals", 0),
        ("cast(a as decimal(10, 2))", "no decimals", 10),
        ("a::numeric", "no decimals", 3),
        ("a + interval 1 day", "no intervals", 4),
        ("interval '1' day", "no intervals", 0),
        ("cast(a as interval day)", "no intervals", 10),
        ("cast(a as array<int>)", "a type must follow", 10),
        ("cast(a)", "AS and a type", 6),
        ("try_cast(a as int)", "CAST", 9),
        ("a & b", "'&'", 2),
        ("~a", "'~'", 0),
        ("a ? b", "'?'", 2),
        (":a", "':'", 0),
        ("x'1F'", "'1F'", 0),
        ("a -> b", "'->'", 2),
        ("f(a, x -> x)", "a ) must follow", 7),
        ("f(a,,b)", "','", 4),
        ("f(,)", "','", 2),
        ("a in ()", "')'", 6),
        ("a in b", "a list in parentheses", 5),
        ("(a, b) = 1", "only after IN", 2),
        ("a between 1 2", "AND must follow", 12),
        ("case when 1 2 end", "THEN must follow", 12),
        ("case a end", "WHEN must follow", 7),
        ("case when a then b", "WHEN, ELSE or END", 18),
        ("a like 'x' escape 'ab'", "one character", 22),
        ("a is 1", "must follow IS", 5),
        ("value.a.b()", "b is not a function", 8),
        ("value.1", "in backquotes", 0),
        ("value.a[b]", "a whole number from 0", 8),
        ("value.a[-1]", "a whole number from 0", 9),
        ("upper(a).b", "members", 0),
        ("1e", "1e is not a number", 0),
        ("a = 1x", "1x is not a number", 4),
        ("9223372036854775808", "too large", 0),
        ("a > 1e999", "too large", 4),
        ("9223372036854775808L", "too large", 0),
        ("7S", "7S is not a number", 0),
        ("1.5F", "1.5F is not a number", 0),
        ("cast(a as smallint)", "a type must follow: one of BIGINT", 10),
        ("1.5L", "not a whole number", 0),
        ("extract(second from a)", "instead of EXTRACT there are year", 8),
        ("a;", "semicolon", 1),
        ("a as b", "'as'", 2),
        # what Spark binds otherwise than the parser
        ("a = b like c", "parentheses", 4),
        ("a = b in (1)", "parentheses", 4),
        ("a < b = c", "parentheses", 0),
        ("a || b + c", "parentheses", 5),
        ("a is null = true", "parentheses", 0),
        ("a between 1 and 2 = b", "parentheses", 0),
    ],
)
def test_what_is_wrong_and_where(text: str, words: str, position: int) -> None:
    said, where = wrong(text)
    assert words in said
    assert where == position


def test_a_position_in_the_tree_is_that_of_the_first_character() -> None:
    text = "not value.a.b = upper(key) and 1 < value.c[0] + 2"
    found = condition(text)
    seen: dict[str, str] = {}

    def walk(node: Node) -> None:
        seen[node.key] = text[node.position :]
        if isinstance(node, FunctionCall):
            for argument in node.arguments:
                walk(argument)

    walk(found)
    assert seen["value['a', 'b']"].startswith("value.a.b")
    assert seen["upper(key[])"].startswith("upper")
    assert seen["key[]"].startswith("key)")
    assert seen["value['c', 0]"].startswith("value.c[0]")
    assert seen["2"] == "2"


def test_positions_count_characters_not_bytes() -> None:
    assert wrong("'é😀' = = 1")[1] == 7


def test_a_chain_of_conditions_is_not_deep() -> None:
    found = condition(" and ".join(f"value.a > {n}" for n in range(75)))
    depth = 0
    while isinstance(found, FunctionCall):
        found, depth = found.arguments[0], depth + 1
    assert depth <= 9


def test_names_of_columns() -> None:
    assert names("value.a.b, key, value.x AS y, value.z as `a b`") == ["b", "key", "y", "a b"]
    texts = ["value.a * 60", "upper( key )", "value.a[0]", "1"]
    assert names(" , ".join(texts)) == texts
    assert names("value.a.b.c.d.e.f, value.items[0].name") == ["f", "name"]
    assert names("value.a AS end, value.b AS select") == ["end", "select"]


def test_a_star_is_no_projection() -> None:
    assert read(None, "*").select is None
    assert read("a", " * ").select is None


@pytest.mark.parametrize(
    ("text", "words", "position"),
    [
        ("value.a, value.b.a", "'a'", 9),
        ("value.a AS x, value.b AS x", "'x'", 25),
        ("*, key", "goes alone", 0),
        ("key, *", "goes alone", 5),
        ("value.*", "'*'", 6),
        ("value.a b", "'b'", 8),
        ("value.a AS 'b'", "a name must follow", 11),
        ("value.a AS", "a name must follow", 10),
        ("value.a AS b.c", "'.'", 12),
        ("value.a,", "it ends too early", 8),
        ("", "there is nothing in it", 0),
        ("count(*)", "Spark source", 6),
    ],
)
def test_what_is_wrong_with_columns(text: str, words: str, position: int) -> None:
    with pytest.raises(QueryError) as caught:
        read(None, text)
    assert caught.value.part == "select"
    assert words in caught.value.words
    assert caught.value.position == position


def test_the_message_says_which_text_and_where() -> None:
    with pytest.raises(QueryError, match=r"^select: 'b' is not expected here \(at character 9\)$"):
        read("value.a", "value.a b")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 2000 + "a" + ")" * 2000,
        "not " * 1000 + "a",
        "- " * 400 + "1",
        "f(" * 600,
        "case when " * 300 + "a",
        "case " * 200,
        "a" + "[0]" * 1300,
        "a" + "::int" * 160,
        "1" + "+1" * 490,
        "cast(a as " + "array<" * 400,
        "date(" * 400,
        "case " * 20 + "a" + " when 1 then 1 when 2 then 2 end" * 20,  # its operand is meant twice each time
        "a in (" + ",".join(["1"] * 600) + ")",
        " or ".join(["a"] * 400),
        "{" * 4000,
        "'" + "a" * 4000,
        "/*" + "a" * 4000,
        "a " * 2000,
        "\x00" * 100,
        "\ud800",
        "1" * 4000,
        "value" + ".a" * 400,
        "a.b() + " * 400,
    ],
)
def test_hostile_texts_are_errors_of_the_query(text: str) -> None:
    for where, select in ((text, None), (None, text)):
        try:
            found = read(where, select)
        except QueryError:
            continue
        assert "[0]" in text or found.where is not None or found.select is not None


def test_how_long_a_text_may_be() -> None:
    assert condition("'" + "a" * (MAX_TEXT - 2) + "'")
    assert "longer" in wrong("'" + "a" * (MAX_TEXT - 1) + "'")[0]
    assert "longer" in wrong("'" + "é" * (MAX_TEXT // 2) + "'")[0]


def test_how_many_words_and_parts_it_may_have() -> None:
    assert "words" in wrong("a in (" + ",".join(["1"] * (MAX_WORDS // 2)) + ")")[0]
    assert "parts" in wrong(" or ".join(["a"] * (MAX_NODES // 2 + 1)))[0]
    with pytest.raises(QueryError, match="parts"):  # together
        read(None, ",".join(f"a={n} is null" for n in range(MAX_NODES // 4 + 1)))


WORDS = [
    *"a value . key ( ) [ ] , = <> < and or not in like is null between case when then else end cast".split(),
    *"as int 1 1.5 'x' \" ` + - * / % || :: f( select over distinct interval escape ; { } ? : @ #".split(),
    *("--", "/*", "*/", "begin", "rlike", "ilike", "any", "is", "distinct", "from", "!"),
]


@given(st.text(max_size=60) | st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join))
@settings(max_examples=examples(300), deadline=None)
def test_any_text_is_a_query_or_an_error_with_its_place(text: str) -> None:
    places: list[int | None] = []
    words: list[str] = []
    for where, select in ((text, None), (None, text)):
        try:
            read(where, select)
        except QueryError as error:
            places.append(error.position)
            words.append(error.words)
    assert "it cannot be read" not in words  # nothing that was not thought of
    assert all(place is None or 0 <= place <= len(text) for place in places)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("LIKE 1", 0),
        ("value.a = 1 AND NOT LIKE 'a'", 20),
        ("ilike any ('a')", 0),
        ("key || (rlike 'a')", 8),
        ("BETWEEN 1 AND 2", 0),
    ],
)
def test_a_predicate_of_nothing(text: str, place: int) -> None:
    with pytest.raises(QueryError, match="a value must come before") as error:
        read(text, None)
    assert error.value.position == place


def test_nothing_reaches_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for text in ("alter table x", "a[1][2]", "show tables", "a := 1", "command x", "/*+ hint */ a", "$1"):
        with contextlib.suppress(QueryError):
            read(text, text)
    assert caplog.records == []


def test_equal_queries_are_equal_wherever_they_stand() -> None:
    assert read("  value.a>1", None).key == read("value . a > /* so */ 1", None).key
    assert read("value.a > 1", None).key != read("value.a > 1.0", None).key
    assert condition("a") == Path("a")
    assert condition(" 1") == Literal(1)


@pytest.mark.parametrize(
    ("text", "words", "position"),
    [
        ("value.a NOT IS NULL", "'NOT' is not expected", 8),
        ("trim(value.a", "a ) must follow", 12),
        ("value.a AS !=", "a name must follow", 11),
        ("value. <=> b", "'<=>' is not expected", 7),
        ("value 'a'", "'a' is not expected", 6),
        ("a < AND b", "and not 'AND'", 4),
        ("a - not b", "parentheses", 4),
        ("/* a", "this /* is never closed", 0),
    ],
)
def test_what_is_missing_is_not_made_up(text: str, words: str, position: int) -> None:
    with pytest.raises(QueryError) as caught:
        read(None, text)
    assert words in caught.value.words
    assert caught.value.position == position


@pytest.mark.slow
def test_patterns_come_with_the_first_query_that_has_one() -> None:
    code = (
        "import sys, kiwi_gw.app, kiwi_gw.dialects.kiwi.session, kiwi_gw.cli.version\n"
        "from kiwi_gw.query.sql import read\n"
        "read('value.a > 1', None)\n"
        "assert 're2' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)
