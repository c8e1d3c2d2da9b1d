"""Producing and reading over HTTP, by Pulsar's REST interface, beside what somebody writes with aiohttp and
aiokafka."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from benchmarks.errors import RunVoid
from benchmarks.lab import RUN_SECONDS, Lab, all_sent
from benchmarks.process import started
from benchmarks.procfs import Meter
from benchmarks.scenario import Figures, Goal, Measure, Scenario
from benchmarks.serving import START_SECONDS
from benchmarks.sizes import Sizes
from kiwi_demo.loopback import HOST


def producing(connections: int, messages: int) -> Measure:
    """Make the measurement: so many connections, each with one request of so many messages at a time."""

    async def measure(lab: Lab, sizes: Sizes) -> Figures:
        asked = {"connections": connections, "messages": messages}
        async with lab.topics(replace(sizes, topics=2)) as (own, others):
            async with lab.gateway(sizes, [own]) as server:
                assert server.pid is not None
                found = await _run(
                    lab, sizes, "gateway", server.pid, asked | {"port": server.port, "topic": own}
                )
            settings = {"bootstrap": lab.bootstrap, "topic": others}
            async with started("rest_peer", settings, lab.new_folder()) as peer:
                port = await peer.hear("port", START_SECONDS)
                beside = await _run(lab, sizes, "peer", peer.pid, asked | {"port": port, "topic": others})
        return found | {f"{name} of the peer": value for name, value in beside.items()}

    return measure


async def reading(lab: Lab, sizes: Sizes) -> Figures:
    """Measure readers of a topic that was filled before the gateway began, each request of 1,000 messages."""
    filled = replace(sizes, warm=sizes.records)
    asked: dict[str, object] = {
        "messages": 1_000,
        "readers": 2,
        "records": sizes.records,
        "partitions": sizes.partitions,
    }
    async with lab.topics(sizes) as topics, lab.producer(filled, topics, total=sizes.records) as producer:
        await producer.tell()
        await all_sent(producer)
        asked["topic"] = topics[0]
        async with lab.gateway(sizes, topics) as server:
            assert server.pid is not None
            found = await _read(lab, sizes, "gateway", server.pid, asked | {"port": server.port})
        settings = {"bootstrap": lab.bootstrap, "topic": topics[0]}
        async with started("rest_peer", settings, lab.new_folder()) as peer:
            port = await peer.hear("port", START_SECONDS)
            beside = await _read(lab, sizes, "peer", peer.pid, asked | {"port": port})
    return found | {f"{name} of the peer": value for name, value in beside.items()}


async def consuming(lab: Lab, sizes: Sizes) -> Figures:
    """Measure consumers of a subscription: each fetch brings 1,000 messages, which are acknowledged."""
    filled = replace(sizes, warm=sizes.records)
    asked: dict[str, object] = {"messages": 1_000, "consumers": 4, "records": sizes.records}
    async with lab.topics(sizes) as topics, lab.producer(filled, topics, total=sizes.records) as producer:
        await producer.tell()
        await all_sent(producer)
        async with lab.gateway(sizes, topics) as server:
            assert server.pid is not None
            asked |= {"topic": topics[0], "port": server.port, "warm": sizes.records // 10}
            said, used = await _said(lab, sizes, "rest_consumers", "gateway", server.pid, asked)
    return {
        "consumed": said["consumed"] / said["seconds"],
        "consumed per cpu second": said["total"] / max(used, 0.01),
        "p99 of a fetch": said["delays"]["p99"],
    }


async def beside(lab: Lab, sizes: Sizes) -> Figures:
    """Measure subscribers of one topic at a rate, alone, and while another topic is written over HTTP as fast
    as that goes."""
    async with lab.topics(replace(sizes, topics=2)) as topics:
        alone = await _pushed(lab, sizes, topics[0], None)
    async with lab.topics(replace(sizes, topics=2)) as topics:
        found = await _pushed(lab, sizes, topics[0], topics[1])
    return {
        "pushed beside / without": found["pushed"] / max(alone["pushed"], 0.01),
        "p99 beside / without": found["p99"] / max(alone["p99"], 0.01),
        "pushed": found["pushed"],
        "p99": found["p99"],
        "produced": found["produced"],
    }


async def stalled(lab: Lab, sizes: Sizes) -> Figures:
    """Measure subscribers of one topic at a rate, alone, and while clients have asked for all of another one
    over HTTP and read nothing."""
    async with lab.topics(replace(sizes, topics=2)) as topics:
        alone = await _pushed(lab, sizes, topics[0], None)
    async with lab.topics(replace(sizes, topics=2)) as (own, filled):
        whole = replace(sizes, warm=sizes.records)
        async with lab.producer(whole, [filled], total=sizes.records) as producer:
            await producer.tell()
            await all_sent(producer)
        found = await _pushed(lab, sizes, own, filled, _STALLED)
    return {
        "p99 beside / without": found["p99"] / max(alone["p99"], 0.01),
        "pushed beside / without": found["pushed"] / max(alone["pushed"], 0.01),
        "p99": found["p99"],
    }


async def _pushed(
    lab: Lab, sizes: Sizes, topic: str, other: str | None, clients: int = 0
) -> dict[str, float]:
    """Measure a topic at a rate, and its subscribers. other: a topic that is written over HTTP meanwhile, or
    that so many clients have asked for who do not read."""
    async with (
        lab.gateway(sizes, [topic] if other is None else [topic, other]) as server,
        lab.load(sizes, server, [topic]) as load,
        lab.producer(sizes, [topic]) as producer,
        AsyncExitStack() as stack,
    ):
        them, name = None, "rest_stalled" if clients else "rest_producers"
        if other is not None:
            settings: dict[str, Any] = {"host": HOST, "port": server.port, "topic": other}
            if clients:
                settings |= {"clients": clients, "partitions": sizes.partitions}
            else:
                settings |= {"connections": 8, "messages": 100, "size": sizes.size}
                settings |= {"warm": sizes.warm / sizes.rate, "seconds": sizes.seconds}
            them = await stack.enter_async_context(started(name, settings, lab.new_folder()))
            await them.hear("ready", START_SECONDS)
            if not clients:
                await them.tell()
        one = lab.checked("gateway", sizes, await lab.measure(sizes, load, producer, server.pid))
        said: dict[str, Any] = {"faults": ()}
        if them is not None:
            if clients:
                await them.tell()
            said = await them.hear_any(RUN_SECONDS)
    if said["faults"]:
        raise RunVoid(f"over HTTP: {'; '.join(said['faults'])}")
    produced = said["published"] / said["seconds"] if "published" in said else 0.0
    return {"pushed": one.deliveries / one.seconds, "p99": one.delays["p99"], "produced": produced}


async def _read(
    lab: Lab, sizes: Sizes, system: str, pid: int, asked: Mapping[str, object]
) -> dict[str, float]:
    said, used = await _said(lab, sizes, "rest_readers", system, pid, asked)
    return {
        "read": said["read"] / said["seconds"],
        "read per cpu second": said["total"] / max(used, 0.01),
        "p99 of a request": said["delays"]["p99"],
        "p50 of a request": said["delays"]["p50"],
    }


async def _run(
    lab: Lab, sizes: Sizes, system: str, pid: int, asked: Mapping[str, object]
) -> dict[str, float]:
    said, used = await _said(lab, sizes, "rest_producers", system, pid, {"size": sizes.size, **asked})
    return {
        "produced": said["published"] / said["seconds"],
        "produced per cpu second": said["total"] / max(used, 0.01),
        "p99 of a request": said["delays"]["p99"],
        "p50 of a request": said["delays"]["p50"],
    }


async def _said(
    lab: Lab, sizes: Sizes, worker: str, system: str, pid: int, asked: Mapping[str, object]
) -> tuple[dict[str, Any], float]:
    """Run clients. Returns what they say, and the CPU seconds of the server. Raises RunVoid."""
    settings: dict[str, Any] = {
        "host": HOST,
        "warm": sizes.seconds / 5,
        "seconds": sizes.seconds,
        **asked,
    }
    async with started(worker, settings, lab.new_folder()) as clients:
        await clients.hear("ready", START_SECONDS)
        meter = Meter({"server": pid})
        await clients.tell()
        said = await clients.hear_any(RUN_SECONDS)
        used = meter.used()["server"]
    lab.note.line({"system": system, **said, "server_cpu": used})
    if said["faults"]:
        raise RunVoid(f"{system}: {'; '.join(said['faults'])}")
    return said, used


def _goals(times_peer: float, what: str = "produced") -> tuple[Goal, ...]:
    """Make them; times_peer: how much is to be produced, or read, of what the peer does."""
    return (
        Goal(what, "/s", times_peer=times_peer),
        Goal(f"{what} per cpu second", "/s"),
        Goal("p99 of a request", "ms"),
        Goal("p50 of a request", "ms"),
    )


_SIZES = Sizes(seconds=5.0, source={"publish": True}, settings={"pulsar": {"enabled": True}})
_SMALL = {"seconds": 0.5}
_STALLED = 100
"""Clients that ask and do not read."""

SCENARIOS = (
    Scenario(
        name="rest",
        says="8 producers over HTTP with requests of 100 messages of 128 bytes, acks=all; the peer: aiohttp "
        "and aiokafka, a send for each record",
        measure=producing(8, 100),
        sizes=_SIZES,
        goals=_goals(1.5),
        small=_SMALL,
    ),
    Scenario(
        name="rest-single",
        says="16 producers over HTTP with requests of one message of 128 bytes, acks=all; the peer as above",
        measure=producing(16, 1),
        sizes=_SIZES,
        goals=_goals(0.6),
        small=_SMALL,
    ),
    Scenario(
        name="rest-read",
        says="8 readers over HTTP of a topic that Kafka keeps, 1,000 messages of 128 bytes in each answer; "
        "the peer: aiohttp and aiokafka, a consumer for each partition, which seeks",
        measure=reading,
        sizes=replace(_SIZES, records=200_000),
        goals=_goals(2.0, "read"),
        small={"seconds": 2.0, "records": 8_000},
    ),
    Scenario(
        name="rest-consume",
        says="4 consumers over HTTP of one subscription fetch 1,000 messages of 128 bytes at a time and "
        "acknowledge each of them; no peer does that",
        measure=consuming,
        sizes=replace(_SIZES, records=200_000, source={"publish": True, "commit": True}),
        goals=(
            Goal("consumed", "/s", at_least=20_000),
            Goal("consumed per cpu second", "/s"),
            Goal("p99 of a fetch", "ms"),
        ),
        small={"seconds": 2.0, "records": 8_000},
    ),
    Scenario(
        name="rest-beside",
        says="500 records/s to 100 subscribers, with and without 8 producers over HTTP that write another "
        "topic with requests of 100 messages, as fast as that goes",
        measure=beside,
        sizes=replace(_SIZES, rate=500, delays=100, warm=2_500, steady=2_500, seconds=10.0),
        goals=(
            Goal("pushed beside / without", "x", at_least=0.9),
            Goal("p99 beside / without", "x"),
            Goal("pushed", "/s"),
            Goal("p99", "ms"),
            Goal("produced", "/s"),
        ),
        small={"seconds": 1.0, "warm": 100, "subscribers": 5, "rate": 200},
    ),
    Scenario(
        name="rest-stalled",
        says="500 records/s to 100 subscribers, with and without 100 clients that have asked over HTTP for "
        "all of another topic, without end, and read nothing",
        measure=stalled,
        sizes=replace(_SIZES, rate=500, delays=100, warm=2_500, steady=2_500, seconds=10.0, records=200_000),
        goals=(
            Goal("p99 beside / without", "x", at_most=2.0),
            Goal("pushed beside / without", "x"),
            Goal("p99", "ms"),
        ),
        small={"seconds": 1.0, "warm": 100, "subscribers": 5, "rate": 200, "records": 8_000},
    ),
)
