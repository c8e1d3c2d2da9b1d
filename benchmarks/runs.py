"""One run: a system, its load client and what feeds it, from their start to what they measured."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from benchmarks.cpu import Meter
from benchmarks.errors import RunFailed
from benchmarks.scenarios import Scenario
from benchmarks.worker import Worker, started
from kiwi_gw.demo.broker import Broker
from kiwi_gw.demo.gateway import healthy
from kiwi_gw.demo.loopback import HOST, free_port
from kiwi_gw.demo.process import Child, tail
from kiwi_gw.demo.topics import Topics

_START_SECONDS = 60.0
_RUN_SECONDS = 180.0
_POLL = 0.02
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Run:
    """What one run gave. seconds: from before the first record to the last event of the last client.

    cpu: seconds of processor time of the server (gateway, peer, ceiling, or who reads with getmany), the
    client and, where Kafka is in the loop, of producer and broker. faults: what is wrong with what was
    read; a run that has any is void. control: frames that were no event, by type. frame: mean bytes of an
    event on the wire. receive: mean bytes of what the load client received at a time. counts: the
    gateway's sends (counted runs only).
    """

    deliveries: int
    records: int
    seconds: float
    cpu: dict[str, float]
    faults: list[str]
    control: dict[str, int]
    frame: float
    receive: float
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Deliveries per second."""
        return self.deliveries / self.seconds

    @property
    def records_rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds

    @property
    def per_cpu(self) -> float:
        """Deliveries per second of the server's processor time: what is left when others are busy, too."""
        return self.deliveries / max(self.cpu["server"], 0.01)


