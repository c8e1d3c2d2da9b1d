"""What subscribers and publishers notice of clients beside them that ask for all that the gateway can give.

Each is measured alone, beside such clients, and, as those use the same cores, beside a process that uses as
much of them and does not come to the gateway: the control. What is beyond that is the gateway's. The control
of a fan-out is the same one by a gateway of its own, as it is also the broker's work, and its producer's.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from statistics import median
from typing import Any, Final

from benchmarks.errors import RunVoid
from benchmarks.lab import RUN_SECONDS, Lab, all_sent
from benchmarks.process import Worker, started
from benchmarks.procfs import Meter
from benchmarks.run import Run
from benchmarks.scenario import Figures, Goal, Scenario
from benchmarks.scenarios.scan import SQL, fill
from benchmarks.serving import START_SECONDS, Server
from benchmarks.sizes import Sizes
from benchmarks.statements import PASSING, passing, select
from benchmarks.workers.child import now

Beside = str | float
"""A kind of clients, a fan-out at another gateway, or a process that uses so much of a core."""

_SCANS: Final[Mapping[str, int]] = {"a scan": 1, "eight scans": 8}
_GREEDY: Final = (*_SCANS, "a flood")
_FAN_OUTS: Final[Mapping[str, int]] = {
    "a fan-out of 50/s": 50,
    "a fan-out of 200/s": 200,
    "a fan-out in bulk": 20_000,
}
"""Records per second; the last as in `benchmarks lenses`. Its producer, the broker and 100 clients may want
more than there is of two cores: then clients are behind, and its control is slow, too."""
_RATE: Final = 500
_FAN_OUT_CLIENTS: Final = 100
_ELSEWHERE: Final = ", elsewhere"
_STARTS_SECONDS: Final = 60.0
"""That its producer goes on for longer than is measured beside it: others start meanwhile."""
_WARM: Final = 1.0
"""Seconds for which a lone publisher publishes before that counts."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """Hold the p99 of subscribers and of a lone publisher (ms), and the shares of a core that the clients
    beside them and the broker used."""

    subscribers: float
    publisher: float
    clients: float
    broker: float


async def beside(lab: Lab, sizes: Sizes, kinds: Collection[str]) -> Figures:
    """Measure beside each kind of clients and beside the control of each, and alone just before. The speed of
    a shared machine drifts over minutes, so a kind is compared with nothing older."""
    alones: list[_Measured] = []
    found: dict[str, float] = {}
    async with lab.topics(replace(sizes, topics=1)) as (large,):
        await fill(lab, sizes, large)
        await _run(lab, sizes, large, None)  # does not count: the broker has just begun
        for kind in kinds:
            alone = await _run(lab, sizes, large, None)
            there = await _run(lab, sizes, large, kind)
            used = there.clients + max(0.0, there.broker - alone.broker)
            control = await _run(lab, sizes, large, kind + _ELSEWHERE if kind in _FAN_OUTS else used)
            alones.append(alone)
            found |= {
                f"p99 beside {kind} / alone": there.subscribers / alone.subscribers,
                f"p99 beside {kind} / control": there.subscribers / control.subscribers,
                f"p99 beside {kind}": there.subscribers,
                f"publisher p99 beside {kind} / alone": there.publisher / alone.publisher,
                f"publisher p99 beside {kind} / control": there.publisher / control.publisher,
                f"publisher p99 beside {kind}": there.publisher,
                f"cpu of {kind}": used,
            }
    return {
        "p99 alone": median(alone.subscribers for alone in alones),
        "publisher p99 alone": median(alone.publisher for alone in alones),
        **found,
    }


async def _run(lab: Lab, sizes: Sizes, large: str, what: Beside | None) -> _Measured:
    """Measure subscribers, then a lone publisher, at a gateway of their own. what: is beside them."""
    lab.note.say(f"  beside {'nothing' if what is None else what}")
    async with (
        lab.topics(replace(sizes, topics=3)) as (live, published, other),
        lab.gateway(sizes, [live, published, other, large]) as server,
        _beside(lab, sizes, server, large, other, what) as them,
    ):
        for pid in them:  # they would be on machines of their own: they get what others leave of these cores
            os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
        begun, meter = now(), Meter({"them": them, "broker": lab.broker_pid})
        one = await _subscribers(lab, sizes, server, live, what)
        publisher = await _publisher(lab, sizes, server, published, what)
        used, seconds = meter.used(), now() - begun
    return _Measured(one.delays["p99"], publisher, used["them"] / seconds, used["broker"] / seconds)


async def _subscribers(lab: Lab, sizes: Sizes, server: Server, topic: str, what: Beside | None) -> Run:
    async with lab.load(sizes, server, [topic]) as load, lab.producer(sizes, [topic]) as producer:
        one = await lab.measure(sizes, load, producer, server.pid)
    return lab.checked("gateway", sizes, one, beside=what)


async def _publisher(lab: Lab, sizes: Sizes, server: Server, topic: str, what: Beside | None) -> float:
    """Return the p99 of a lone publisher."""
    settings = {
        "host": server.host,
        "port": server.port,
        "source": topic,
        "size": sizes.size,
        "warm": _WARM,
        "seconds": sizes.seconds / 2,
    }
    async with started("lone_publisher", settings, lab.new_folder()) as publisher:
        await publisher.hear("ready", START_SECONDS)
        await publisher.tell()
        said = await publisher.hear_any(RUN_SECONDS)
    lab.note.line({"system": "gateway", "publisher": True, "beside": what, **said})
    if said["faults"]:
        raise RunVoid("; ".join(said["faults"]))
    return float(said["delays"]["p99"])


@asynccontextmanager
async def _beside(
    lab: Lab, sizes: Sizes, server: Server, large: str, other: str, what: Beside | None
) -> AsyncIterator[list[int]]:
    """Have that run while the block does. Yields its processes. other: a topic of its own."""
    if what is None:
        yield []
    elif isinstance(what, float):
        async with _burning(lab, what) as pids:
            yield pids
    elif what in _FAN_OUTS:
        async with _fanned_out(lab, sizes, server, other, _FAN_OUTS[what]) as pids:
            yield pids
    elif what.endswith(_ELSEWHERE):
        rate = _FAN_OUTS[what.removesuffix(_ELSEWHERE)]
        async with (
            lab.gateway(sizes, [other]) as another,
            _fanned_out(lab, sizes, another, other, rate) as pids,
        ):
            yield pids
    else:
        settings: dict[str, Any] = {"host": server.host, "port": server.port}
        if what == "a flood":
            settings |= {"source": other, "size": 200, "keys": 100}
        else:
            count = sum(1 for _ in passing(PASSING, sizes.records, sizes.partitions))
            sql = select(large, PASSING)
            settings |= {"sql": sql, "clients": _SCANS[what], "passing": count}
        name = "flood" if what == "a flood" else "scans"
        async with started(name, settings, lab.new_folder()) as them:
            await _begin(them)
            yield [them.pid]
            await them.tell()
            said = await them.hear_any(RUN_SECONDS)
        lab.note.line({"system": "gateway", "those": what, **said})
        if said["faults"]:
            raise RunVoid(f"{what}: {'; '.join(said['faults'])}")


@asynccontextmanager
async def _fanned_out(
    lab: Lab, sizes: Sizes, server: Server, topic: str, rate: int
) -> AsyncIterator[list[int]]:
    """Have clients of Lenses' v1 read another topic. Raises RunVoid if that was over before the block."""
    theirs = replace(
        sizes,
        protocol="lenses",
        subscribers=_FAN_OUT_CLIENTS,
        rate=rate if sizes.rate >= _RATE else min(sizes.rate, rate),
        delays=0,
        seconds=2 * sizes.seconds + _STARTS_SECONDS,
    )
    async with lab.load(theirs, server, [topic]) as load, lab.producer(theirs, [topic]) as producer:
        await producer.tell()
        await all_sent(producer)
        await load.hear("warm", RUN_SECONDS)
        await producer.tell()
        begun = (await producer.hear_any(START_SECONDS))["started"]
        yield [load.pid, producer.pid]
        if now() > begun + theirs.seconds:
            raise RunVoid("a fan-out: it was over too early")


