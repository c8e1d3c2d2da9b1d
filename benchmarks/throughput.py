"""As fast as possible: the same records through several systems in one round, and their ratios."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import trio

from benchmarks.errors import RunFailed
from benchmarks.lab import Lab
from benchmarks.process import started
from benchmarks.run import Run, System
from benchmarks.scenario import Figures, Measure
from benchmarks.serving import START_SECONDS, Server
from benchmarks.sizes import Sizes
from tests.topics import Topics

_POLL = 0.02

Beside = Callable[[Server, Sequence[str]], AbstractAsyncContextManager[None]]

BARE: Mapping[str, object] = {
    "metrics": {"enabled": False},
    "server": {
        "limits": {
            "max_connections": 0,
            "max_subscriptions": 0,
            "max_fragments": 0,
            "commands_per_second": 0,
            "requests_per_second": 0,
            "stall_timeout_ms": 0,
            "vanished_after_ms": 0,
        }
    },
}
"""Settings of the gateway without metrics, and without the limits that can be switched off."""


def compare(*systems: System) -> Measure:
    """Measure rounds of one run of each system, one after the other; the figures are ratios of these."""

    async def measure(lab: Lab, sizes: Sizes) -> Figures:
        chosen = [system for system in (*systems, "target") if system in (lab.only or systems)]
        return figures({system: await run(lab, system, sizes) for system in chosen})

    return measure


async def run(lab: Lab, system: System, sizes: Sizes) -> Run:
    """Run one system once, checked. Raises RunVoid."""
    lab.note.say(f"  {system}")
    match system:
        case "ceiling" | "best ceiling":
            slices = await calibrated(lab, sizes, best=system == "best ceiling")
            one = await ceiling(lab, sizes, slices[system])
            return lab.checked(system, sizes, one, slice=slices[system])
        case "peer":
            sizes = sizes.for_peer()
            return lab.checked(system, sizes, await peer(lab, sizes))
        case "getmany":
            sizes = replace(sizes, subscribers=1, mode="push")
            return lab.checked(system, sizes, await getmany(lab, sizes))
        case "target":
            return lab.checked(system, sizes, await target(lab, sizes))
        case "push":
            sizes = replace(sizes, mode="push")
        case "plain":
            sizes = replace(sizes, tls=False)
        case "bare gateway":
            sizes = replace(sizes, settings=BARE)
    return lab.checked(system, sizes, await gateway(lab, sizes))


async def gateway(lab: Lab, sizes: Sizes, beside: Beside = lambda server, topics: nullcontext()) -> Run:
    """Measure a run of the gateway. beside: what else there is during the warm-up and the run."""
    async with (
        lab.topics(sizes) as topics,
        lab.gateway(sizes, topics) as server,
        lab.load(sizes, server, topics) as load,
        lab.producer(sizes, topics) as producer,
        beside(server, topics),
    ):
        return await lab.measure(sizes, load, producer, server.pid)


async def gateways(lab: Lab, sizes: Sizes, count: int) -> Run:
    """Measure a run of several gateways that share the subscribers. Each has a stream of its own, as they
    may read partitions in another order."""
    sizes = replace(sizes, sets=count)
    async with AsyncExitStack() as stack:
        topics = await stack.enter_async_context(lab.topics(sizes))
        servers = [await stack.enter_async_context(lab.gateway(sizes, topics)) for _ in range(count)]
        ports = [server.port for server in servers]
        load = await stack.enter_async_context(lab.load(sizes, servers[0], topics, ports=ports))
        producer = await stack.enter_async_context(lab.producer(sizes, topics))
        return await lab.measure(sizes, load, producer, *[server.pid for server in servers])


async def target(lab: Lab, sizes: Sizes) -> Run:
    """Run a server that is not ours, on a topic that may have records already, but gets no others."""
    found = lab.target
    if found is None:
        raise RunFailed("there is no --target")
    ends = await Topics(found.bootstrap).end_offsets(found.topic)
    bases = [ends[partition] for partition in sorted(ends)]
    sizes = replace(sizes, partitions=len(bases), topics=1)
    server = Server(found.port, None, found.host, found.path)
    async with (
        lab.load(sizes, server, [found.source], bases=bases) as load,
        lab.producer(sizes, [found.topic], bootstrap=found.bootstrap) as producer,
    ):
        return await lab.measure(sizes, load, producer, None)


async def peer(lab: Lab, sizes: Sizes) -> Run:
    async with (
        lab.topics(sizes) as topics,
        started("peer", lab.kafka(sizes, topics), lab.new_folder()) as worker,
    ):
        server = Server(await worker.hear("port", START_SECONDS), worker.pid)
        async with (
            lab.load(sizes, server, topics) as load,
            lab.producer(sizes, topics) as producer,
        ):
            return await lab.measure(sizes, load, producer, worker.pid)


async def getmany(lab: Lab, sizes: Sizes) -> Run:
    async with lab.topics(sizes) as topics:
        settings = lab.kafka(sizes, topics) | {"warm": sizes.warm, "total": sizes.total}
        async with started("bare", settings, lab.new_folder()) as bare:
            await bare.hear("ready", START_SECONDS)
            async with lab.producer(sizes, topics) as producer:
                return await lab.measure(sizes, bare, producer, bare.pid)


async def ceiling(lab: Lab, sizes: Sizes, slice_bytes: int) -> Run:
    """Send the frames of the counted run, in slices of so many bytes."""
    sizes = replace(sizes, mode="push", tls=False)
    settings = {
        "frames": str(lab.frames),
        "warm": sizes.warm,
        "slice": slice_bytes,
        "subscribers": sizes.subscribers,
    }
    async with started("ceiling", settings, lab.new_folder()) as worker:
        server = Server(await worker.hear("port", START_SECONDS), worker.pid)
        async with lab.load(sizes, server, ["ready-made"]) as load:
            await worker.hear("ready", START_SECONDS)
            return await lab.measure(sizes, load, worker, worker.pid)


async def calibrated(lab: Lab, sizes: Sizes, *, best: bool) -> dict[System, int]:
    """Return the gateway's mean slice, and the best one for the ceiling; found once in a scenario."""
    if "ceiling" not in lab.slices:
        sends, size = await _counted(lab, sizes)
        lab.slices["ceiling"] = size
        lab.note.say(f"  the gateway made {sends:,} sends of {size:,} bytes in the mean")
    if best and "best ceiling" not in lab.slices:
        rates = {size: (await ceiling(lab, sizes, size)).rate for size in sizes.slices}
        lab.slices["best ceiling"] = max(rates, key=rates.__getitem__)
        told = ", ".join(f"{size:,} B {rate:,.0f}/s" for size, rate in rates.items())
        lab.note.say(f"  ceiling by slice: {told}")
    return lab.slices


