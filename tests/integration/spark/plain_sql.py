"""Plain PySpark, without anything of the gateway: answers SQL over topics as they are now.

Reads from stdin, as JSON, `{"conf", "bootstrap", "folder", "queries": [{"id", "sql", "topics": {view: [topic,
schema]}, "tables": {view: path}}]}`; writes the answer of every query to `{folder}/{id}.arrow`.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812


def _records(spark: SparkSession, bootstrap: str, topic: str, schema: str) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    value = F.from_json(F.col("value").cast("string"), schema)
    place = [F.col(name).alias(f"_{name}") for name in ("key", "partition", "offset", "timestamp")]
    return (
        reader.option("subscribe", topic)
        .load()
        .select(value.alias("v"), *place)
        .select("v.*", *(f"_{name}" for name in ("key", "partition", "offset", "timestamp")))
    )


def main() -> None:
    task = json.load(sys.stdin)
    builder = SparkSession.builder.master("local[2]")
    for name, value in task["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    known: dict[str, DataFrame] = {}
    for query in task["queries"]:
        for view, (topic, schema) in query["topics"].items():
            if topic not in known:  # every one is read and parsed once
                known[topic] = _records(spark, task["bootstrap"], topic, schema).persist()
            known[topic].createOrReplaceTempView(view)
        for view, path in query["tables"].items():
            spark.read.csv(path, header=True).createOrReplaceTempView(view)
        answer = spark.sql(query["sql"]).toArrow()
        with (
            pa.OSFile(f"{task['folder']}/{query['id']}.arrow", "wb") as file,
            pa.ipc.new_file(file, answer.schema) as out,
        ):
            out.write_table(answer)
    spark.stop()


if __name__ == "__main__":
    main()
