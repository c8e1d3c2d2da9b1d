"""How fast statements of Lenses' SQL v2 go through what Kafka has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.errors import RunVoid
from benchmarks.lab import RUN_SECONDS, Lab, all_sent, finished, made
from benchmarks.process import Worker, started
from benchmarks.procfs import Meter
from benchmarks.scenario import Figures, Goal, Scenario
from benchmarks.serving import START_SECONDS, Server
from benchmarks.sizes import Sizes
from benchmarks.statements import PASSING, PASSING_BY_PLACE, select
from benchmarks.workers.child import now

SQL = {"lenses": {"enabled": True, "sql": {"max_size": "16GiB", "queries_identity": 64}}}
"""Settings with which statements may go through everything here, and so many at a time."""

_ASKED = {"": PASSING, "by place": PASSING_BY_PLACE, "of all": ""}
"""The conditions, by what their figures are called."""


async def scan(lab: Lab, sizes: Sizes) -> Figures:
    """Execute one statement after the other, each through the whole topic, which was filled before the
    gateway began; the first one twice, as the first does not count. Then replay the same natively."""
    async with lab.topics(sizes) as (topic,):
        await fill(lab, sizes, topic)
        async with lab.gateway(sizes, [topic]) as server:
            asked = [PASSING, *_ASKED.values()]
            settings = {
                "host": server.host,
                "port": server.port,
                "partitions": sizes.partitions,
                "records": sizes.records,
                "statements": [(select(topic, where), where) for where in asked],
            }
            async with started("scanner", settings, lab.new_folder()) as scanner:
                await scanner.hear("ready", START_SECONDS)
                await _one(lab, sizes, server, scanner, "before them")
                found: dict[str, float] = {}
                for name in _ASKED:
                    found |= await _one(lab, sizes, server, scanner, name)
            replayed = await _replayed(lab, sizes, server, topic)
    found["of a replay, by cpu"] = found["scanned per cpu second, of all"] / replayed
    return found


async def fill(lab: Lab, sizes: Sizes, topic: str) -> None:
    """Give a topic its records."""
    async with lab.producer(
        replace(sizes, rate=0), [topic], warm=sizes.records, total=sizes.records
    ) as producer:
        await producer.tell()
        await all_sent(producer)


async def _one(lab: Lab, sizes: Sizes, server: Server, scanner: Worker, name: str) -> Figures:
    """Execute the next statement."""
    assert server.pid is not None
    lab.note.say(f"  scan {name}")
    meter = Meter({"server": server.pid})
    await scanner.tell()
    said: dict[str, Any] = await scanner.hear_any(RUN_SECONDS)
    used = meter.used()["server"]
    wrong = await scanner.hear("faults", RUN_SECONDS)
    lab.note.line({"system": "gateway", "scan": name, **said, "server_cpu": used, "faults": wrong})
    if wrong:
        raise RunVoid("; ".join(wrong))
    by = f", {name}" if name else ""
    return {
        f"scanned{by}": sizes.records / said["seconds"],
        f"scanned per cpu second{by}": sizes.records / max(used, 0.01),
        f"first RECORD{by}": (said["first"] or said["seconds"]) * 1e3,
    }


async def _replayed(lab: Lab, sizes: Sizes, server: Server, topic: str) -> float:
    """Return how many records a native replay of everything takes from the topic per second of the gateway's
    processor time."""
    lab.note.say("  a replay")
    assert server.pid is not None
    one = replace(sizes, subscribers=1, warm=1, records=sizes.records - 1, subscribe={"from": "earliest"})
    async with lab.load(one, server, [topic]) as load:
        begun, meter = now(), Meter({"server": server.pid})
        await load.hear("warm", START_SECONDS)
        done, used = await finished(load), meter.used()
        result = await load.hear("result", RUN_SECONDS)
    return lab.checked("gateway", one, made(one, result, done, begun, used, {}), replay=True).records_per_cpu


SCENARIOS = (
    Scenario(
        name="scan",
        says="SQL v2 of Lenses goes through 1,000,000 records in Kafka: of those one in 61 passes, by its "
        "value; by its place; all",
        measure=scan,
        sizes=Sizes(records=1_000_000, warm=0, settings=SQL),
        goals=(
            Goal("scanned", "/s", at_least=250_000),
            Goal("scanned per cpu second", "/s"),
            Goal("first RECORD", "ms", at_most=200.0),
            Goal("scanned, by place", "/s"),
            Goal("scanned per cpu second, by place", "/s"),
            Goal("first RECORD, by place", "ms"),
            Goal("scanned, of all", "/s"),
            Goal("scanned per cpu second, of all", "/s"),
            Goal("first RECORD, of all", "ms"),
            Goal("of a replay, by cpu", "%"),
        ),
        small={"records": 2_000},
        repeat=3,
        needs="replay",
    ),
)
