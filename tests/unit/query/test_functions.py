"""Operators, casts and functions by examples; what Spark 4.2 gives for them was looked up there."""

from __future__ import annotations

import math
import re

import pytest

from kiwi_gw.query import sql
from kiwi_gw.query.compiler import compile_query
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.functions import json_text, modules, registry, unsupported
from kiwi_gw.query.limits import MAX_TEXT
from kiwi_gw.query.tree import Cast, Constant, Literal
from kiwi_gw.query.values import Value
from kiwi_gw.query.values.types import CASTS
from tests.query_reference import tables
from tests.unit.query.trying import at, call, result

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

OPERATORS: list[tuple[str, tuple[Constant, ...], Value]] = [
    ("=", ("1.9", 1), True),
    ("=", ("abc", 0), None),
    ("=", (" 5 ", 5), True),
    ("=", ("1e1", 10), None),
    ("=", ("1e1", 10.0), True),
    (">", ("3000000000", 1), None),
    (">", ("3000000001", 3_000_000_000), True),
    ("=", (True, 1), True),
    ("<>", (False, 1), True),
    ("<", (False, True), True),
    ("<=>", (None, None), True),
    ("<=>", (None, 1), False),
    ("=", (9007199254740993, 9007199254740992.0), True),
    ("=", (math.nan, math.nan), True),
    (">", (math.nan, math.inf), True),
    ("=", (-0.0, 0.0), True),
    ("in", (1, "1"), True),
    ("in", (1.0, "1"), False),
    ("in", ("01", 1), False),
    ("in", (3, 1, None), None),
    ("in", (1, 1, None), True),
    ("in", (None, 1), None),
    ("between", (5, 9, None), False),
    ("between", (5, 1, None), None),
    ("between", (5, 1, 5), True),
    ("+", (LONG_MAX, 1), LONG_MIN),
    ("+", (2**31 - 1, 1), -(2**31)),
    ("+", (2**31 - 1, 1.0), float(2**31)),
    ("*", (2**62, 2), LONG_MIN),
    ("+", ("1", 1), 2.0),
    ("+", ("x", 1), None),
    ("/", (7, 2), 3.5),
    ("/", (1, 0), None),
    ("/", (0.0, -0.0), None),
    ("%", (-7, 3), -1),
    ("%", (-7.5, 2), -1.5),
    ("%", (7, 0), None),
    ("div", (-7, 2), -3),
    ("div", (LONG_MIN, -1), LONG_MIN),
    ("pmod", (-7, 3), 2),
    ("pmod", (-7, -3), -1),
    ("pmod", (7, -3), 1),
    ("neg", (LONG_MIN,), LONG_MIN),
    ("abs", (LONG_MIN,), LONG_MIN),
    ("like", ("abc", "a%"), True),
    ("like", ("abc", "_b_"), True),
    ("like", ("a\nc", "a_c"), True),
    ("like", ("a%c", "a\\%c"), True),
    ("like", ("abc", "a\\%c"), False),
    ("like", ("abab", "ab%ab"), True),
    ("like", ("aba", "ab%ba"), False),
    ("like", ("xayazb", "%a%a%b"), True),
    ("like", ("a_c", "a/_c", "/"), True),
    ("like", (5, "5"), True),
    ("ilike", ("ABC", "a_C"), True),
    ("rlike", ("xabc", "b.$"), True),
    ("rlike", ("a.c", "a.c"), True),
    ("coalesce", (None, 1, 2), 1),
    ("coalesce", (1.0, "a"), "1.0"),
    ("nullif", (1, "1"), None),
    ("if", (None, 1, 2), 2),
    ("case", (False, 1, True, 2, 3), 2),
    ("case", (False, 1), None),
    ("greatest", (1, 2.5, None), 2.5),
    ("least", (None, None), None),
    ("isnan", (None,), False),
]
CASTS_TO: list[tuple[Constant, str, Value]] = [
    (".5", "INT", 0),
    (".", "INT", 0),
    ("5.", "BIGINT", 5),
    ("-7.9", "BIGINT", -7),
    ("+", "INT", None),
    ("1e3", "INT", None),
    ("9223372036854775808", "BIGINT", None),
    ("1" * 5000, "BIGINT", None),
    ("٣", "INT", None),
    ("1d", "DOUBLE", 1.0),
    (" 1E+5 ", "DOUBLE", 1e5),
    ("1_0", "DOUBLE", None),
    ("-inf", "DOUBLE", "-Infinity"),
    ("Y", "BOOLEAN", True),
    ("nope", "BOOLEAN", None),
    (1e30, "BIGINT", LONG_MAX),
    (1e30, "INT", 2**31 - 1),
    (math.nan, "BIGINT", 0),
    (3_000_000_000, "INT", -1294967296),
    (math.nan, "BOOLEAN", True),
    (1e7, "STRING", "1.0E7"),
    (9999999.0, "STRING", "9999999.0"),
    (0.001, "STRING", "0.001"),
    (1.5e-4, "STRING", "1.5E-4"),
    (-0.0, "STRING", "-0.0"),
    (1.2345678e-10, "STRING", "1.2345678E-10"),
    ("2020-1-2 xx", "DATE", "2020-01-02"),
    ("2020", "DATE", "2020-01-01"),
    ("2020-02-30", "DATE", None),
    ("20200101", "DATE", None),
    ("2020-01-01 10", "TIMESTAMP", "2020-01-01T10:00:00Z"),
    ("2020-01-01T10:30:00.1234567+01:00", "TIMESTAMP", "2020-01-01T09:30:00.123456Z"),
    ("2020-01-01 10:30+01:00", "TIMESTAMP", None),
    ("2020-01-01 24:00:00", "TIMESTAMP", None),
    ("2020-01-01T", "TIMESTAMP", None),
    (-1, "TIMESTAMP", "1969-12-31T23:59:59Z"),
]
FUNCTIONS: list[tuple[str, tuple[Constant, ...], Value]] = [
    ("substring", ("abc", -5, 4), "ab"),
    ("substring", ("abc", 0, 2), "ab"),
    ("substring", ("abc", 2), "bc"),
    ("left", ("abc", -1), ""),
    ("right", ("abc", 5), "abc"),
    ("instr", ("abc", ""), 1),
    ("locate", ("b", "abcb", 3), 4),
    ("locate", ("b", "abc", 0), 0),
    ("locate", ("b", "abc", None), 0),
    ("trim", (" \ta ",), "\ta"),
    ("rtrim", ("c", "abcc"), "ab"),
    ("concat", ("a", 1, True), "a1true"),
    ("concat", ("a", None), None),
    ("replace", ("abc", "", "x"), "abc"),
    ("replace", ("abab", "b"), "aa"),
    ("upper", ("straße",), "STRASSE"),
    ("upper", (True,), "TRUE"),
    ("length", (1.0,), 3),
    ("length", ("😀",), 1),
    ("split", ("a,b,,", ","), ["a", "b", "", ""]),
    ("split", ("abc", ""), ["a", "b", "c"]),
    ("split", ("a1b2c", "[0-9]", 2), ["a", "b2c"]),
    ("regexp_extract", ("100-200", "(\\d+)-(\\d+)", 2), "200"),
    ("regexp_extract", ("abc", "(x)"), ""),
    ("regexp_replace", ("abc", "b*", "-"), "-a--c-"),
    ("regexp_replace", ("2013-01", "(\\d+)-(\\d+)", "$2/$1\\$"), "01/2013$"),
    ("ceil", (-0.5,), 0),
    ("floor", (1e30,), LONG_MAX),
    ("round", (2.5,), 3.0),
    ("round", (-2.5,), -3.0),
    ("round", (2.675, 2), 2.68),
    ("round", (15, -1), 20),
    ("round", (2147483647, -1), -2147483646),
    ("pow", (0, -1), "Infinity"),
    ("pow", (-8, 0.5), "NaN"),
    ("pow", (1, math.nan), "NaN"),
    ("sin", (math.inf,), "NaN"),
    ("sign", (-3,), -1.0),
    ("year", ("2013-01-05",), 2013),
    ("dayofweek", ("2013-01-05",), 7),
    ("weekofyear", ("2013-01-05",), 1),
    ("hour", ("2013-01-05 06:07:08",), 6),
    ("date_add", ("2013-01-31", 1), "2013-02-01"),
    ("datediff", ("2013-02-01", "2013-01-31"), 1),
    ("timestamp_millis", (1500,), "1970-01-01T00:00:01.500000Z"),
    ("get_json_object", ('{"a":[{"b":1},{"b":2}]}', "$.a[1].b"), "2"),
    ("get_json_object", ('{"a":[{"b":1},{"b":2}]}', "$.a[*].b"), "[1,2]"),
    ("get_json_object", ('{"a":"x"}', "$.a"), "x"),
    ("get_json_object", ('{"a":1e5}', "$.a"), "100000.0"),
    ("get_json_object", ("{", "$.a"), None),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), OPERATORS + FUNCTIONS)
