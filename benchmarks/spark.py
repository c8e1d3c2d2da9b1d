"""Runs of Spark sources, and of the same queries in plain PySpark.

Every run has fresh processes, unless the lab has a place where they are kept (`Kept`): tests take one, for
Spark takes ten seconds and more to start.
"""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from benchmarks.configuration import merged
from benchmarks.errors import RunFailed, RunVoid
from benchmarks.lab import RUN_SECONDS, Lab, all_sent
from benchmarks.process import Worker, started
from benchmarks.procfs import FamilyMeter
from benchmarks.run import Run
from benchmarks.serving import CONFIG, START_SECONDS, Server, gateway, sources
from benchmarks.sizes import Sizes
from benchmarks.spark_queries import SparkQuery, source
from benchmarks.throughput import read_file
from kiwi_demo.loopback import HOST
from tests.topics import Topics

SPARK_SECONDS = 170.0
"""How long a driver may take to start, or a batch."""

MASTER = "local[*]"
CONF = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
NICE = 5
"""What the gateway gives its driver by default."""

AT_ONCE = "0 ms"
"""A trigger: a batch begins when the one before it has ended."""

_WATCHED = "benchmarks.workers.watched_gateway"
_POLL = 0.02
_HELD = "held"


@dataclass(slots=True)
class Kept:
    """Hold processes that are used by one run after the other. stack: ends them."""

    stack: AsyncExitStack
    plain: Worker | None = None
    server: Server | None = None
    folder: Path = field(default_factory=Path)
    watch: Path = field(default_factory=Path)
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Watched:
    """Hold a gateway whose event loop is watched. file: where it reports."""

    server: Server
    file: Path

    async def held(self) -> dict[str, Any]:
        """Return the longest steps since it was asked last (see `workers.watched_gateway`)."""
        return await read_file(self.server, self.file)


# --- parts of a run --------------------------------------------------------------------------


@asynccontextmanager
async def filled(lab: Lab, sizes: Sizes) -> AsyncIterator[str]:
    """Make a fresh topic with all records of the run in it."""
    async with lab.topics(sizes) as (topic,):
        everything = {"warm": sizes.total, "rate": 0, "steady": 0}
        async with lab.producer(sizes, [topic], **everything) as producer:
            await producer.tell()
            await all_sent(producer)
        yield topic


@asynccontextmanager
async def serving(lab: Lab, *wanted: Mapping[str, Any]) -> AsyncIterator[Watched]:
    """Run a gateway with these sources, which listens: what of them Spark makes may not be there yet."""
    if lab.kept is None:
        folder = lab.new_folder()
        watch = folder / "steps"
        chosen = settings(lab, folder, wanted)
        async with gateway(folder, chosen, (_WATCHED, str(watch)), None, running=False) as server:
            yield Watched(server, watch)
        return
    kept = lab.kept
    if kept.server is None:
        await _keep_gateway(lab, kept)
    assert kept.server is not None
    await _reload(kept, [*kept.settings["sources"], *wanted])
    try:
        yield Watched(kept.server, kept.watch)
    finally:
        with trio.CancelScope(shield=True):
            await _reload(kept, kept.settings["sources"])


@asynccontextmanager
async def plain_spark(lab: Lab) -> AsyncIterator[Worker]:
    """Start PySpark, ready for a job."""
    wanted = {"master": MASTER, "conf": CONF, "nice": NICE}
    if lab.kept is None:
        async with started("plain_spark", wanted, lab.new_folder()) as worker:
            await worker.hear("ready", SPARK_SECONDS)
            yield worker
        return
    if lab.kept.plain is None:
        lab.kept.plain = await lab.kept.stack.enter_async_context(
            started("plain_spark", wanted, lab.new_folder())
        )
        await lab.kept.plain.hear("ready", SPARK_SECONDS)
    yield lab.kept.plain


@asynccontextmanager
async def reader(
    lab: Lab, server: Server, query: SparkQuery, topic: str, sizes: Sizes, **changes: object
) -> AsyncIterator[Worker]:
    """Run a client of a query's results. It connects when Spark may still be starting."""
    wanted = {
        "host": server.host,
        "port": server.port,
        "path": server.path,
        "source": source_of(query, topic, sizes)["id"],
        "query": query.name,
        "warm": sizes.warm,
        "records": sizes.total,
        "seconds": SPARK_SECONDS,
        **changes,
    }
    async with started("spark_reader", wanted, lab.new_folder()) as worker:
        yield worker


def source_of(query: SparkQuery, topic: str, sizes: Sizes, trigger: str = AT_ONCE) -> dict[str, Any]:
    return source(query, topic, sizes.per_batch, trigger)


