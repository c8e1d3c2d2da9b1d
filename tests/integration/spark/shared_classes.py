"""Spark's classes as a JVM had them once, in a file that those of later tests map into their memory: they
start in half the time.

The file is one of the JVM's (class data sharing): it takes no notice of one that it has not got, or that is
of another JVM or of other jars. Run as a program, with its path, this makes it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from kiwi_spark.java.home import java_home

_FOLDER = Path(__file__).parents[3] / "build"

_SQL = """
SELECT window.start AS since, f.k, n.name, count(*) AS c, avg(f.x) AS mean,
       max(CAST(f.x AS DECIMAL(8, 2))) AS most
FROM f LEFT JOIN n ON f.k = n.k WHERE f.x IS NOT NULL GROUP BY window(f.at, '1 hour'), f.k, n.name
"""


def small_jvm() -> str:
    """Options of a JVM that soon is there and has little to do."""
    return f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {shared_classes()}"


@cache
def shared_classes() -> str:
    """The option with which a JVM takes the file, which is made if it is not there."""
    java = (java_home() / "bin" / "java").resolve()
    archive = _FOLDER / f"spark-{version('pyspark')}-{java.stat().st_mtime_ns:x}.jsa"
    if not archive.exists():
        _FOLDER.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
            made = Path(folder) / "made.jsa"
            done = subprocess.run(  # until the JVM is gone as well, which writes here, too
                [sys.executable, __file__, str(made)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "JAVA_HOME": str(java_home())},
                cwd=folder,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout[-4000:]
            made.touch()  # a JVM without classes of its own makes no such file
            made.replace(archive)
    return f'"-XX:SharedArchiveFile={archive}"' if archive.stat().st_size else ""


def _use_spark(archive: str) -> None:
    """What most queries of tests do: JSON, SQL with state, a table beside it, batches as Arrow."""
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.extraJavaOptions", f'-XX:+UseSerialGC "-XX:ArchiveClassesAtExit={archive}"')
        .getOrCreate()
    )
    Path("in").mkdir()
    rows = [{"k": str(n % 3), "x": n, "at": f"2013-01-01T0{n}:00:00Z"} for n in range(9)]
    Path("in", "rows.json").write_text("\n".join(map(json.dumps, rows)))
    Path("names.csv").write_text("k,name\n0,zero\n1,one\n")
    spark.read.options(header=True).csv("names.csv").createOrReplaceTempView("n")
    stream = spark.readStream.schema("k STRING, x INT, at TIMESTAMP").json("in")
    stream.withWatermark("at", "1 hour").createOrReplaceTempView("f")
    writer = spark.sql(_SQL).writeStream.outputMode("update").option("checkpointLocation", "state")
    writer.foreachBatch(_take).trigger(availableNow=True).start().awaitTermination()
    spark.stop()


def _take(frame: DataFrame, number: int) -> None:
    frame.toArrow()
    frame.toJSON().collect()


if __name__ == "__main__":
    _use_spark(sys.argv[1])