@asynccontextmanager
async def _burning(lab: Lab, share: float) -> AsyncIterator[list[int]]:
    """Use so much of a core, or of several."""
    parts = max(1, ceil(share))
    settings = {"share": share / parts}
    async with started("burner", settings, lab.new_folder()) as first:
        await _begin(first)
        if parts == 1:
            yield [first.pid]
            return
        async with _burning(lab, share - share / parts) as others:
            yield [first.pid, *others]


async def _begin(worker: Worker) -> None:
    await worker.hear("ready", START_SECONDS)
    await worker.tell()


def _goals(kind: str) -> tuple[Goal, ...]:
    return (
        Goal(f"p99 beside {kind} / alone", "x", at_most=2.0),
        Goal(f"p99 beside {kind} / control", "x"),
        Goal(f"p99 beside {kind}", "ms"),
        Goal(f"publisher p99 beside {kind} / alone", "x", at_most=2.0),
        Goal(f"publisher p99 beside {kind} / control", "x"),
        Goal(f"publisher p99 beside {kind}", "ms"),
        Goal(f"cpu of {kind}", "%"),
    )


def scenario(name: str, beside_what: str, kinds: Collection[str]) -> Scenario:
    """Return the one that measures beside each of these kinds."""
    return Scenario(
        name=name,
        says=f"500 records/s to 100 subscribers, then a lone publisher, beside {beside_what}",
        measure=partial(beside, kinds=kinds),
        sizes=Sizes(
            rate=_RATE,
            records=1_000_000,
            delays=100,
            warm=1_000,
            steady=1_000,
            source={"publish": True},
            settings=SQL,
        ),
        goals=(
            Goal("p99 alone", "ms"),
            Goal("publisher p99 alone", "ms"),
            *(goal for kind in kinds for goal in _goals(kind)),
        ),
        small={"subscribers": 4, "delays": 4, "rate": 200, "seconds": 1.0, "records": 2_000, "warm": 100},
        repeat=3,
        needs="replay",
    )


SCENARIOS = (
    scenario(
        "beside",
        "clients of Lenses that ask for all they can get: statements of SQL v2 that go through a topic again "
        "and again, PUBLISHes without a pause. The control uses as much of the cores without coming to the "
        "gateway",
        _GREEDY,
    ),
    scenario(
        "beside-fan-out",
        "100 clients of Lenses' v1 that read so many records/s of another topic, in bulk 20,000. The control "
        "is the same by another gateway",
        _FAN_OUTS,
    ),
)