def test_a_function(name: str, arguments: tuple[Constant, ...], expected: Value) -> None:
    found = result(call(name, *arguments))
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(("value", "to", "expected"), CASTS_TO)
def test_a_cast(value: Constant, to: str, expected: Value) -> None:
    assert result(Cast(Literal(value), to)) == expected


# What a whole number of a record, BIGINT and not INT, makes another; and what has to be constant.
NARROW = {(">", ("3000000000", 1)), ("+", (2**31 - 1, 1)), ("round", (2147483647, -1))}
CONSTANT = {("like", ("a_c", "a/_c", "/")), ("locate", ("b", "abc", None))}
SAME = [each for each in OPERATORS + FUNCTIONS if each[:2] not in NARROW | CONSTANT]


@pytest.mark.parametrize(("name", "arguments", "expected"), SAME)
def test_the_values_of_a_record_give_the_same(
    name: str, arguments: tuple[Constant, ...], expected: Value
) -> None:
    record = {str(index): value for index, value in enumerate(arguments)}
    assert result(call(name, *(at(each) for each in record)), record) == expected


@pytest.mark.parametrize("name", sorted(unsupported._RARE))
def test_what_is_rare_is_refused_and_belongs_to_a_spark_source(name: str) -> None:
    with pytest.raises(QueryError, match=f"^{name} .* it belongs to a Spark source"):
        result(call(name, at("a")))


