"""Values in JSON: how they are decoded by a schema, and what of one does not fit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

BROKEN: Final = "_kiwi_broken"
"""The member of a decoded value that has the text of one which did not fit."""

_KEPT: Final = 16_384  # characters of a record: longer ones were cut (`BadRecords.java`)
_MEMBERS: Final = 500  # of a schema that are looked at
_SHOWN: Final = 60  # characters of what a record has there

_Path = tuple[str, ...]
_Narrow = tuple[_Path, DataType]
"""One member that contains no others, and the type of the whole value if it had nothing else."""


def json_value(value: Column, kind: DataType) -> Column:
    """Return the decoded value. What does not fit a struct has its text in the member `BROKEN`."""
    if not isinstance(kind, StructType):
        any_kind: Any = kind  # also a map, which PySpark's types forget
        return F.from_json(value.cast("string"), any_kind, {"mode": "PERMISSIVE"})
    wide = StructType([*kind.fields]).add(BROKEN, "string")
    return F.from_json(
        value.cast("string"), wide, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BROKEN}
    )


def misfit(spark: SparkSession, kind: StructType, text: str) -> str:
    """Return the first member of a schema that a record does not fit, and what it has there instead; empty if
    that is not found. Spark is asked: it alone knows what it takes for a TIMESTAMP."""
    if len(text) >= _KEPT:
        return ""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "it is not JSON"
    if not isinstance(value, dict):
        return "it is not a JSON object"
    members = list(islice(_narrowed(kind), _MEMBERS))
    broken = [json_value(F.lit(text), one).getField(BROKEN).isNotNull() for _, one in members]
    try:
        found = spark.sql("VALUES (1)").select(*broken).head()
    except (PySparkException, Py4JJavaError) as error:  # the query goes on: it is only a word less
        print(f"what does not fit was not found: {error}", flush=True)
        return ""
    first = next((path for (path, _), bad in zip(members, found or (), strict=False) if bad), None)
    return "" if first is None else _told(first, kind, value)


def _narrowed(kind: DataType) -> Iterator[_Narrow]:
    if isinstance(kind, StructType) and kind.fields:
        for field in kind.fields:
            for path, one in _narrowed(field.dataType):
                yield (field.name, *path), StructType([StructField(field.name, one)])
    elif isinstance(kind, ArrayType):
        for path, one in _narrowed(kind.elementType):
            yield ("[]", *path), ArrayType(one)
    elif isinstance(kind, MapType):
        for path, one in _narrowed(kind.valueType):
            yield ("{}", *path), MapType(kind.keyType, one)
    else:
        yield (), kind


def _told(path: _Path, kind: DataType, value: Any) -> str:
    """Say what a record has where the path leads, or as near to it as it goes."""
    told: list[str] = []
    for name in path:
        if not isinstance(kind, StructType) or not isinstance(value, dict) or name not in value:
            break
        told.append(name)
        kind, value = kind[name].dataType, value[name]
    shown = json.dumps(value, ensure_ascii=False)
    cut = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    name = kind.simpleString()
    return f"{'.'.join(told)}: {name if '<' in name else name.upper()}, but the record has {cut}"
