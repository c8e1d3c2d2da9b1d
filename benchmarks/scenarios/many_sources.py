"""A hundred topics, each with one subscriber."""

from __future__ import annotations

from dataclasses import replace

import trio

from benchmarks.lab import Lab
from benchmarks.procfs import Meter
from benchmarks.scenario import Figures, Goal, Scenario
from benchmarks.scenarios.delays import of
from benchmarks.sizes import Sizes
from benchmarks.throughput import run


async def sources(lab: Lab, sizes: Sizes) -> Figures:
    """Measure one after the other: as fast as possible; the same records in one topic; at a rate; and idle.
    The one topic has one subscriber, then so few records that there are as many deliveries to as many
    subscribers."""
    fast = replace(sizes, rate=0, delays=0)
    many = await run(lab, "gateway", fast)
    one_topic = replace(fast, topics=1, records=fast.records * fast.topics)
    one = await run(lab, "gateway", replace(one_topic, subscribers=1))
    crowd = await run(lab, "gateway", replace(one_topic, records=one_topic.records // 4))
    return {
        "records": many.records_rate,
        "of one topic with 100 subscribers": many.rate / crowd.rate,
        "of one topic with one subscriber": many.records_rate / one.records_rate,
        **await at_a_rate(lab, sizes),
    }


async def at_a_rate(lab: Lab, sizes: Sizes) -> Figures:
    """Measure topics at a rate, and idle."""
    found = of(await run(lab, "gateway", sizes))
    return found | {"server cpu, idle": await _idle(lab, replace(sizes, rate=0, delays=0))}


async def _idle(lab: Lab, sizes: Sizes) -> float:
    lab.note.say("  idle")
    async with (
        lab.topics(sizes) as topics,
        lab.gateway(sizes, topics) as server,
        lab.load(sizes, server, topics),
    ):
        assert server.pid is not None
        # Consumers are made while subscribers come, and topics looked at.
        await trio.sleep(sizes.seconds / 2)
        meter = Meter({"server": server.pid})
        await trio.sleep(sizes.seconds)  # what is measured is this time
        return meter.used()["server"] / sizes.seconds


SCENARIOS = (
    Scenario(
        name="sources",
        says="one subscriber on each of 100 topics of 4 partitions; at 20 records/s each; idle",
        measure=sources,
        sizes=Sizes(topics=100, records=4_000, warm=200, steady=200, rate=20, seconds=20.0, delays=100),
        goals=(
            Goal("records", "/s"),
            Goal("of one topic with 100 subscribers", "%", at_least=0.7),
            Goal("of one topic with one subscriber", "%"),
            Goal("p50", "ms"),
            Goal("p99", "ms", at_most=60.0),
            Goal("server cpu", "%", at_most=0.25),
            Goal("server cpu per delivery", "us"),
            Goal("server cpu, idle", "%", at_most=0.03),
        ),
        small={"topics": 2, "subscribers": 2, "records": 400, "seconds": 1.0, "delays": 2},
    ),
)
