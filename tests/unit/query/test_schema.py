"""Schemas in Spark's DDL, and what they make of decoded values."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kiwi_gw.query import sql
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.schema import Schema
from kiwi_gw.query.sql_compiler import compile_sql
from kiwi_gw.query.tree import Path
from kiwi_gw.query.values.types import BIGINT, DOUBLE, STRING, Type
from tests.processor import least
from tests.unit.query.trying import at, call, kept, result

DDL = (
    "a INT, b: BIGINT, s STRING NOT NULL, t STRUCT<x: DOUBLE, y: ARRAY<INT>>, m MAP<STRING, DATE>,"
    " `odd one` BOOLEAN"
)


def test_a_schema_is_read() -> None:
    fields = dict(Schema.parse(DDL).value.fields)
    assert list(fields) == ["a", "b", "s", "t", "m", "odd one"]
    assert fields["b"] == BIGINT
    assert dict(fields["t"].fields)["x"] == DOUBLE
    assert Schema.parse("string").value == STRING
    assert Schema.parse("ARRAY<DOUBLE>").value == Type("ARRAY", DOUBLE)


def test_the_schema_of_a_source_is_parsed_once_for_all_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []

    def parse(ddl: str) -> Schema:
        parsed.append(ddl)
        return plainly(ddl)

    plainly = Schema.parse
    monkeypatch.setattr(Schema, "parse", staticmethod(parse))
    ddl = ", ".join(f"once_{number} INT" for number in range(50))
    for number in range(50):
        query = sql.read(f"value.once_{number} > 1", None)
        compile_sql(query, members=ddl)
        compile_sql(query, ddl)
    assert parsed == [ddl]


def test_a_member_is_looked_up_without_a_look_at_the_others() -> None:
    class Fields(tuple[tuple[str, Type], ...]):
        walks = 0

        def __iter__(self) -> Iterator[tuple[str, Type]]:
            Fields.walks += 1
            return super().__iter__()

    schema = Schema(Type("OBJECT", None, Fields((f"a{number}", BIGINT) for number in range(5_000))))
    before = Fields.walks
    assert schema.at(Path("value", ("a4999",))) == BIGINT
    assert Fields.walks == before


@pytest.mark.parametrize(
    "ddl",
    [
        "",
        "a",
        "a INT,",
        "a DECIMAL(10,2)",
        "a INT, a INT",
        "a ARRAY<INT",
        "a MAP<INT, INT>",
        "a INT b",
        "a FOO",
    ],
)
def test_what_is_no_schema(ddl: str) -> None:
    with pytest.raises(QueryError, match="the schema"):
        Schema.parse(ddl)


def test_members_of_other_types_are_null_and_the_rest_stays() -> None:
    record = {"a": 2**31, "b": "5", "s": 1.5, "t": {"x": 1, "y": [1, "x"], "z": 3}, "m": {"k": "2013-01-05"}}
    values = [result(at(*path), record, DDL) for path in (("a",), ("b",), ("s",), ("t", "x"), ("m", "k"))]
    assert values == [None, None, "1.5", 1.0, "2013-01-05"]
    assert result(at("t"), record, DDL) == {"x": 1.0, "y": None}
    assert result(at("t", "y", 0), record, DDL) == 1


def test_an_array_that_is_named_twice_may_be_null() -> None:
    """Where a call takes NULL, too."""
    none = call("not", call("isnan", at("a")))
    where = call("and", none, call("and", none, call("<>", call("size", at("a")), 1)))
    assert kept(where, [{"a": None}, {"a": ["x"]}, {"a": []}, {}], "a ARRAY<STRING>") == [0, 2, 3]


def test_types_are_known_before_there_is_a_record() -> None:
    assert kept(call("=", at("s"), 1), [{"s": "1.9"}, {"s": 1}, {"s": "x"}], DDL) == [0, 1]
    assert result(call("+", at("a"), 1), {"a": 2**31 - 1}, DDL) == -(2**31)
    with pytest.raises(QueryError, match="has no 'zz'"):
        result(at("zz"), {}, DDL)
    with pytest.raises(QueryError, match="cannot be compared"):
        result(call("=", at("t"), 1), {}, DDL)


@pytest.mark.cost
def test_a_typo_is_told_the_nearest_member_within_a_bounded_time_and_length() -> None:
    with pytest.raises(QueryError) as wrong:
        Schema.parse("carrier STRING, dep_delay DOUBLE").at(at("dep_dely"))
    assert wrong.value.words == (
        "value has no 'dep_dely' (did you mean dep_delay?): it has carrier, dep_delay"
    )
    many = Schema.parse(", ".join(f"{'a' * 20}{number} INT" for number in range(2_000)))

    def mistake() -> str:
        with pytest.raises(QueryError, match="and 1980 more") as wrong:
            many.at(at("a" * 22))
        return str(wrong.value)

    assert least(mistake, 0.010) < 0.010
    assert len(mistake()) < 1_000
