"""Five queries over the flights of 2013 through Kafka, Spark, the gateway and a WebSocket, and what plain
Spark SQL answers to the same question over the same topics: those of four months, and in `make bench` all."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pytest
import trio

from kiwi_demo.broker import Broker
from kiwi_spark.java.connector import connector_conf
from kiwi_spark.java.home import java_home
from tests.integration.gateway import gateway, kafka_config
from tests.integration.spark import late_model
from tests.integration.spark.late_model import HOUR, Logged, Modelled, logged
from tests.integration.spark.whole_result import Result, read_all, texts_of
from tests.integration.spark.whole_year import ARRIVALS_SCHEMA, FLIGHTS_SCHEMA, Year, fill
from tests.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(900)]

SCHEMAS: Final = {"flights": FLIGHTS_SCHEMA, "arrivals": ARRIVALS_SCHEMA}
AIRLINES = Path(__file__).parents[3] / "config" / "airlines.csv"
TIMES = {"flights": "sched_dep", "arrivals": "arrived"}

FLOWN: Final = {4: 109_119, 12: 336_776}
"""Flights in so many months."""

PATIENCE = 600
"""Seconds until all is there; on two cores it takes a tenth of it."""

CONF = {
    "spark.driver.memory": "1500m",
    "spark.sql.shuffle.partitions": "2",
}

LATE = "SELECT * FROM flights WHERE dep_delay > 30"
LEGS = """
SELECT carrier, flight, named_struct('from', origin, 'to', dest) AS leg, make_date(year, month, day) AS date,
       CAST(dep_delay AS DECIMAL(8, 2)) / 60 AS hours, distance / air_time AS speed,
       array(dep_time, arr_time) AS times, timestampadd(MINUTE, dep_delay, sched_dep) AS left_at
FROM flights
"""
NAMED = """
SELECT f.carrier, a.name, f.flight, f.tailnum, f.sched_dep
FROM flights f JOIN airlines a ON f.carrier = a.carrier
"""
DELAYS = """
SELECT window.start AS since, window.end AS until, carrier, count(*) AS flights, sum(dep_delay) AS total,
       avg(dep_delay) AS mean, max(dep_delay) AS worst
FROM flights GROUP BY window(sched_dep, '1 hour'), carrier
"""
LANDINGS = """
SELECT d.carrier, d.flight, d.tailnum, d.origin, a.dest, d.sched_dep, a.arrived, a.arr_delay
FROM flights d JOIN arrivals a
  ON d.carrier = a.carrier AND d.flight = a.flight AND d.origin = a.origin
 AND make_date(d.year, d.month, d.day) = a.date
 AND a.arrived >= d.sched_dep - INTERVAL 1 HOUR AND a.arrived <= d.sched_dep + INTERVAL 12 HOURS
