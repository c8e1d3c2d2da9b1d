"""The types of the members of JSON in a topic: as declared, or as its first and last records have them."""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from kiwi_spark.driver.range_inputs import TopicRange, reads, records
from kiwi_spark.protocol.range_query import TopicTable

SAMPLED: Final = 1000
"""Offsets at the beginning of a range, and as many at its end, from which types are inferred: of all
partitions together (one of each where there are more)."""

_LOOKED_AT: Final = 20  # records in which another type is looked for where none is an object
_KEPT: Final = 100  # what was inferred of so many ranges is remembered

_MEMBER: Final = re.compile(r"\.(?:`((?:[^`]|``)+)`|([A-Za-z_]\w*))|\['([^']*)'\]|\[(\d+)\]")
"""As people write it, and as statements of clients are written anew."""
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-f]{4})|U([0-9a-f]{8}))")

_known_lock: Final = threading.Lock()
_known: Final[OrderedDict[object, DataType | None]] = OrderedDict()


def kinds_of(
    spark: SparkSession, table: TopicTable, found: TopicRange, sql: str, cores: int = 0
) -> dict[str, DataType]:
    """Return the types of the columns `value` and `key` that are JSON, where a query reads them. cores: as in
    `records`. Raises what Spark raises."""
    kinds = {}
    for column, form in (("value", table.value), ("key", table.key)):
        if form != "json" or not reads(sql, column):
            continue
        if column == "value" and table.schema:
            kinds[column] = plain(DataType.fromDDL(table.schema))
        else:
            kinds[column] = _remembered(spark, table, found, column, cores) or unread(sql, column)
    return kinds


def plain(kind: DataType) -> DataType:
    """Return the type with the types in it that queries without Spark know."""
    if isinstance(kind, StructType):
        return StructType([StructField(one.name, plain(one.dataType)) for one in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(plain(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, plain(kind.valueType))
    if isinstance(kind, DecimalType | FloatType):
        return DoubleType()
    if isinstance(kind, ByteType | ShortType):
        return IntegerType()
    return kind


def _remembered(
    spark: SparkSession, table: TopicTable, found: TopicRange, column: str, cores: int
) -> DataType | None:
    """Return what was inferred of the same range, or what is now."""
    options = frozenset(table.kafka.items())
    which = (table.topic, column, options, *(tuple(one.items()) for one in (found.begin, found.end)))
    with _known_lock:
        if which in _known:
            _known.move_to_end(which)
            return _known[which]
    kind = _inferred(spark, table, found, column, cores)
    with _known_lock:
        _known[which] = kind
        if len(_known) > _KEPT:
            _known.popitem(last=False)
    return kind


def _inferred(
    spark: SparkSession, table: TopicTable, found: TopicRange, column: str, cores: int
) -> DataType | None:
    """Return the type that fits the objects of a sample, or, without any, its other JSON; None if there is
    none."""
    if not found.begin:
        return None
    each = max(1, SAMPLED // len(found.begin))
    first = TopicRange(found.begin, {p: min(end, found.begin[p] + each) for p, end in found.end.items()})
    last = TopicRange({p: max(begin, found.end[p] - each) for p, begin in found.begin.items()}, found.end)
    texts = (
        records(spark, table, first, cores)
        .union(records(spark, table, last, cores))
        .select(F.col(column).cast("string"))
    )
    java: Any = texts._jdf
    encoder = spark._jvm.org.apache.spark.sql.Encoders.STRING()  # type: ignore[union-attr]
    reader: Any = spark._jsparkSession.read()
    as_texts = getattr(java, "as")(encoder)
    found_type = reader.option("mode", "DROPMALFORMED").json(as_texts).schema().json()
    kind = StructType.fromJson(json.loads(found_type))
    if kind.fields:
        return plain(kind)
    return _no_object(spark, [row[0] for row in texts.limit(_LOOKED_AT).collect()])


def _no_object(spark: SparkSession, texts: list[str | None]) -> DataType | None:
    values = [text for text in texts if text is not None and _is_json(text)]
    if not values:
        return None
    said = F.schema_of_json(F.lit("[" + ",".join(values) + "]"))
    kind = spark.range(1).select(F.from_json(F.lit("[]"), said)).schema[0].dataType
    return plain(kind.elementType) if isinstance(kind, ArrayType) else None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def unread(sql: str, column: str) -> DataType:
    """Return a type for what is nowhere in a range: with the members that the query reads, which are null."""
    root: dict[str | int, Any] = {}
    for path in _paths(sql, column):
        at = root
        for name in path:
            at = at.setdefault(name, {})
    return _nothing(root) if root else StringType()


def _paths(sql: str, column: str) -> Iterator[list[str | int]]:
    for start in re.finditer(rf"(?<![\w`])`?{column}`?(?=[.\[])", sql):
        path: list[str | int] = []
        at = start.end()
        while (member := _MEMBER.match(sql, at)) is not None:
            path.append(_step(member))
            at = member.end()
        yield path


def _step(member: re.Match[str]) -> str | int:
    if member[4] is not None:
        return int(member[4])
    if member[3] is not None:
        return _ESCAPE.sub(lambda found: chr(int(found[1] or found[2], 16)), member[3])
    return (member[1] or member[2]).replace("``", "`")


def _nothing(members: dict[str | int, Any]) -> DataType:
    if not members:
        return NullType()  # which goes where a number, a text or a truth is needed
    names = {name: inside for name, inside in members.items() if isinstance(name, str)}
    if names:
        return StructType([StructField(name, _nothing(inside)) for name, inside in names.items()])
    together: dict[str | int, Any] = {}
    for inside in members.values():
        _merge(together, inside)
    return ArrayType(_nothing(together))


def _merge(into: dict[str | int, Any], more: dict[str | int, Any]) -> None:
    for name, inside in more.items():
        _merge(into.setdefault(name, {}), inside)
