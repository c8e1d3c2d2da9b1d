"""The faults of a cluster of three, of which two must have a record before it counts (row R2, R4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import trio
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from kiwi_demo.broker import Broker
from tests.faults.brokers import three_brokers
from tests.faults.experiment import Injection, Phases, Scene, UnexpectedError
from tests.faults.leadership import Replicas, elect_first, in_sync, leaders, reassign, replicas
from tests.faults.proxy import BLACKHOLE, Proxy, proxy

T = TypeVar("T")
_PATIENCE_S = 60.0
_POLL_S = 0.1
_PROGRESS, _PROGRESS_S = 100, 10.0
"""So many events of a partition, within so many seconds, are progress."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Hold three brokers. brokers: by their ids, from 1 on; ways: the proxies before them, for a gateway."""

    brokers: list[Broker]
    ways: list[Proxy]

    @property
    def bootstrap(self) -> str:
        """Return the addresses past the proxies."""
        return ",".join(one.bootstrap for one in self.brokers)

    @property
    def proxied(self) -> str:
        return ",".join(f"127.0.0.1:{one.port}" for one in self.ways)


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    """Start three brokers that answer, each with all three in its metadata."""
    members = three_brokers(folder)
    brokers = [one.broker for one in members]
    try:
        await _all(brokers)
        async with AsyncExitStack() as stack:
            ways = [await stack.enter_async_context(proxy(one.behind, one.near)) for one in members]
            yield Cluster(brokers, ways)
    finally:
        with trio.CancelScope(shield=True):
            for one in brokers:
                await one.kill()


async def _all(brokers: Sequence[Broker]) -> None:
    async with trio.open_nursery() as nursery:
        for one in brokers:
            nursery.start_soon(one.start)
    for one in brokers:
        await until_whole(one.bootstrap, len(brokers))


async def until_whole(bootstrap: str, count: int, topic: str = "") -> None:
    """Wait until so many brokers are in the cluster, and in sync for every partition of the topic."""

    async def is_whole(admin: Any) -> bool:
        if len((await admin.describe_cluster())["brokers"]) < count:
            return False
        partitions = (await admin.describe_topics([topic]))[0]["partitions"] if topic else ()
        return all(len(one["isr"]) == count for one in partitions)

    while not await _asked(bootstrap, is_whole):  # noqa: ASYNC110  (the cluster sends no notice)
        await trio.sleep(_POLL_S)


async def leader_of(bootstrap: str, topic: str, partition: int = 0) -> int:
    """Return the id of the broker that leads; -1: none does."""

    async def leader(admin: Any) -> int:
        found = (await admin.describe_topics([topic]))[0]
        return next((int(one["leader"]) for one in found["partitions"] if one["partition"] == partition), -1)

    return await _asked(bootstrap, leader)


async def _asked(bootstrap: str, question: Callable[[Any], Awaitable[T]]) -> T:
    """Ask until a broker answers: one that has just died is still in the list of the others."""

    async def ask() -> T:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            await admin.start()
            return await question(admin)
        finally:
            await admin.close()

    with trio.fail_after(_PATIENCE_S):
        while True:
            try:
                return await trio.to_thread.run_sync(lambda: asyncio.run(ask()), abandon_on_cancel=True)
            except KafkaError:
                await trio.sleep(_POLL_S)