def kafka_source(topic: str) -> dict[str, Any]:
    return {"type": "kafka", "topic": topic}


# --- runs ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SparkRun:
    """Hold what a run through the gateway gave. result: of the client. cpu: seconds, of all processes. held:
    the longest steps of the event loop."""

    run: Run
    result: dict[str, Any]
    cpu: float
    held: dict[str, Any]


async def through_gateway(lab: Lab, query: SparkQuery, topic: str, sizes: Sizes) -> SparkRun:
    """Run over a topic that is filled: from the last result of the warm-up to the last one at all."""
    lab.note.say(f"  gateway, {query.name}")
    async with (
        serving(lab, kafka_source(topic), source_of(query, topic, sizes)) as watched,
        reader(lab, watched.server, query, topic, sizes) as client,
    ):
        await client.hear("ready", SPARK_SECONDS)
        begun = await client.hear("warm", SPARK_SECONDS)
        assert watched.server.pid is not None
        meter = FamilyMeter(watched.server.pid)
        await watched.held()  # forget what was before
        done = await finished(client)
        cpu = meter.used()
        held = await watched.held()
        result = await client.hear("result", RUN_SECONDS)
    run = _run(sizes, begun, done, cpu, result)
    lab.checked("gateway", sizes, run, query=query.name, held=held, batches=result["batches"])
    return SparkRun(run, result, cpu, held)


async def in_plain_spark(
    lab: Lab, query: SparkQuery, topic: str, sizes: Sizes, *, trigger: str = AT_ONCE, times: bool = False
) -> Run:
    """Run the same into the sink `noop`, to the end of the last batch. times: see `workers.plain_spark`."""
    lab.note.say(f"  plain Spark, {query.name}")
    async with plain_spark(lab) as worker:
        await worker.tell(_job(lab, query, topic, sizes, trigger, times=times))
        begun = await worker.hear("warm", SPARK_SECONDS)
        meter = FamilyMeter(worker.pid)
        done = await worker.hear("done", SPARK_SECONDS)
        cpu = meter.used()
    return plain_run(lab, query, sizes, begun, done, cpu)


def plain_run(
    lab: Lab, query: SparkQuery, sizes: Sizes, begun: float, done: dict[str, Any], cpu: float
) -> Run:
    """Return the run that the worker's `done` describes, noted."""
    short = done["records"] - sizes.total
    run = Run(
        deliveries=sizes.measured,
        records=sizes.measured,
        seconds=done["done"] - begun,
        cpu={"server": cpu},
        faults=[f"{short:+} records were read"] if short else [],
        control={},
        frame=0.0,
        receive=0.0,
        delays=done.get("fresh", {}),
    )
    return lab.checked("plain Spark", sizes, run, query=query.name, batch_seconds=done["seconds"])


def _job(lab: Lab, query: SparkQuery, topic: str, sizes: Sizes, trigger: str, *, times: bool) -> str:
    return json.dumps(
        {
            "do": "stream",
            "source": source_of(query, topic, sizes, trigger),
            "bootstrap": lab.bootstrap,
            "topic": topic,
            "warm": sizes.warm,
            "records": sizes.total,
            "checkpoint": str(lab.new_folder() / "checkpoint"),
            "times": times,
        }
    )


async def at_a_rate(lab: Lab, query: SparkQuery, sizes: Sizes, trigger: str) -> dict[str, Any]:
    """Send records at a rate through the gateway. Returns what its client says."""
    lab.note.say(f"  gateway, {query.name}")
    async with lab.topics(sizes) as (topic,):
        wanted = source_of(query, topic, sizes, trigger)
        async with (
            serving(lab, kafka_source(topic), wanted) as watched,
            reader(lab, watched.server, query, topic, sizes) as client,
            lab.producer(sizes, [topic]) as producer,
        ):
            await client.hear("ready", SPARK_SECONDS)
            begun, done, late, cpu = await _produced(sizes, producer, client, watched.server.pid or 0)
            result: dict[str, Any] = await client.hear("result", RUN_SECONDS)
    run = _run(sizes, begun, done, cpu, result, result["fresh"], late)
    lab.checked("gateway", sizes, run, query=query.name)
    return result


async def plain_at_a_rate(lab: Lab, query: SparkQuery, sizes: Sizes, trigger: str) -> dict[str, Any]:
    """Do the same in plain PySpark. Returns what that says."""
    lab.note.say(f"  plain Spark, {query.name}")
    async with (
        lab.topics(sizes) as (topic,),
        plain_spark(lab) as worker,
        lab.producer(sizes, [topic]) as producer,
    ):
        await worker.tell(_job(lab, query, topic, sizes, trigger, times=True))
        begun, done, _, cpu = await _produced(sizes, producer, worker, worker.pid)
    plain_run(lab, query, sizes, begun, done, cpu)
    return done


