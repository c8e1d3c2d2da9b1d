"""What queries cost, and other protocols beside the native one."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.lab import Lab
from benchmarks.process import started
from benchmarks.protocols import queries
from benchmarks.run import Run
from benchmarks.scenario import Figures, Goal, Scenario
from benchmarks.serving import START_SECONDS
from benchmarks.sizes import Sizes
from benchmarks.throughput import run

_SMALL = {"subscribers": 4, "records": 1_000, "warm": 400, "sets": 4}
_BATCH = 2_000
"""Records that the Kafka source hands over at a time, at most."""


async def filters(lab: Lab, sizes: Sizes) -> Figures:
    """Let everything pass, so that all runs deliver the same, and the queries are all that is added."""
    without = await run(lab, "gateway", sizes)
    found = {"deliveries without": without.rate, "server cpu per delivery": without.cpu_each}
    for count in (1, 10, 100):
        part = 1 if count == 1 else 10  # of the records: each is looked at so often
        few = replace(sizes, records=max(500, sizes.records // part))
        beside = without if part == 1 else await run(lab, "gateway", few)
        one = await run(lab, "gateway", replace(few, queries=count))
        found |= _compared(f"with {count}", one, beside)
    settings = {"records": _BATCH, "size": sizes.size, "rounds": 200, "where": queries(1)[0]["where"]}
    async with started("filtering", settings, lab.new_folder()) as worker:
        said = await worker.hear_any(START_SECONDS)
    return found | {"decode and filter": said["decoded"], "filter alone": said["filtered"]}


async def zetta(lab: Lab, sizes: Sizes) -> Figures:
    """Send the same records to as many subscribers: natively, as topics with equal ids, and with ids that no
    two of them have alike."""
    native = await run(lab, "gateway", replace(sizes, sets=1))
    topics = replace(sizes, protocol="zetta")
    equal = await run(lab, "gateway", replace(topics, sets=1))
    few = replace(sizes, records=max(500, sizes.records // 10))
    native_few = await run(lab, "gateway", replace(few, sets=1))
    different = await run(lab, "gateway", replace(few, protocol="zetta"))
    return {
        "deliveries, equal ids": equal.rate,
        "server cpu per delivery": equal.cpu_each,
        **_compared("equal ids", equal, native),
        **_compared("different ids", different, native_few),
    }


async def lenses(lab: Lab, sizes: Sizes) -> Figures:
    """Send the same records, with the same members, to as many subscribers natively and in Lenses' v1, where
    each has an id of its own. At a rate that all keep up with: the load client takes longer to take frames of
    many events apart, so as fast as possible it would be what is measured."""
    native = await run(lab, "gateway", sizes)
    table = await run(lab, "gateway", replace(sizes, protocol="lenses"))
    return {
        "server cpu per delivery": table.cpu_each,
        "of native, by cpu": table.per_cpu / native.per_cpu,
    }


def _compared(name: str, one: Run, other: Run) -> Figures:
    return {name: one.rate / other.rate, f"{name}, by cpu": one.per_cpu / other.per_cpu}


SCENARIOS = (
    Scenario(
        name="filters",
        says="every record to 100 push subscribers with 1, 10 and 100 different queries, against none",
        measure=filters,
        sizes=Sizes(),
        goals=(
            Goal("deliveries without", "/s"),
            Goal("server cpu per delivery", "us"),
            Goal("with 1", "%", at_least=0.9),
            Goal("with 1, by cpu", "%"),
            Goal("with 10", "%"),
            Goal("with 10, by cpu", "%"),
            Goal("with 100", "%"),
            Goal("with 100, by cpu", "%"),
            Goal("decode and filter", "/s", at_least=700_000),
            Goal("filter alone", "/s", at_least=2_000_000),
        ),
        small=_SMALL,
    ),
    Scenario(
        name="zetta",
        says="every record to 100 subscribers of topics, against 100 native ones",
        measure=zetta,
        sizes=Sizes(sets=100),
        goals=(
            Goal("deliveries, equal ids", "/s"),
            Goal("server cpu per delivery", "us"),
            Goal("equal ids", "%", at_least=0.8),
            Goal("equal ids, by cpu", "%"),
            Goal("different ids", "%", at_least=0.5),
            Goal("different ids, by cpu", "%"),
        ),
        small=_SMALL,
    ),
    Scenario(
        name="lenses",
        says="20,000 records/s to 100 subscribers of Lenses' v1, each its own id, against 100 native ones",
        measure=lenses,
        sizes=Sizes(
            rate=20_000,
            seconds=5.0,
            steady=4_000,
            source={"fields": ["key", "value", "partition", "offset", "timestamp"]},
            settings={"lenses": {"enabled": True}},
        ),
        goals=(
            Goal("server cpu per delivery", "us"),
            Goal("of native, by cpu", "%", at_least=0.8),
        ),
        small={"subscribers": 4, "rate": 2_000, "seconds": 0.5, "warm": 400, "steady": 200},
    ),
)