@pytest.mark.parametrize("name", ["to_date", "to_timestamp"])
def test_a_pattern_of_dates_is_refused(name: str) -> None:
    with pytest.raises(
        QueryError, match=f"{name} with a pattern is not here; that belongs to a Spark source"
    ):
        result(call(name, "05/01/2013", "dd/MM/yyyy"))


def test_what_is_said_to_be_here_instead_is_here() -> None:
    for hint in unsupported._INSTEAD.values():
        written = hint.replace("[n]", "[1]").replace("separator", "','").replace("pattern", "'x'")
        for name in ("x", "s", "array", "n", "signs", "part", "y", "z"):
            written = re.sub(rf"\b{name}\b", f"value.{name}", written)
        compile_query(sql.read(None, f"{written} AS r"), sql.ROOTS)


def test_arrays_and_objects() -> None:
    record: Value = {"a": [1, None, "x"], "o": {"b": 1}, "n": None}
    assert result(call("size", at("a")), record) == 3
    assert result(call("size", at("n")), record) == -1
    assert result(call("element_at", at("a"), -1), record) == "x"
    assert result(call("element_at", at("o"), "b"), record) == 1
    assert result(call("array_contains", at("a"), 1), record) is True
    assert result(call("array_contains", at("a"), 2), record) is None
    assert result(call("upper", at("a")), record) is None
    assert result(Cast(at("o"), "STRING"), record) == '{"b":1}'
    assert result(call("=", at("a"), at("a")), record) is None
    assert result(call("concat", at("a"), at("a")), record) == [1, None, "x", 1, None, "x"]


def test_a_choice_has_the_type_of_all_its_values() -> None:
    assert result(call("coalesce", at("a"), "none"), {"a": 1}) == "1"
    assert result(call("coalesce", at("a"), at("b")), {"a": 1, "b": 2.5}) == 1.0
    assert result(call("coalesce", at("a"), at("b")), {"a": 1, "b": True}) is None
    assert result(call("if", call("=", at("b"), 1), at("a"), at("b")), {"a": "x", "b": 1}) == "x"


def test_every_function_is_in_the_tables() -> None:
    names = [function.name for functions in modules().values() for function in functions]
    assert len(names) == len(set(names)) == len(registry())
    written = tables()
    for function in registry().values():
        if function.usage:
            assert function.usage.startswith(f"{function.name}(")
            assert f"| `{function.usage}` |" in written
    assert set(CASTS) >= {"BIGINT", "DOUBLE", "STRING"}


def test_a_path_that_only_a_record_can_have_is_not_kept() -> None:
    member = "m" * MAX_TEXT
    text, path = f'{{"{member}":1}}', f"$.{member}"
    kept = json_text._steps.cache_info().currsize
    assert json_text._get_json_object(text, path) == "1"
    assert json_text._steps.cache_info().currsize == kept