"""


def topic_of(name: str, months: int) -> str:
    return f"{name}-of-{months}-months"


@dataclass(frozen=True, slots=True)
class Asked:
    """A query. delay: of the watermark of each of its streams, empty without one. at_once: most records of
    each of its topics in one micro-batch; 0: six of them have all."""

    id: str
    sql: str
    inputs: Sequence[str] = ("flights",)
    delay: str = ""
    mode: str = "append"
    key: Sequence[str] = ()
    at_once: int = 0

    def source(self, months: int) -> Mapping[str, Any]:
        inputs: dict[str, Any] = {}
        for name in self.inputs:
            if name in SCHEMAS:
                topic = {"source": topic_of(name, months), "schema": SCHEMAS[name], "start": "earliest"}
                inputs[name] = topic | {"max_offsets": self.at_once or 5_000 * months}
            else:
                inputs[name] = {"format": "csv", "path": str(AIRLINES), "options": {"header": True}}
        marks = {name: {"column": TIMES[name], "delay": self.delay} for name in self.inputs if self.delay}
        return {
            "type": "spark",
            "id": self.id,
            "inputs": inputs,
            "watermarks": marks,
            "sql": self.sql,
            "output_mode": self.mode,
            "key": list(self.key),
            "trigger": "available_now",  # so that there is an end to wait for
        }

    def plain(self, months: int) -> Mapping[str, Any]:
        topics = {name: (topic_of(name, months), SCHEMAS[name]) for name in self.inputs if name in SCHEMAS}
        tables = {name: str(AIRLINES) for name in self.inputs if name not in SCHEMAS}
        return {"id": self.id, "sql": self.sql, "topics": topics, "tables": tables}


EQUAL = (
    Asked("late", LATE, key=["_partition", "_offset"]),
    Asked("legs", LEGS),
    Asked("named", NAMED, ("flights", "airlines"), key=["carrier"]),
    Asked("delays", DELAYS, delay="30 days", mode="update", key=["until", "carrier"]),
    Asked("landings", LANDINGS, ("flights", "arrivals"), delay="30 days"),
)
# A batch is 20 days: to come too late, a record must be older than the batch before the one it is in.
STRICT = (
    Asked("delays-strict", DELAYS, delay="1 hour", mode="update", key=["until", "carrier"], at_once=18_000),
    Asked("delays-final", DELAYS, delay="1 hour", mode="append", key=["until", "carrier"], at_once=18_000),
)
BY_ID = {one.id: one for one in (*EQUAL, *STRICT)}


@dataclass(slots=True)
class Everything:
    """year: what was produced, of so many months. results, batches: by query. plain: where plain Spark's
    answers are. seconds: what took how long."""

    months: int
    year: Year
    plain: Path
    results: dict[str, Result] = field(default_factory=dict)
    batches: dict[str, list[Logged]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


@pytest.fixture(scope="module", params=[4, pytest.param(12, marks=pytest.mark.long)])
def everything(
    request: pytest.FixtureRequest, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Everything:
    """The topics filled, all queries run to their ends side by side in one gateway, and then asked again of
    plain Spark."""
    return trio.run(_everything, request.param, broker, tmp_path_factory.mktemp("equals"))


async def _everything(months: int, broker: Broker, folder: Path) -> Everything:
    begun = time.monotonic()
    topics = [topic_of(name, months) for name in SCHEMAS]
    year = await fill(Topics(broker.bootstrap), broker.bootstrap, *topics, months=months)
    done = Everything(months, year, folder)
    filled = time.monotonic()
    await _stream(broker, folder, done)
    streamed = time.monotonic()
    await _ask_plain_spark(broker, folder, months)
    done.seconds = {
        "topics filled": filled - begun,
        "streamed": streamed - filled,
        "asked of plain Spark": time.monotonic() - streamed,
    }
    return done


async def _stream(broker: Broker, folder: Path, done: Everything) -> None:
    config = kafka_config(
        broker.bootstrap,
        topic_of("flights", done.months),
        spark={
            "master": "local[2]",
            "checkpoint_dir": str(folder / "state"),
            "conf": CONF,
            "nice": 0,
        },
        subscriber={"allow": ["block"], "overflow": "block", "subscribe_timeout_ms": "200s"},
        sources=[
            *({"type": "kafka", "topic": topic_of(name, done.months)} for name in SCHEMAS),
            *(one.source(done.months) for one in BY_ID.values()),
        ],
    )

    async with gateway(folder, config) as running:
        with trio.move_on_after(PATIENCE) as scope:
            async with trio.open_nursery() as nursery:
                for source in BY_ID:
                    nursery.start_soon(_read, done, running.address, source)
        assert not scope.cancelled_caught, running.tail()
        assert not [line for line in running.log if line["event"] == "records could not be decoded"]
    for source in BY_ID:
        done.batches[source] = logged(folder / "state" / source / "0")


async def _read(done: Everything, address: str, source: str) -> None:
    done.results[source] = await read_all(address, source)


async def _ask_plain_spark(broker: Broker, folder: Path, months: int) -> None:
    conf = {
        **connector_conf(),
        **CONF,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
    }
    task = {
        "conf": conf,
        "bootstrap": broker.bootstrap,
        "folder": str(folder),
        "queries": [one.plain(months) for one in EQUAL],
    }
    with trio.fail_after(PATIENCE):
        await trio.run_process(
            [sys.executable, str(Path(__file__).with_name("plain_sql.py"))],
            cwd=folder,
            stdin=json.dumps(task).encode(),
            env={**os.environ, "JAVA_HOME": str(java_home())},
        )


def _whole(everything: Everything, asked: Asked) -> Result:
    """The result of a query: complete from its first row to the end of the source, over enough batches."""
    result, batches = everything.results[asked.id], everything.batches[asked.id]
    assert (result.begins, result.reason) == ({"batch": 0, "row": 0}, "ended")
    # A batch may have more rows than a client is told nothing of; but nothing was given up.
    assert [notice for notice in result.notices if notice["data"].get("dropped") != 0] == []
    assert result.holes == []
    with_input = [now for before, now in pairwise([None, *(one.ends for one in batches)]) if now != before]
    assert len(with_input) > 5
    assert set(result.batches) <= set(range(len(batches)))
    return result


def _difference(found: Counter[Any], expected: Counter[Any]) -> str:
    """What is not the same in two multisets, in a few words: they have a million rows."""
    missing, more = expected - found, found - expected
    if not missing and not more:
        return ""
    return (
        f"{missing.total()} of {expected.total()} rows are missing, as {list(missing)[:3]}, and "
        f"{more.total()} of {found.total()} are not expected, as {list(more)[:3]}"
    )


@pytest.mark.parametrize("asked", EQUAL, ids=lambda one: one.id)
def test_rows_are_those_of_plain_sql(
    everything: Everything, asked: Asked, figure: Callable[[str, object], None]
) -> None:
    result = _whole(everything, asked)
    with pa.memory_map(str(everything.plain / f"{asked.id}.arrow")) as file:
        expected = Counter(texts_of(pa.ipc.open_file(file).read_all(), asked.key))
    found = result.texts
    if asked.mode == "update":
        found = _last_of_every_key(found)
        assert expected.total() == len(_last_of_every_key(expected))  # one row of each
    assert _difference(Counter(found), expected) == ""
    if asked.sql in (LEGS, NAMED):
        assert (
            expected.total() == sum(len(part) for part in everything.year.flights) == FLOWN[everything.months]
        )
    figure(f"{asked.id}, rows and batches", (len(result.texts), len(everything.batches[asked.id])))
    for what, seconds in everything.seconds.items():
        figure(f"{everything.months} months, {what}", f"{seconds:.1f} s")


def _last_of_every_key(texts: Iterable[bytes]) -> list[bytes]:
    last: dict[bytes, bytes] = {}
    key_of = msgspec.json.Decoder(tuple[msgspec.Raw, msgspec.Raw]).decode
    for text in texts:
        last[bytes(key_of(text)[0])] = text
    return list(last.values())


@pytest.mark.parametrize("asked", STRICT, ids=lambda one: one.id)
def test_late_rows_are_dropped_as_the_model_does(
    everything: Everything, asked: Asked, figure: Callable[[str, object], None]
) -> None:
    result = _whole(everything, asked)
    model = _modelled(everything, asked)
    assert model.dropped > 0
    assert _difference(Counter(zip(result.batches, result.texts, strict=True)), model.rows) == ""
    figure(f"{asked.id}, rows sent and late", (len(result.texts), model.dropped))


def _modelled(everything: Everything, asked: Asked) -> Modelled:
    topic = topic_of("flights", everything.months)
    steps = late_model.steps(everything.batches[asked.id], {topic: everything.year.flights}, HOUR)
    return late_model.delays(steps, topic, append=asked.mode == "append")
