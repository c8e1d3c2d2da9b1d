"""What a Spark source costs beside the same query in plain PySpark, and what it costs others. (How soon its
rows are there: `spark_delays`.)"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import trio

from benchmarks import spark
from benchmarks.errors import RunFailed, RunVoid
from benchmarks.lab import Lab
from benchmarks.run import Run
from benchmarks.scenario import Figures, Goal, Measure, Scenario
from benchmarks.serving import CONFIG, START_SECONDS, first_health, sources
from benchmarks.sizes import Sizes
from benchmarks.spark_queries import ALL, BUSY, FILTER, WINDOW, SparkQuery
from kiwi_demo.gateway import healthy
from kiwi_demo.process import Child, tail

_JSON_REPEAT = 10
_POLL = 0.002


def beside_plain(query: SparkQuery) -> Measure:
    """Measure records per second of a filled topic: in plain PySpark, then through the gateway."""

    async def measure(lab: Lab, sizes: Sizes) -> Figures:
        async with spark.filled(lab, sizes) as topic:
            plain = await spark.in_plain_spark(lab, query, topic, sizes)
            ours = await spark.through_gateway(lab, query, topic, sizes)
        each = 1e6 / ours.run.records
        return {
            "of plain": ours.run.records_rate / plain.records_rate,
            "cpu of Spark, of plain": ours.spark / max(plain.cpu["server"], 0.01),
            "records": ours.run.records_rate,
            "records of plain": plain.records_rate,
            "cpu of Spark per record": ours.spark * each,
            "cpu of the gateway per record": ours.gateway * each,
            "cpu per record of plain": 1e6 / plain.records_per_cpu,
        }

    return measure


async def delivery(lab: Lab, sizes: Sizes) -> Figures:
    """Measure from the end of a batch's computation, which its rows carry, to the receive of each row."""
    async with spark.filled(lab, sizes) as topic:
        found = (await spark.through_gateway(lab, ALL, topic, sizes)).result
    delays = found["delivery"]
    return {"p50": delays["p50"], "p99": delays["p99"], "longest": delays["max"], "batches": found["batches"]}


async def json_of_batches(lab: Lab, sizes: Sizes) -> Figures:
    """Measure JSON alone, in Spark; then large batches of it through the gateway, whose loop is watched."""
    lab.note.say("  JSON in Spark")
    rows = sizes.per_batch
    async with spark.plain_spark(lab) as worker:
        await worker.tell(json.dumps({"do": "json", "rows": rows, "repeat": _JSON_REPEAT}))
        seconds = await worker.hear("json", spark.SPARK_SECONDS)
    lab.note.line({"json_rows": rows, "json_seconds": seconds})
    # The best of each: what else the machine did is not JSON's.
    took = {name: min(values) for name, values in seconds.items()}
    async with spark.filled(lab, sizes) as topic:
        held = (await spark.through_gateway(lab, ALL, topic, sizes)).held
    return {
        "JSON": rows / max(1e-4, took["texts"] - took["columns"]),
        "JSON, with all else of a batch": rows / took["texts"],
        "taken apart by the gateway": rows / took["pieces"],
        "loop held": held["held"][0],
        "loop held, computing": held["computed"][0],
    }


async def beside(lab: Lab, sizes: Sizes) -> Figures:
    """Measure a topic and its subscribers, in a gateway without Spark, and in one whose Spark is busy
    meanwhile with another topic."""
    without = (await _alone(lab, sizes)).delays["p99"]
    with_spark = (await _while_busy(lab, sizes)).delays["p99"]
    return {
        "p99 beside / without": with_spark / max(without, 0.01),
        "p99 beside it": with_spark,
        "p99 without": without,
    }


