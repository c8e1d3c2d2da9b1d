"""What runs are made of: topics, servers, load clients and producers, each fresh, and what they measured."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import procfs
from benchmarks.configuration import configuration, new_certificate
from benchmarks.errors import RunFailed, RunVoid
from benchmarks.process import Worker, started
from benchmarks.procfs import Meter
from benchmarks.protocols import WORDS, queries
from benchmarks.run import Run, System
from benchmarks.serving import START_SECONDS, Server, gateway
from benchmarks.sizes import Sizes
from benchmarks.target import Target
from kiwi_demo.broker import Broker
from tests.topics import Topics

if TYPE_CHECKING:
    from benchmarks.spark import Kept

RUN_SECONDS = 180.0
_LABS = itertools.count()


@dataclass(frozen=True, slots=True)
class Note:
    """Say where results go. line: one JSON object. say: words for the people who wait."""

    line: Callable[[dict[str, Any]], None]
    say: Callable[[str], None]


class Lab:
    """Hold the place where one scenario is measured, on one broker.

    folder: takes configurations, logs and captured frames. only: leave out other systems. target: a server
    that is measured instead of ours. frames, slices: what the counted run gave, once it was made (see
    `throughput`): a file, and the bytes that each ceiling sends at a time. kept: where processes with Spark
    are kept from one run to the next; None: every run has its own. module: what is run as the gateway, with
    what arguments before its own.
    """

    def __init__(
        self,
        broker: Broker,
        folder: Path,
        note: Note,
        only: Sequence[System] = (),
        target: Target | None = None,
        kept: Kept | None = None,
        module: Sequence[str] = ("kiwi_gw",),
    ) -> None:
        self.note = note
        self.kept = kept
        self.module = tuple(module)
        self.only = tuple(only)
        self.target = target
        self.frames = folder / "frames"
        self.slices: dict[System, int] = {}
        self._broker = broker
        self._topics = Topics(broker.bootstrap)
        self._folder = folder
        self._names = f"bench-{os.getpid()}-{next(_LABS)}"
        self._number = 0

    # --- the parts of a run ----------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    @property
    def broker_pid(self) -> Collection[int]:
        """Return the process of the broker; none if it is not ours."""
        return () if self._broker.pid is None else (self._broker.pid,)

    def new_folder(self) -> Path:
        self._number += 1
        folder = self._folder / f"run-{self._number}"
        folder.mkdir(parents=True)
        return folder

    @asynccontextmanager
    async def topics(self, sizes: Sizes) -> AsyncIterator[list[str]]:
        """Make fresh topics."""
        self._number += 1
        names = [f"{self._names}-{self._number}-{index}" for index in range(sizes.topics)]
        for name in names:
            await self._topics.create(name, partitions=sizes.partitions)
        yield names
        for name in names:
            await self._topics.delete(name)

    @asynccontextmanager
    async def gateway(
        self, sizes: Sizes, topics: Sequence[str], module: Sequence[str] | None = None
    ) -> AsyncIterator[Server]:
        """Run the gateway with a source for each topic, ready. module: what is run in its place, as
        `Lab.module`; None: that."""
        folder = self.new_folder()
        tls = new_certificate(folder) if sizes.tls else None
        settings = configuration(sizes, topics, self.bootstrap, tls)
        ca = None if tls is None else tls.cert
        async with gateway(folder, settings, module or self.module, ca) as server:
            yield server

    @asynccontextmanager
    async def load(
        self, sizes: Sizes, server: Server, sources: Sequence[str], **changes: object
    ) -> AsyncIterator[Worker]:
        """Run the subscribers, all subscribed. changes: settings of the load client over those of `sizes`."""
        settings = {
            "host": server.host,
            "ports": [server.port],
            "path": server.path if sizes.protocol == "kiwi" else WORDS[sizes.protocol].path,
            "ca": None if server.ca is None else str(server.ca),
            "sources": list(sources),
            "subscribers": sizes.subscribers,
            "mode": sizes.mode,
            "credits": sizes.credits,
            "protocol": sizes.protocol,
            "subscribe": [dict(sizes.subscribe) | query for query in queries(sizes.queries)],
            "sets": sizes.sets,
            "bases": [0] * sizes.partitions,
            "first": 0,
            "warm": sizes.warm,
            "total": sizes.total,
            "stalled": sizes.stalled,
            "delays": sizes.delays,
            "periods": sizes.periods,
            "churn": sizes.churn,
            "capture": None,
            **changes,
        }
        async with started("load_client", settings, self.new_folder()) as load:
            await load.hear("ready", START_SECONDS)
            yield load

    @asynccontextmanager
    async def producer(self, sizes: Sizes, topics: Sequence[str], **changes: object) -> AsyncIterator[Worker]:
        """Run the producer that fills the topics, with everything made and nothing sent."""
        settings = self.kafka(sizes, topics) | {
            "topics": list(topics),
            "first": 0,
            "warm": sizes.warm,
            "total": sizes.total,
            "steady": min(sizes.steady, sizes.warm) if sizes.rate else 0,
            "size": sizes.size,
            "batch_bytes": sizes.batch_bytes,
            "rate": sizes.rate,
            **changes,
        }
        async with started("producer", settings, self.new_folder()) as producer:
            await producer.hear("ready", RUN_SECONDS)
            yield producer

    def kafka(self, sizes: Sizes, topics: Sequence[str]) -> dict[str, Any]:
        """Return what the workers that read from Kafka themselves need."""
        return {"bootstrap": self.bootstrap, "topic": topics[0], "partitions": sizes.partitions}

    async def measure(self, sizes: Sizes, load: Worker, feeder: Worker, *servers: int | None) -> Run:
        """Measure one run of parts that are ready: warm-up, then from before the first record to the last
        event.

        feeder: what sends, the producer or the ceiling itself. servers: their processes (None:
        not ours).
        """
        ours = [pid for pid in servers if pid is not None]
        with self._pinned(sizes, ours, load.pid, feeder.pid):
            await feeder.tell()
            await all_sent(feeder)
            await load.hear("warm", RUN_SECONDS)
            meter = Meter(self._pids(ours, feeder.pid))
            await feeder.tell()
            begun = (await feeder.hear_any(START_SECONDS))["started"]
            most = RUN_SECONDS + (sizes.seconds if sizes.rate else 0.0)
            done = await finished(load, most)
            used = meter.used()
        sent = await feeder.hear_any(START_SECONDS)
        if sizes.stalled:
            await load.tell("leave them")
        result = await load.hear("result", RUN_SECONDS)
        return made(sizes, result, done, begun, used, sent.get("late", {}))

    def _pids(self, servers: Collection[int], feeder: int) -> dict[str, Collection[int]]:
        found: dict[str, Collection[int]] = {"server": servers} if servers else {}
        if feeder not in servers:
            found["producer"] = (feeder,)
            if self._broker.pid is not None:
                found["broker"] = (self._broker.pid,)
        return found

    @contextmanager
    def _pinned(self, sizes: Sizes, servers: Collection[int], *others: int) -> Iterator[None]:
        cores = sorted(os.sched_getaffinity(0))
        if not sizes.pin or not servers:
            yield
            return
        if len(cores) < 2:
            raise RunFailed("pinning needs two cores")
        broker = self._broker.pid
        for pid in {*others} - {*servers}:
            procfs.pin(pid, cores[1:])
        if broker is not None:
            procfs.pin(broker, cores[1:])
        for pid in servers:
            procfs.pin(pid, cores[:1])
        try:
            yield
        finally:
            if broker is not None:
                procfs.pin(broker, cores)

    # --- what a run gave -------------------------------------------------------------------

    def checked(self, system: System, sizes: Sizes, run: Run, **facts: object) -> Run:
        """Note a run. Raises RunVoid if what was read in it is not what was produced."""
        self.note.line({"system": system, **_told(sizes), **run.said(), **facts})
        if run.faults:
            raise RunVoid(f"{system}: {'; '.join(run.faults)}")
        return run


def made(
    sizes: Sizes,
    result: dict[str, Any],
    done: dict[str, float],
    begun: float,
    used: dict[str, float],
    late: dict[str, float],
) -> Run:
    """Return the run that a load client's `done` and `result` describe."""
    # One topic's records go to all of its subscribers, of which a topic has its share.
    records = sizes.measured * sizes.topics
    return Run(
        deliveries=sizes.measured * sizes.subscribers,
        records=records,
        seconds=done["done"] - begun,
        cpu=used | {"client": round(done["cpu"], 2)},
        faults=result["faults"],
        control=result["control"],
        frame=round(result["bytes"] / max(1, result["events"]), 1),
        receive=round(result["received"] / max(1, result["receives"])),
        delays=result.get("delays", {}),
        late=late,
        counts={
            name: result[name]
            for name in ("left", "given_up", "stalled_intact", "own_order")
            if result.get(name)
        },
    )


async def finished(load: Worker, most: float = RUN_SECONDS) -> dict[str, float]:
    """Return what the load client says when all have everything, or when it is stopped after so many
    seconds."""
    try:
        done: dict[str, float] = await load.hear("done", most)
    except RunFailed:
        await load.tell("stop")
        done = await load.hear("done", START_SECONDS)
    return done


async def all_sent(feeder: Worker) -> None:
    """Wait until all that it was asked to send is sent."""
    said = await feeder.hear_any(RUN_SECONDS)
    if "started" in said:
        said = await feeder.hear_any(RUN_SECONDS)
    if "sent" not in said:
        raise RunFailed(f"the warm-up was not sent: {said}")


def _told(sizes: Sizes) -> dict[str, object]:
    """Return the sizes that are not what they are by default, and those that every line has."""
    plain = replace(Sizes(), subscribers=sizes.subscribers)
    always = {"subscribers", "size", "partitions", "mode"}
    return {
        name: value
        for name in Sizes.__dataclass_fields__
        if (value := getattr(sizes, name)) != getattr(plain, name) or name in always
    }
