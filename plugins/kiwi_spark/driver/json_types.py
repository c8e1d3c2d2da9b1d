"""The JSON form of every Spark SQL type, made by Spark itself for a whole batch at once.

| Spark SQL type | JSON | example |
|---|---|---|
| BOOLEAN | true or false | `true` |
| TINYINT, SMALLINT, INT, BIGINT | a number, never rounded (BIGINT may pass 2^53) | `9007199254740993` |
| FLOAT, DOUBLE | a number, or the string NaN, Infinity or -Infinity | `0.1`, `"NaN"` |
| DECIMAL(p,s) | a string with all s digits, never with an exponent | `"1.50"` |
| STRING, CHAR(n), VARCHAR(n) | a string | `"x"` |
| BINARY | a string: base64 (RFC 4648, section 4, padded, in one line) | `"AP8="` |
| DATE | a string: ISO 8601 | `"2020-01-02"` |
| TIMESTAMP | a string: ISO 8601 in UTC with microseconds and `Z` | `"2020-01-02T03:04:05.123456Z"` |
| TIMESTAMP_NTZ | the same without `Z` | `"2020-01-02T03:04:05.123456"` |
| INTERVAL of days to seconds | a string: Spark's SQL literal | `"INTERVAL '1 02:03:04.5' DAY TO SECOND"` |
| INTERVAL of years to months | a string: Spark's SQL literal | `"INTERVAL '1-2' YEAR TO MONTH"` |
| INTERVAL (calendar) | a string: Spark's text | `"1 years 2 months 25 days"` |
| STRUCT | an object; fields that are null are there | `{"x":1,"y":null}` |
| ARRAY | an array | `[1,null]` |
| MAP | an object; a key is the text of its form (of a struct, array or map: its JSON) | `{"2020-01-02":1}` |
| VARIANT | the JSON that it is, as Spark writes it | `{"a":[1,2.5]}` |
| VOID | null | `null` |

A null of any type is null. This is what `to_json` writes with the options below, but for two things that are
rewritten before it, wherever they are nested: decimals, which it writes as numbers (`0E-18`), and keys of
maps, which it writes as what they are inside Spark (a date as a number of days, a binary as an address).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
    VariantType,
)

from kiwi_spark.driver.error_classification import QueryError

OPTIONS: Final = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "dateFormat": "yyyy-MM-dd",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Of `to_json`. It writes floats, binaries, dates, intervals and variants as documented by itself."""


_PLAIN: Final = frozenset({"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE"})
"""Types whose JSON is no string, under one name here and in the gateway."""

_DEEP: Final = 20
"""Members in members that are described."""


def as_json(frame: DataFrame, key: Sequence[str], *, apart: bool = False) -> DataFrame:
    """Make two columns, `key` and `value`: the rows as JSON text. `key` names columns; without any it is
    null. apart: whether these columns are left out of the value.

    Raises `QueryError`: two columns have one name, or a key is none of them.
    """
    names = frame.columns
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise QueryError(
            "query",
            f"{len(twice)} names are borne by more than one column: {', '.join(twice)}; rename them with AS",
        )
    missing = [name for name in key if name not in names]
    if missing:
        raise QueryError(
            "query", f"the key {', '.join(missing)} is no column of the result ({', '.join(names)})"
        )
    plain = frame.toDF(*(f"c{number}" for number in range(len(names))))  # names may have dots
    with _ansi(frame.sparkSession):
        forms = {
            field.name: _form(plain[f"c{number}"], field.dataType).alias(field.name)
            for number, field in enumerate(frame.schema.fields)
        }
        kept = [form for name, form in forms.items() if not (apart and name in key)]
        value = F.to_json(F.struct(*kept), OPTIONS) if kept else F.lit("{}")
        text = F.to_json(F.struct(*(forms[name] for name in key)), OPTIONS) if key else F.lit(None)
        return plain.select(text.cast("string").alias("key"), value.alias("value"))


def members_of(kind: StructType, depth: int = 0) -> str:
    """Describe the members of an object's JSON in the DDL of the gateway; empty where that has no words for
    them. depth: members in members around it."""
    names = [field.name for field in kind.fields]
    if len(set(names)) < len(names) or any(not name or "`" in name for name in names):
        return ""
    return ", ".join(f"`{field.name}` {_member(field.dataType, depth + 1)}" for field in kind.fields)


def _member(kind: DataType, depth: int) -> str:
    if depth == _DEEP:
        return "VARIANT"
    if isinstance(kind, StructType):
        inside = members_of(kind, depth)
        return f"STRUCT<{inside}>" if inside else "VARIANT"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{_member(kind.elementType, depth + 1)}>"
    if isinstance(kind, MapType):
        return f"MAP<STRING, {_member(kind.valueType, depth + 1)}>"
    if isinstance(kind, VariantType | NullType | UserDefinedType):
        return "VARIANT"
    name = kind.simpleString().upper()
    return name if name in _PLAIN else "STRING"


def _form(column: Column, kind: DataType) -> Column:
    """Make strings of what `to_json` would not write as documented."""
    if not _is_rewritten(kind):
        return column
    if isinstance(kind, DecimalType):
        return column.cast("string")
    if isinstance(kind, ArrayType):
        item = kind.elementType
        return F.transform(column, lambda one: _form(one, item))
    if isinstance(kind, MapType):
        return _map(column, kind)
    assert isinstance(kind, StructType)  # noqa: S101  (what `_is_rewritten` says)
    fields = [_form(column.getField(one.name), one.dataType).alias(one.name) for one in kind.fields]
    return F.when(column.isNotNull(), F.struct(*fields))


def _map(column: Column, kind: MapType) -> Column:
    if not isinstance(kind.keyType, StringType):
        column = F.transform_keys(column, lambda key, _: _key(key, kind.keyType))
    if _is_rewritten(kind.valueType):
        column = F.transform_values(column, lambda _, value: _form(value, kind.valueType))
    return column


def _key(column: Column, kind: DataType) -> Column:
    """Make the text that a key of a map becomes."""
    if isinstance(kind, StructType | ArrayType | MapType | VariantType):
        return F.to_json(_form(column, kind), OPTIONS)
    if isinstance(kind, BinaryType | DateType | TimestampType | TimestampNTZType):
        return F.get_json_object(F.to_json(F.struct(column.alias("k")), OPTIONS), "$.k")
    return column.cast("string")


@contextmanager
def _ansi(spark: SparkSession) -> Iterator[None]:
    """Switch ANSI mode on: only there a decimal is cast to all its digits, else it may be `1E-18`."""
    name = "spark.sql.ansi.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, "true")
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


def _is_rewritten(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _is_rewritten(kind.elementType)
    if isinstance(kind, MapType):
        return not isinstance(kind.keyType, StringType) or _is_rewritten(kind.valueType)
    if isinstance(kind, StructType):
        return any(_is_rewritten(field.dataType) for field in kind.fields)
    return isinstance(kind, DecimalType)