def cluster_faults(them: Cluster, stage: Scene | None = None) -> dict[str, tuple[Injection, Phases]]:
    """Return the faults by kind. What is struck is chosen when it is struck: leadership moves. Without
    `restore` after it the cluster goes on with two. stage: None: only for its names."""
    brokers, topic = them.brokers, "" if stage is None else stage.topic
    struck: list[Broker] = []

    async def find_leader() -> Broker:
        number = await leader_of(",".join(one.bootstrap for one in brokers), topic)
        struck[:] = [brokers[number - 1]]
        return struck[0]

    async def kill_leader() -> None:
        await (await find_leader()).kill()

    async def another_leads() -> None:
        alive = [one for one in brokers if one is not struck[0]]
        while await leader_of(alive[0].bootstrap, topic) in (-1, brokers.index(struck[0]) + 1):  # noqa: ASYNC110
            await trio.sleep(0.1)

    async def restart() -> None:
        await _all(brokers)
        await until_whole(brokers[0].bootstrap, len(brokers), topic)

    async def freeze_leader() -> None:
        (await find_leader()).freeze()

    async def thaw() -> None:
        struck[0].thaw()
        await restart()

    async def kill_all() -> None:
        for one in brokers:
            await one.kill()

    def bootstrap() -> str:
        return ",".join(one.bootstrap for one in brokers if one.running)

    async def reassigned(wanted: Replicas) -> None:
        """Wait until these hold all of it, and the first of each leads."""

        async def is_so(admin: Any) -> bool:
            held = {p: sorted(ids) for p, ids in wanted.items()}
            if await in_sync(admin, topic) != held:
                return False
            await elect_first(admin, topic, [*wanted])
            return await leaders(admin, topic) == {p: ids[0] for p, ids in wanted.items()}

        await _asked(bootstrap(), lambda admin: reassign(admin, topic, wanted))
        with trio.fail_after(_PATIENCE_S):
            while not await _asked(bootstrap(), is_so):  # noqa: ASYNC110  (the cluster sends no notice)
                await trio.sleep(_POLL_S)

    async def move_leaders() -> None:
        held = await _asked(bootstrap(), lambda admin: replicas(admin, topic))
        lead = await _asked(bootstrap(), lambda admin: leaders(admin, topic))
        await reassigned({p: [*(one for one in ids if one != lead[p]), lead[p]] for p, ids in held.items()})

    async def one_without_leading() -> Broker:
        """Return the last one, when it leads nothing any more."""
        last = len(brokers)
        held = await _asked(bootstrap(), lambda admin: replicas(admin, topic))
        await reassigned({p: [*(one for one in ids if one != last), last] for p, ids in held.items()})
        return brokers[-1]

    async def kill_follower() -> None:
        await (await one_without_leading()).kill()

    async def roll() -> None:
        """Restart one after the other, each in order; one that is not there comes first."""
        for one in sorted(brokers, key=lambda one: one.running):
            await one.stop()
            await one.start()
            await until_whole(one.bootstrap, len(brokers), topic)

    async def decommission() -> None:
        leaving = await one_without_leading()
        held = await _asked(bootstrap(), lambda admin: replicas(admin, topic))
        await reassigned({p: ids[:-1] for p, ids in held.items()})
        await leaving.stop()

    async def commission() -> None:
        await _all(brokers)
        held = await _asked(bootstrap(), lambda admin: replicas(admin, topic))
        await reassigned({p: [*ids, len(brokers)] for p, ids in held.items()})

    async def isolate_leader() -> None:
        """Cut the leader off from the gateway, which goes on with the other partitions."""
        found = await find_leader()
        lead = await _asked(bootstrap(), lambda admin: leaders(admin, topic))
        others = [p for p, leader in lead.items() if leader != brokers.index(found) + 1]
        them.ways[brokers.index(found)].apply(BLACKHOLE)
        watchers = [] if stage is None else stage.watchers
        begun = [dict(one.next) for one in watchers]
        with trio.move_on_after(_PROGRESS_S) as scope:
            for one, was in zip(watchers, begun, strict=True):
                await one.until(
                    lambda one=one, was=was: all(one.next[p] > was[p] + _PROGRESS for p in others)  # type: ignore[misc]
                )
        if not others or scope.cancelled_caught:
            raise UnexpectedError(f"no progress on the partitions {others}, whose leaders can be reached")

    async def reach_again() -> None:
        for way in them.ways:
            way.heal()
        await trio.lowlevel.checkpoint()

    async def nothing() -> None:
        await trio.lowlevel.checkpoint()

    phases = Phases(impacted=3, patience=60)
    found = [
        Injection(MOVED, "R2", move_leaders, nothing, **_GAP),
        Injection("a follower of three killed (-9)", "R2", kill_follower, nothing, restore=restart, **_GAP),
        Injection(ISOLATED, "R2", isolate_leader, reach_again),
        Injection(ROLLED, "R2", roll, nothing, **_GAP),
        Injection(DECOMMISSIONED, "R2", decommission, nothing, restore=commission, **_GAP),
        Injection(LEADER_KILLED, "R2", kill_leader, another_leads, restore=restart, **_GAP),
        Injection(
            "leader of three stopped (SIGSTOP)", "R2", freeze_leader, another_leads, restore=thaw, **_GAP
        ),
        Injection("all three dead", "R4", kill_all, restart, "kafka broker away", serve_within=15),
    ]
    return {injection.kind: (injection, phases) for injection in found}


ISOLATED = "leader of three out of the gateway's reach"
MOVED, ROLLED = "leadership moved", "three restarted one after the other"
DECOMMISSIONED = "one of three decommissioned"
LEADER_KILLED = "leader of three killed (-9)"

_GAP: dict[str, Any] = {"serve_within": 10}
"""Seconds after there is a new leader (R2). It is the cluster that takes its time to choose one."""