class Session:
    """Runs of one scenario on one broker. `folder` takes configurations, logs and captured frames."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self._broker = broker
        self._topics = Topics(broker.bootstrap)
        self._folder = folder
        self._number = 0
        self.frames = folder / "frames"

    async def gateway(self, scenario: Scenario, *, counted: bool = False) -> Run:
        """A run of the gateway. counted: its sends are counted, and the events kept in `frames`."""
        async with self._topic(scenario) as (topic, folder):
            counts = folder / "counts"
            async with self._gateway(scenario, topic, folder, counts if counted else None) as (gateway, port):
                capture = self.frames if counted else None
                client = self._load(scenario, port, topic, folder, capture)
                async with client as load, self._producer(scenario, topic, folder) as producer:
                    run = await self._measure(scenario, load, producer, gateway.pid)
                    if counted:
                        run.counts.update(await _counts(gateway, counts))
                    return run

    async def peer(self, scenario: Scenario) -> Run:
        async with self._topic(scenario) as (topic, folder):
            settings = self._kafka(scenario, topic)
            async with started("peer", settings, folder) as peer:
                port = await peer.hear("port", _START_SECONDS)
                client = self._load(scenario, port, topic, folder, None)
                async with client as load, self._producer(scenario, topic, folder) as producer:
                    return await self._measure(scenario, load, producer, peer.pid)

    async def getmany(self, scenario: Scenario) -> Run:
        async with self._topic(scenario) as (topic, folder):
            settings = self._kafka(scenario, topic) | {"warm": scenario.warm, "total": scenario.total}
            async with started("bare", settings, folder) as bare:
                await bare.hear("ready", _START_SECONDS)
                async with self._producer(scenario, topic, folder) as producer:
                    return await self._measure(scenario, bare, producer, bare.pid)

    async def ceiling(self, scenario: Scenario, size: int) -> Run:
        """The frames of the counted run, in slices of `size` bytes."""
        folder = self._next_folder()
        settings = {
            "frames": str(self.frames),
            "warm": scenario.warm,
            "slice": size,
            "subscribers": scenario.subscribers,
        }
        async with started("ceiling", settings, folder) as ceiling:
            port = await ceiling.hear("port", _START_SECONDS)
            async with self._load(scenario, port, "ready-made", folder, None) as load:
                await ceiling.hear("ready", _START_SECONDS)
                return await self._measure(scenario, load, ceiling, ceiling.pid)

    # --- what a run consists of ------------------------------------------------------------

    async def _measure(self, scenario: Scenario, load: Worker, feeder: Worker, server: int) -> Run:
        await feeder.tell()
        await self._all_sent(feeder, "the warm-up")
        await load.hear("warm", _RUN_SECONDS)
        pids = {"server": server}
        if feeder.pid != server:
            pids["producer"] = feeder.pid
            if self._broker.pid is not None:
                pids["broker"] = self._broker.pid
        meter = Meter(pids)
        await feeder.tell()
        begun = (await feeder.hear_any(_START_SECONDS))["started"]
        try:
            done = await load.hear("done", _RUN_SECONDS)
        except RunFailed:
            await load.tell("stop")
            done = await load.hear("done", _START_SECONDS)
        cpu = meter.used() | {"client": round(done["cpu"], 2)}
        result = await load.hear("result", _RUN_SECONDS)
        clients = scenario.subscribers
        return Run(
            deliveries=scenario.records * clients,
            records=scenario.records,
            seconds=done["done"] - begun,
            cpu=cpu,
            faults=result["faults"],
            control=result["control"],
            frame=round(result["bytes"] / scenario.total, 1),
            receive=round(result["received"] / max(1, result["receives"])),
        )

    async def _all_sent(self, feeder: Worker, what: str) -> None:
        said = await feeder.hear_any(_RUN_SECONDS)
        if "started" in said:
            said = await feeder.hear_any(_RUN_SECONDS)
        if "sent" not in said:
            raise RunFailed(f"{what} was not sent: {said}")

    def _next_folder(self) -> Path:
        self._number += 1
        folder = self._folder / f"run-{self._number}"
        folder.mkdir()
        return folder

    @asynccontextmanager
    async def _topic(self, scenario: Scenario) -> AsyncIterator[tuple[str, Path]]:
        """A fresh topic and a fresh folder."""
        folder = self._next_folder()
        topic = await self._topics.create(f"bench-{self._number}", partitions=scenario.partitions)
        yield topic, folder
        await self._topics.delete(topic)

    @asynccontextmanager
    async def _gateway(
        self, scenario: Scenario, topic: str, folder: Path, counts: Path | None
    ) -> AsyncIterator[tuple[Child, int]]:
        port, log, config = free_port(), folder / "gateway.log", folder / "kiwi.yml"
        config.write_text(json.dumps(configuration(scenario, topic, self._broker.bootstrap, port)))
        module = ["kiwi_gw"] if counts is None else ["benchmarks.counted_gateway", str(counts)]
        child = await Child.start([sys.executable, "-m", *module, "run", "--config", str(config)], log)
        try:
            with trio.move_on_after(_START_SECONDS) as waiting:
                while not await healthy(port):
                    if child.returncode is not None:
                        raise RunFailed(f"the gateway ended with code {child.returncode}; {log}:{tail(log)}")
                    await trio.sleep(_POLL)
            if waiting.cancelled_caught:
                raise RunFailed(f"the gateway is not healthy; {log}:{tail(log)}")
            yield child, port
        finally:
            await child.end(_START_SECONDS)

    @asynccontextmanager
    async def _load(
        self, scenario: Scenario, port: int, source: str, folder: Path, capture: Path | None
    ) -> AsyncIterator[Worker]:
        settings = {
            "host": HOST,
            "port": port,
            "subscribers": scenario.subscribers,
            "source": source,
            "mode": scenario.mode,
            "credits": scenario.credits,
            "warm": scenario.warm,
            "total": scenario.total,
            "partitions": scenario.partitions,
            "capture": None if capture is None else str(capture),
        }
        async with started("load_client", settings, folder) as load:
            await load.hear("ready", _START_SECONDS)
            yield load

    @asynccontextmanager
    async def _producer(self, scenario: Scenario, topic: str, folder: Path) -> AsyncIterator[Worker]:
        settings = self._kafka(scenario, topic) | {
            "warm": scenario.warm,
            "total": scenario.total,
            "size": scenario.size,
            "batch_bytes": scenario.batch_bytes,
        }
        async with started("producer", settings, folder) as producer:
            await producer.hear("ready", _RUN_SECONDS)
            yield producer

    def _kafka(self, scenario: Scenario, topic: str) -> dict[str, Any]:
        return {
            "bootstrap": self._broker.bootstrap,
            "topic": topic,
            "partitions": scenario.partitions,
        }


def configuration(scenario: Scenario, topic: str, bootstrap: str, port: int) -> dict[str, object]:
    """The gateway's configuration: all defaults, but for a window that holds the whole run.

    As long as what has left the window is not read again from Kafka, only this makes a run lossless in which
    some client is slower than the broker.
    """
    window = scenario.total * (scenario.size + 256) + 64 * _MIB
    return {
        "server": {"address": f"{HOST}:{port}"},
        "kafka": {"bootstrap_servers": bootstrap},
        "window": {"events": scenario.total, "bytes": window, "memory_bytes": 2 * window + 512 * _MIB},
        "sources": [{"type": "kafka", "topic": topic}],
    }


async def _counts(gateway: Child, file: Path) -> dict[str, int]:
    gateway.signal(signal.SIGUSR1)
    path = trio.Path(file)
    with trio.move_on_after(_START_SECONDS):
        while not await path.exists():  # noqa: ASYNC110  (another process writes it)
            await trio.sleep(_POLL)
        counts: dict[str, int] = json.loads(await path.read_text())
        return counts
    raise RunFailed("the gateway did not write its counts")
