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
from benchmarks.procfs import FamilyMeter, Meter
from benchmarks.run import Run
from benchmarks.serving import CONFIG, START_SECONDS, Server, gateway, sources
from benchmarks.sizes import Sizes
from benchmarks.spark_queries import AT_ONCE, SparkQuery, Trigger, every, source
from benchmarks.throughput import read_file
from kiwi_demo.loopback import HOST
from tests.topics import Topics

SPARK_SECONDS = 170.0
"""How long a driver may take to start, or a batch."""

MASTER = "local[*]"
CONF = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
NICE = 5
"""What the gateway gives its driver by default."""

REAL_TIME_PARTITIONS = 16
"""Partitions that may be read in real time: the gateway's default."""

_WATCHED = "benchmarks.workers.watched_gateway"
_POLL = 0.02
_HELD = "held"
_STATE = "state"


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

    @property
    def checkpoints(self) -> Path:
        """Return the folder with the checkpoints of its queries."""
        return self.file.parent / _STATE


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
    wanted = {"master": MASTER, "conf": CONF, "nice": NICE, "real_time_partitions": REAL_TIME_PARTITIONS}
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
    lab: Lab, watched: Watched, query: SparkQuery, topic: str, sizes: Sizes
) -> AsyncIterator[Worker]:
    """Run a client of a query's results. It connects when Spark may still be starting."""
    server, source_id = watched.server, source_of(query, topic, sizes)["id"]
    wanted = {
        "host": server.host,
        "port": server.port,
        "path": server.path,
        "source": source_id,
        "query": query.name,
        "warm": sizes.warm,
        "records": sizes.total,
        "seconds": SPARK_SECONDS,
        "checkpoints": str(watched.checkpoints / source_id),
    }
    async with started("spark_reader", wanted, lab.new_folder()) as worker:
        yield worker


def source_of(query: SparkQuery, topic: str, sizes: Sizes, trigger: Trigger = AT_ONCE) -> dict[str, Any]:
    return source(query, topic, sizes.per_batch, trigger)


def kafka_source(topic: str) -> dict[str, Any]:
    return {"type": "kafka", "topic": topic}


# --- runs ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SparkRun:
    """Hold what a run through the gateway gave. result: of the client. spark: seconds of processor time, of
    the driver and its JVM; gateway: of the gateway alone. held: the longest steps of the event loop."""

    run: Run
    result: dict[str, Any]
    spark: float
    gateway: float
    held: dict[str, Any]


async def through_gateway(lab: Lab, query: SparkQuery, topic: str, sizes: Sizes) -> SparkRun:
    """Run over a topic that is filled: from the last result of the warm-up to the last one at all."""
    lab.note.say(f"  gateway, {query.name}")
    async with (
        serving(lab, kafka_source(topic), source_of(query, topic, sizes)) as watched,
        reader(lab, watched, query, topic, sizes) as client,
    ):
        await client.hear("ready", SPARK_SECONDS)
        begun = await client.hear("warm", SPARK_SECONDS)
        assert watched.server.pid is not None
        meter, alone = FamilyMeter(watched.server.pid), Meter({"gateway": watched.server.pid})
        await watched.held()  # forget what was before
        done = await finished(client)
        cpu, gateway_cpu = meter.used(), alone.used()["gateway"]
        held = await watched.held()
        result = await client.hear("result", RUN_SECONDS)
    run = run_of(sizes, begun, done, cpu, result)
    facts = {"held": held, "batches": result["batches"], "gateway_cpu": gateway_cpu}
    lab.checked("gateway", sizes, run, query=query.name, **facts)
    return SparkRun(run, result, cpu - gateway_cpu, gateway_cpu, held)


async def in_plain_spark(lab: Lab, query: SparkQuery, topic: str, sizes: Sizes) -> Run:
    """Run the same into the sink `noop`, to the end of the last batch."""
    lab.note.say(f"  plain Spark, {query.name}")
    async with plain_spark(lab) as worker:
        await worker.tell(job(lab, "stream", query, topic, sizes))
        begun = await worker.hear("warm", SPARK_SECONDS)
        meter = FamilyMeter(worker.pid)
        done = await worker.hear("done", SPARK_SECONDS)
        cpu = meter.used()
    return plain_run(lab, query, sizes, begun, done, cpu)


def plain_run(
    lab: Lab, query: SparkQuery, sizes: Sizes, begun: float, done: dict[str, Any], cpu: float
) -> Run:
    """Return the run that the worker's `done` describes, noted."""
    run = Run(
        deliveries=sizes.measured,
        records=sizes.measured,
        seconds=done["done"] - begun,
        cpu={"server": cpu},
        faults=done["faults"],
        control={},
        frame=0.0,
        receive=0.0,
        delays=done.get("fresh", {}),
    )
    facts = {name: done[name] for name in ("seconds", "around") if name in done}
    return lab.checked("plain Spark", sizes, run, query=query.name, plain=facts)


def job(lab: Lab, do: str, query: SparkQuery, topic: str, sizes: Sizes, trigger: Trigger = AT_ONCE) -> str:
    """Return what plain PySpark is told: see `workers.plain_spark`."""
    return json.dumps(
        {
            "do": do,
            "query": query.name,
            "source": source_of(query, topic, sizes, trigger),
            "bootstrap": lab.bootstrap,
            "topic": topic,
            "warm": sizes.warm,
            "records": sizes.total,
            "checkpoint": str(lab.new_folder() / "checkpoint"),
        }
    )


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


def run_of(
    sizes: Sizes,
    begun: Any,
    done: dict[str, Any],
    cpu: float,
    result: dict[str, Any],
    delays: dict[str, Any] | None = None,
    late: dict[str, float] | None = None,
) -> Run:
    """Return the run that a client's words describe."""
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
                "real_time_partitions": REAL_TIME_PARTITIONS,
                "checkpoint_dir": str(folder / _STATE),
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
    held = source(query, topic, 1, every("1 hour"))
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