async def _counted(lab: Lab, sizes: Sizes) -> tuple[int, int]:
    """Run the gateway untimed. Returns its sends that took something, and their mean bytes. What one client
    read is kept for the ceiling."""
    sizes = replace(sizes, mode="push", tls=False)
    counts = lab.new_folder() / "counts"
    async with (
        lab.topics(sizes) as topics,
        lab.gateway(sizes, topics, ("benchmarks.workers.counted_gateway", str(counts))) as server,
        lab.load(sizes, server, topics, capture=str(lab.frames)) as load,
        lab.producer(sizes, topics) as producer,
    ):
        counted = await lab.measure(sizes, load, producer, server.pid)
        if counted.faults:
            raise RunFailed(f"the frames of this run cannot be used: {'; '.join(counted.faults)}")
        found = await read_file(server, counts)
    return found["sends"], round(found["sent"] / found["sends"])


async def read_file(server: Server, file: Path) -> dict[str, Any]:
    """Return what a counted or profiled gateway writes to its file when it is asked to."""
    assert server.child is not None
    server.child.signal(signal.SIGUSR1)
    path = trio.Path(file)
    with trio.move_on_after(START_SECONDS):
        while not await path.exists():  # noqa: ASYNC110  (another process writes it)
            await trio.sleep(_POLL)
        found: dict[str, Any] = json.loads(await path.read_text())
        await path.unlink()
        return found
    raise RunFailed(f"the gateway did not write {file.name}")


def figures(runs: Mapping[System, Run]) -> Figures:
    """Return every figure that these runs give."""
    found: dict[str, float] = {}
    ours = runs.get("gateway") or runs.get("target")
    if ours is None:
        return found
    found["deliveries"], found["records"] = ours.rate, ours.records_rate
    found |= _by_cpu(ours)
    found["client headroom"] = ours.per_client_cpu / ours.rate
    if "peer" in runs:
        found |= {f"{name} of the peer": value for name, value in _by_cpu(runs["peer"]).items()}
    for system, name in _COMPARED.items():
        other = runs.get(system)
        if other is not None:
            found[name] = ours.rate / other.rate
            found[f"{name}, by cpu"] = ours.per_cpu / other.per_cpu
    if "getmany" in runs:
        found["of getmany"] = ours.records_rate / runs["getmany"].records_rate
        found["of getmany, by cpu"] = ours.records_per_cpu / runs["getmany"].records_per_cpu
    if "best ceiling" in runs:
        alone = runs["best ceiling"]
        found["load client alone"] = alone.per_client_cpu / ours.rate
    return found


def _by_cpu(one: Run) -> Figures:
    return {"deliveries per cpu second": one.per_cpu, "server cpu per delivery": one.cpu_each}


_COMPARED: dict[System, str] = {
    "ceiling": "of the ceiling",
    "best ceiling": "of the best ceiling",
    "peer": "times the peer",
    "push": "of push",
    "plain": "of plain",
    "bare gateway": "of bare",
}
