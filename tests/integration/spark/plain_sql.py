"""Plain PySpark, without anything of the gateway: answers SQL over topics as they are now.

Reads from stdin, as JSON, `{"conf", "bootstrap", "folder", "queries": [{"id", "sql", "topics": {view: [topic,
schema]}, "tables": {view: path}}]}`; writes the answer of every query to `{folder}/{id}.arrow`.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812


def main() -> None:
    task = json.load(sys.stdin)
    builder = SparkSession.builder.master("local[2]")
    for name, value in task["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for query in task["queries"]:
        for view, (topic, schema) in query["topics"].items():
            records = (
                spark.read.format("kafka")
                .option("kafka.bootstrap.servers", task["bootstrap"])
                .option("subscribe", topic)
                .load()
            )
            value = F.from_json(F.col("value").cast("string"), schema)
            place = [F.col(name).alias(f"_{name}") for name in ("key", "partition", "offset", "timestamp")]
            records.select(value.alias("v"), *place).select(
                "v.*", *(f"_{name}" for name in ("key", "partition", "offset", "timestamp"))
            ).createOrReplaceTempView(view)
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
