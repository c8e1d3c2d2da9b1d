"""The demo's two queries, as its configuration has them, on a day of flights in a real Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

from kiwi_demo.flights import Flight, read_flights
from kiwi_demo.gateway import demo_config
from kiwi_demo.pipelines import LATE_MINUTES
from tests.integration.spark.shared_classes import small_jvm

pytestmark = [pytest.mark.integration, pytest.mark.extended]

RUN = """
import json, os, sys
from kiwi_spark.java.home import java_home
os.environ["JAVA_HOME"] = str(java_home())
from pyspark.sql import SparkSession
asked = json.load(sys.stdin)
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.extraJavaOptions", asked["jvm"])
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "1").config("spark.sql.session.timeZone", "UTC").getOrCreate())
path = asked["flights"]
flights = {name: spark.read.schema(schema).json(path) for name, schema in asked["schemas"].items()}
flights["delays-by-carrier"].createOrReplaceTempView("flights")
spark.read.options(header=True).csv(asked["airlines"]).createOrReplaceTempView("airlines")
delays = spark.sql(asked["sql"])
import importlib
module, name = asked["transform"].split(":")
records = flights["late-flights"].selectExpr("*", "current_timestamp() AS _timestamp")
late = getattr(importlib.import_module(module), name)({"flights": records})
print(json.dumps({"delays": [json.loads(row) for row in delays.toJSON().collect()],
    "late": [json.loads(row) for row in late.toJSON().collect()]}))
spark.stop()
"""


def minutes(one: Flight) -> int:
    """How late it left; one that did not leave was not late."""
    delay = one.columns["dep_delay"]
    return delay if isinstance(delay, int) else 0


@pytest.mark.timeout(600)
async def test_they_say_what_the_flights_say(tmp_path: Path) -> None:
    flights = list(takewhile(lambda one: one.columns["day"] == 1, read_flights()))
    assert len(flights) > 800
    (tmp_path / "flights.json").write_bytes(b"\n".join(one.value for one in flights))
    found = await answers(tmp_path / "flights.json")
    assert {
        (row["carrier"], row["until"]): (row["delay"], row["flights"]) for row in found["delays"]
    } == means(flights)
    assert {row["name"] for row in found["delays"] if row["carrier"] == "MQ"} == {"Envoy Air"}
    late = [one for one in flights if minutes(one) >= LATE_MINUTES]
    assert sorted(
        (row["carrier"], row["flight"], row["sched_dep"], row["left_at"]) for row in found["late"]
    ) == (
        sorted(
            (
                one.carrier,
                one.columns["flight"],
                iso(scheduled(one)),
                iso(scheduled(one) + timedelta(minutes=minutes(one))),
            )
            for one in late
        )
    )


async def answers(flights: Path) -> dict[str, Any]:
    config = yaml.safe_load(demo_config().read_text())
    sources = {one["id"]: one for one in config["sources"] if one["type"] == "spark"}
    asked = {
        "jvm": small_jvm(),
        "flights": str(flights),
        "airlines": str(demo_config().with_name("airlines.csv")),
        "schemas": {name: one["inputs"]["flights"]["schema"] for name, one in sources.items()},
        "sql": sources["delays-by-carrier"]["sql"],
        "transform": sources["late-flights"]["transform"],
    }
    ended = await trio.run_process(
        [sys.executable, "-c", RUN],
        stdin=json.dumps(asked).encode(),
        capture_stdout=True,
        stderr=subprocess.STDOUT,
        cwd=flights.parent,  # Spark leaves things there
        check=False,
    )
    said = ended.stdout.decode()
    assert ended.returncode == 0, said
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def means(flights: list[Flight]) -> dict[tuple[str, str], tuple[float | None, int]]:
    """(carrier, end of the hour) -> mean delay to a tenth of a minute, how many left."""
    delays: dict[tuple[str, str], list[int]] = defaultdict(list)
    for one in flights:
        until = scheduled(one).replace(minute=0) + timedelta(hours=1)
        hour = delays[one.carrier, iso(until)]
        if one.columns["dep_delay"] is not None:
            hour.append(int(one.columns["dep_delay"]))
    return {key: (tenth(hour), len(hour)) for key, hour in delays.items()}


def tenth(values: list[int]) -> float | None:
    """The mean, rounded half away from zero as Spark does."""
    if not values:
        return None
    mean = sum(values) / len(values)
    return float(f"{int(abs(mean) * 10 + 0.5) / 10 * (1 if mean >= 0 else -1):.1f}")


def scheduled(flight: Flight) -> datetime:
    return datetime.fromisoformat(str(flight.columns["sched_dep"]))


def iso(moment: datetime) -> str:
    """As Spark's to_json writes it by default."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")
