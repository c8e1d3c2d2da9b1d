"""Plain PySpark, without anything of the gateway: evaluates columns over records.

Reads from stdin, as JSON, `{"conf", "tables": {name: {"read": SQL of the column `value` over the text `json`,
"records": [JSON text], "columns": [SQL]}}, "file"}`; writes to `file`, as JSON, for each table a list with
one object per column: `{"type", "values"}`, a value for each record; `{"rejected": message}` if it was not
analysed; `{"failed": message}` if it was not evaluated.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kiwi_spark.driver.json_types import as_json

_AT_ONCE = 100


def main() -> None:
    task = json.load(sys.stdin)
    builder = SparkSession.builder.master("local[1]")
    for name, value in task["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    answers = {name: _table(spark, name, table) for name, table in task["tables"].items()}
    with open(task["file"], "w", encoding="utf-8") as file:
        json.dump(answers, file)
    spark.stop()


def _table(spark: SparkSession, name: str, table: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = ", ".join(f"({number}, {_literal(text)})" for number, text in enumerate(table["records"]))
    read = f"SELECT n, {table['read']} AS value FROM VALUES {rows} AS given(n, json)"  # noqa: S608
    spark.sql(read).createOrReplaceTempView(name)
    columns = table["columns"]
    found: dict[int, Mapping[str, Any]] = {}
    good: list[int] = []
    for start in range(0, len(columns), _AT_ONCE):
        some = range(start, min(start + _AT_ONCE, len(columns)))
        good.extend(_analysed(spark, name, {number: columns[number] for number in some}, found))
    for start in range(0, len(good), _AT_ONCE):
        numbers = good[start : start + _AT_ONCE]
        found.update(zip(numbers, _answers(spark, name, [columns[one] for one in numbers]), strict=True))
    return [found[number] for number in range(len(columns))]


def _analysed(
    spark: SparkSession, name: str, columns: Mapping[int, str], found: dict[int, Mapping[str, Any]]
) -> list[int]:
    """The numbers of the columns that Spark's analyser takes; what it says of the others goes to `found`."""
    try:
        _frame(spark, name, list(columns.values()))
    except Exception as error:  # noqa: BLE001  (also errors that it calls internal)
        if len(columns) == 1:
            found.update(dict.fromkeys(columns, _failure("rejected", error)))
            return []
        return [
            one for number, text in columns.items() for one in _analysed(spark, name, {number: text}, found)
        ]
    return list(columns)


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _answers(spark: SparkSession, name: str, columns: Sequence[str]) -> list[Mapping[str, Any]]:
    """All at once if that is possible, else half by half: one bad column fails all others."""
    frame = _frame(spark, name, columns)
    try:
        rows = [json.loads(row.value) for row in as_json(frame, ()).collect()]
    except Exception as error:  # noqa: BLE001  (whatever Java throws out of one expression)
        if len(columns) == 1:
            return [_failure("failed", error)]
        middle = len(columns) // 2
        return _answers(spark, name, columns[:middle]) + _answers(spark, name, columns[middle:])
    rows.sort(key=lambda row: row["n"])
    types = [field.dataType.simpleString() for field in frame.schema.fields]
    return [
        {"type": types[1 + number], "values": [row[f"c{number}"] for row in rows]}
        for number in range(len(columns))
    ]


def _failure(what: str, error: Exception) -> Mapping[str, Any]:
    return {what: str(error).strip().split("\n")[0][:300]}


def _frame(spark: SparkSession, name: str, columns: Sequence[str]) -> DataFrame:
    selected = ", ".join(f"{column} AS c{number}" for number, column in enumerate(columns))
    return spark.sql(f"SELECT n, {selected} FROM {name}")  # noqa: S608


if __name__ == "__main__":
    main()