async def _produced(
    sizes: Sizes, producer: Worker, listener: Worker, pid: int
) -> tuple[float, dict[str, Any], dict[str, float], float]:
    """Have the warm-up and then the run produced and read. Returns begin, end, lateness, cpu."""
    await producer.tell()
    await all_sent(producer)
    await listener.hear("warm", SPARK_SECONDS)
    meter = FamilyMeter(pid)
    await producer.tell()
    begun: float = (await producer.hear_any(START_SECONDS))["started"]
    sent = await producer.hear_any(RUN_SECONDS + sizes.seconds)
    done = await finished(listener)
    return begun, done, sent["late"], meter.used()


async def finished(client: Worker) -> dict[str, Any]:
    """Return the result when all is there; or, after a time in which nothing can be missing, what is
    there."""
    try:
        done: dict[str, Any] = await client.hear("done", SPARK_SECONDS)
    except RunFailed:
        await client.tell("stop")
        done = await client.hear("done", START_SECONDS)
        if not done.get("all", True):
            raise RunVoid(f"not all results came: {await client.hear('result', RUN_SECONDS)}") from None
    return done


def _run(
    sizes: Sizes,
    begun: Any,
    done: dict[str, Any],
    cpu: float,
    result: dict[str, Any],
    delays: dict[str, Any] | None = None,
    late: dict[str, float] | None = None,
) -> Run:
    at = begun["warm"] if isinstance(begun, dict) else begun
    before = begun["cpu"] if isinstance(begun, dict) else 0.0
    return Run(
        deliveries=result["measured"],
        records=sizes.measured,
        seconds=done["done"] - at,
        cpu={"server": cpu, "client": round(done["cpu"] - before, 2)},
        faults=result["faults"],
        control=result["control"],
        frame=round(result["bytes"] / max(1, result["events"]), 1),
        receive=round(result["bytes"] / max(1, result["receives"])),
        delays=result["delivery"] if delays is None else delays,
        late=late or {},
    )


# --- gateways --------------------------------------------------------------------------------


def settings(lab: Lab, folder: Path, wanted: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the configuration of a gateway with these sources."""
    return merged(
        {
            # The clients answer no pings while they are busy.
            "server": {
                "address": f"{HOST}:0",
                "admin_address": None,
                "limits": {"ping_interval_ms": "280s", "dead_after_ms": "290s"},
            },
            "kafka": {"bootstrap_servers": lab.bootstrap},
            "spark": {
                "master": MASTER,
                "conf": CONF,
                "nice": NICE,
                "checkpoint_dir": str(folder / "state"),
            },
            "subscriber": {"subscribe_timeout_ms": f"{SPARK_SECONDS:g}s"},
            "sources": list(wanted),
        }
    )


async def _keep_gateway(lab: Lab, kept: Kept) -> None:
    """Run one with a query that nothing ever comes for, so that its driver stays."""
    folder = lab.new_folder()
    topic = f"{_HELD}-{folder.parent.name}"
    await Topics(lab.bootstrap).create(topic)
    query = SparkQuery(_HELD, "n BIGINT", "SELECT n FROM flights", lambda n: n, lambda rows, n: [])
    held = source(query, topic, 1, "1 hour")
    kept.folder, kept.watch = folder, folder / "steps"
    kept.settings = settings(lab, folder, [kafka_source(topic), held])
    kept.server = await kept.stack.enter_async_context(
        gateway(folder, kept.settings, (_WATCHED, str(kept.watch)), None, running=False)
    )


async def _reload(kept: Kept, wanted: Sequence[Mapping[str, Any]]) -> None:
    """Have the kept gateway serve these sources instead; returns when it knows them."""
    assert kept.server is not None
    assert kept.server.child is not None
    file = trio.Path(kept.folder / CONFIG)
    await file.write_text(json.dumps(kept.settings | {"sources": list(wanted)}))
    kept.server.child.signal(signal.SIGHUP)
    ids = {one.get("id", one.get("topic")) for one in wanted}
    with trio.move_on_after(START_SECONDS):
        while set((await trio.to_thread.run_sync(sources, kept.server.port))[1]) != ids:  # noqa: ASYNC110
            await trio.sleep(_POLL)
        return
    raise RunFailed(f"the gateway does not take {sorted(ids)}")