async def _alone(lab: Lab, sizes: Sizes) -> Run:
    lab.note.say("  gateway without Spark")
    async with lab.topics(sizes) as (topic,), spark.serving(lab, spark.kafka_source(topic)) as watched:
        async with (
            lab.load(sizes, watched.server, [topic]) as load,
            lab.producer(sizes, [topic]) as producer,
        ):
            one = await lab.measure(sizes, load, producer, watched.server.pid)
        return lab.checked("gateway", sizes, one, spark=False)


async def _while_busy(lab: Lab, sizes: Sizes) -> Run:
    lab.note.say("  gateway with a busy Spark")
    work = replace(sizes, rate=0, warm=sizes.per_batch)
    async with spark.filled(lab, work) as other, lab.topics(sizes) as (topic,):
        wanted = spark.kafka_source(topic), spark.kafka_source(other), spark.source_of(BUSY, other, work)
        async with (
            spark.serving(lab, *wanted) as watched,
            spark.reader(lab, watched, BUSY, other, work) as watcher,
            lab.load(sizes, watched.server, [topic]) as load,
            lab.producer(sizes, [topic]) as producer,
        ):
            await watcher.hear("ready", spark.SPARK_SECONDS)
            await watcher.hear("warm", spark.SPARK_SECONDS)
            one = await lab.measure(sizes, load, producer, watched.server.pid)
            await watcher.tell("stop")
            done = await watcher.hear("done", START_SECONDS)
            if done["all"]:
                raise RunVoid("Spark had no more to do before the end")
            result = await watcher.hear("result", START_SECONDS)
    rows = {"rows": result["events"], "batches": result["batches"]}
    one.faults.extend(result["faults"])
    return lab.checked("gateway", sizes, one, spark=rows)


async def health(lab: Lab, sizes: Sizes) -> Figures:
    """Measure from the start of the process to the first answer of `/health`, with and without a Spark
    source, in turn; then, with it, every answer until Spark runs."""
    lab.note.say("  gateway")
    times: dict[bool, list[float]] = {False: [], True: []}
    slowest = until = 0.0
    async with lab.topics(sizes) as (topic,):
        for number in range(2 * sizes.records):
            with_spark = number % 2 == 1
            last = number == 2 * sizes.records - 1
            first, slow, ready = await _started(lab, topic, sizes, with_spark=with_spark, wait=last)
            times[with_spark].append(first)
            if last:
                slowest, until = slow, ready
    seconds = sum(times[True])
    run = Run(len(times[True]), sizes.records, seconds, {}, [], {}, 0.0, 0.0)
    lab.checked("gateway", sizes, run, first_health={"with": times[True], "without": times[False]})
    with_it, without = statistics.median(times[True]), statistics.median(times[False])
    return {
        "first /health, with / without": with_it / without,
        "first /health": with_it * 1000,
        "first /health without": without * 1000,
        "slowest /health until Spark runs": slowest * 1000,
        "Spark runs after": until,
    }


async def _started(
    lab: Lab, topic: str, sizes: Sizes, *, with_spark: bool, wait: bool
) -> tuple[float, float, float]:
    """Return the seconds until the first answer, of the slowest one, and until Spark runs (if awaited)."""
    folder = lab.new_folder()
    wanted = [spark.kafka_source(topic)]
    if with_spark:
        wanted.append(spark.source_of(ALL, topic, sizes))
    log, config = folder / "gateway.log", folder / CONFIG
    config.write_text(json.dumps(spark.settings(lab, folder, wanted)))
    begun = time.monotonic()
    child = await Child.start([sys.executable, "-m", "kiwi_gw", "run", "--config", str(config)], log)
    try:
        port = await first_health(child, log)
        first, slowest = time.monotonic() - begun, 0.0
        while wait and set((await trio.to_thread.run_sync(sources, port))[1].values()) != {"running"}:
            asked = time.monotonic()
            if not await healthy(port, 5.0):
                raise RunVoid("/health was not answered while Spark started")
            slowest = max(slowest, time.monotonic() - asked)
            await _still(child, log, begun)
        return first, slowest, time.monotonic() - begun
    finally:
        await child.end(START_SECONDS)


