"""Runs of Spark sources over topics that records come to at a rate, or none at all."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import trio

from benchmarks.errors import RunFailed
from benchmarks.lab import RUN_SECONDS, Lab, all_sent
from benchmarks.process import Worker
from benchmarks.procfs import FamilyMeter, Meter
from benchmarks.run import Run
from benchmarks.serving import START_SECONDS, Server, sources
from benchmarks.sizes import Sizes
from benchmarks.spark import (
    SPARK_SECONDS,
    finished,
    job,
    kafka_source,
    plain_run,
    plain_spark,
    reader,
    run_of,
    serving,
    source_of,
)
from benchmarks.spark_queries import FRESH, SparkQuery, Trigger

_POLL = 0.1


async def at_a_rate(lab: Lab, query: SparkQuery, sizes: Sizes, trigger: Trigger) -> dict[str, Any]:
    """Send records at a rate through the gateway. Returns what its client says."""
    (result,) = await beside_each_other(lab, query, sizes, [trigger])
    return result


async def beside_each_other(
    lab: Lab, query: SparkQuery, sizes: Sizes, triggers: Sequence[Trigger]
) -> list[dict[str, Any]]:
    """Send records at a rate through one query for each trigger, each over a topic of its own. Returns what
    the client of each says."""
    lab.note.say(f"  gateway, {query.name}")
    async with AsyncExitStack() as stack:
        topics = await stack.enter_async_context(lab.topics(replace(sizes, topics=len(triggers))))
        wanted = [kafka_source(topic) for topic in topics]
        wanted += [source_of(query, topic, sizes, one) for topic, one in zip(topics, triggers, strict=True)]
        watched = await stack.enter_async_context(serving(lab, *wanted))
        clients = [
            await stack.enter_async_context(reader(lab, watched, query, topic, sizes)) for topic in topics
        ]
        producer = await stack.enter_async_context(lab.producer(sizes, topics))
        for client in clients:
            await client.hear("ready", SPARK_SECONDS)
        begun, ends, late, cpu = await _produced(sizes, producer, clients, watched.server.pid or 0)
        results: list[dict[str, Any]] = [await client.hear("result", RUN_SECONDS) for client in clients]
    for number, (done, result) in enumerate(zip(ends, results, strict=True)):
        run = run_of(sizes, begun, done, cpu, result, result["fresh"], late)
        facts = {"trigger": dict(triggers[number]), "around": result["around"]}
        lab.checked("gateway", sizes, run, query=query.name, **facts)
    return results


async def plain_at_a_rate(lab: Lab, query: SparkQuery, sizes: Sizes, trigger: Trigger) -> dict[str, Any]:
    """Do the same in plain PySpark. Returns what that says."""
    lab.note.say(f"  plain Spark, {query.name}")
    async with (
        lab.topics(sizes) as (topic,),
        plain_spark(lab) as worker,
        lab.producer(sizes, [topic]) as producer,
    ):
        await worker.tell(job(lab, "rows", query, topic, sizes, trigger))
        begun, (done,), _, cpu = await _produced(sizes, producer, [worker], worker.pid)
    plain_run(lab, query, sizes, begun, done, cpu)
    return done


async def _produced(
    sizes: Sizes, producer: Worker, listeners: Sequence[Worker], pid: int
) -> tuple[float, list[dict[str, Any]], dict[str, float], float]:
    """Have the warm-up and then the run produced and read. Returns begin, ends, lateness, cpu."""
    await producer.tell()
    await all_sent(producer)
    for listener in listeners:
        await listener.hear("warm", SPARK_SECONDS)
    meter = FamilyMeter(pid)
    await producer.tell()
    begun: float = (await producer.hear_any(START_SECONDS))["started"]
    sent = await producer.hear_any(RUN_SECONDS + sizes.seconds)
    done = [await finished(listener) for listener in listeners]
    return begun, done, sent["late"], meter.used()


async def idle(lab: Lab, sizes: Sizes, trigger: Trigger, queries: int) -> tuple[float, float]:
    """Run so many queries to which nothing comes, for as long again as is measured before that. Returns the
    cores that the driver with its JVM uses, and those of the gateway."""
    lab.note.say(f"  gateway, {queries} idle, {dict(trigger)}")
    async with lab.topics(replace(sizes, topics=queries)) as topics:
        wanted = [source_of(FRESH, topic, sizes, trigger) for topic in topics]
        async with serving(lab, *map(kafka_source, topics), *wanted) as watched:
            await _running(watched.server, {one["id"] for one in wanted})
            await trio.sleep(sizes.seconds)
            assert watched.server.pid is not None
            family, alone = FamilyMeter(watched.server.pid), Meter({"gateway": watched.server.pid})
            begun = trio.current_time()
            await trio.sleep(sizes.seconds)
            seconds = trio.current_time() - begun
            cpu, gateway = family.used(), alone.used()["gateway"]
    run = Run(0, 0, seconds, {"server": cpu}, [], {}, 0.0, 0.0)
    lab.checked("gateway", sizes, run, queries=queries, trigger=dict(trigger), gateway_cpu=gateway)
    return (cpu - gateway) / seconds, gateway / seconds


async def _running(server: Server, wanted: set[str]) -> None:
    """Wait until these sources run."""
    with trio.move_on_after(SPARK_SECONDS):
        while True:
            states = (await trio.to_thread.run_sync(sources, server.port))[1]
            if all(states.get(one) == "running" for one in wanted):
                return
            await trio.sleep(_POLL)
    raise RunFailed(f"not all of {sorted(wanted)} run")