async def _still(child: Child, log: Path, begun: float) -> None:
    if child.returncode is not None or time.monotonic() - begun > spark.SPARK_SECONDS:
        raise RunFailed(f"the gateway is not there, or not ready; {log}:{tail(log)}")
    await trio.sleep(_POLL)


_SMALL = {"records": 4_000, "warm": 2_000, "per_batch": 2_000}


def _beside_plain(
    name: str, says: str, query: SparkQuery, *, least: float, cpu: float | None = None
) -> Scenario:
    """Make a scenario. least: of what plain PySpark reaches. cpu: most of its processor time, times."""
    return Scenario(
        name=name,
        says=says,
        measure=beside_plain(query),
        sizes=Sizes(subscribers=1, records=1_000_000, warm=500_000),
        goals=(
            Goal("of plain", "%", at_least=least),
            Goal("cpu of Spark, of plain", "x", at_most=cpu),
            Goal("records", "/s"),
            Goal("records of plain", "/s"),
            Goal("cpu of Spark per record", "us"),
            Goal("cpu of the gateway per record", "us"),
            Goal("cpu per record of plain", "us"),
        ),
        small=_SMALL,
    )


SCENARIOS = (
    _beside_plain(
        "spark-filter",
        "a Spark source whose filter passes 10 %, batches of 100,000 records, beside plain PySpark",
        FILTER,
        least=0.95,
        cpu=1.1,
    ),
    _beside_plain("spark-all", "a Spark source that passes everything, as `spark-filter`", ALL, least=0.65),
    _beside_plain(
        "spark-window",
        "a Spark source that counts by windows of time and a column, as `spark-filter`",
        WINDOW,
        least=0.9,
    ),
    Scenario(
        name="spark-delivery",
        says="from the end of a batch of 1,000 rows in Spark to their bytes at a client",
        measure=delivery,
        sizes=Sizes(subscribers=1, records=80_000, warm=20_000, per_batch=1_000),
        goals=(
            Goal("p50", "ms"),
            Goal("p99", "ms", at_most=30.0),
            Goal("longest", "ms"),
            Goal("batches"),
        ),
        small={"records": 3_000, "warm": 1_000},
    ),
    Scenario(
        name="spark-json",
        says="JSON of batches of 100,000 rows, and the gateway's event loop while they come",
        measure=json_of_batches,
        sizes=Sizes(subscribers=1, records=500_000, warm=200_000),
        goals=(
            Goal("JSON", "/s", at_least=1_000_000),
            Goal("JSON, with all else of a batch", "/s"),
            Goal("taken apart by the gateway", "/s"),
            Goal("loop held", "ms", at_most=10.0),
            Goal("loop held, computing", "ms"),
        ),
        small=_SMALL,
    ),
    Scenario(
        name="spark-beside",
        says="500 records/s of a topic to 20 subscribers while a Spark source keeps all cores busy",
        measure=beside,
        sizes=Sizes(
            subscribers=20, rate=500, seconds=20.0, warm=500, delays=20, records=600_000, per_batch=4_000
        ),
        goals=(
            Goal("p99 beside / without", "x", at_most=3.0),
            Goal("p99 beside it", "ms"),
            Goal("p99 without", "ms"),
        ),
        small={
            "seconds": 1.0,
            "warm": 50,
            "rate": 100,
            "subscribers": 2,
            "delays": 2,
            "records": 40_000,
            "per_batch": 500,
        },
    ),
    Scenario(
        name="spark-health",
        says="the first answer of `/health` after a start, with and without a Spark source",
        measure=health,
        sizes=Sizes(subscribers=1, records=5),
        goals=(
            Goal("first /health, with / without", "x", at_most=1.2),
            Goal("first /health", "ms"),
            Goal("first /health without", "ms"),
            Goal("slowest /health until Spark runs", "ms"),
            Goal("Spark runs after", "s"),
        ),
        small={"records": 1},
    ),
)
