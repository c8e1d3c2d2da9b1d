"""The faults of a cluster of three, of which two must have a record before it counts (row R2, R4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import trio
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from kiwi_gw.demo.broker import Broker
from tests.faults.brokers import three_brokers
from tests.faults.experiment import Injection, Phases

T = TypeVar("T")
_PATIENCE_S = 60.0
_POLL_S = 0.1


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[list[Broker]]:
    """Three brokers that answer, each with all three in its metadata."""
    brokers = three_brokers(folder)
    try:
        await _all(brokers)
        yield brokers
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
    """Until so many brokers are in the cluster, and all of them in sync for every partition of the topic."""

    async def is_whole(admin: Any) -> bool:
        if len((await admin.describe_cluster())["brokers"]) < count:
            return False
        partitions = (await admin.describe_topics([topic]))[0]["partitions"] if topic else ()
        return all(len(one["isr"]) == count for one in partitions)

    while not await _asked(bootstrap, is_whole):  # noqa: ASYNC110  (the cluster tells nobody)
        await trio.sleep(_POLL_S)


async def leader_of(bootstrap: str, topic: str, partition: int = 0) -> int:
    """The id of the broker that leads; -1: none does."""

    async def leader(admin: Any) -> int:
        found = (await admin.describe_topics([topic]))[0]
        return next((int(one["leader"]) for one in found["partitions"] if one["partition"] == partition), -1)

    return await _asked(bootstrap, leader)


async def _asked(bootstrap: str, question: Callable[[Any], Awaitable[T]]) -> T:
    """Until a broker answers: one that has just died is still in the list of the others."""

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


def cluster_faults(brokers: Sequence[Broker], topic: str) -> dict[str, tuple[Injection, Phases]]:
    """By kind. What is struck is chosen when it is struck: leadership moves. Without `restore` after it the
    cluster goes on with two."""
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

    phases = Phases(impacted=3, patience=60)
    found = [
        Injection("leader of three killed (-9)", "R2", kill_leader, another_leads, restore=restart, **_GAP),
        Injection(
            "leader of three stopped (SIGSTOP)", "R2", freeze_leader, another_leads, restore=thaw, **_GAP
        ),
        Injection("all three dead", "R4", kill_all, restart, "kafka broker away", serve_within=15),
    ]
    return {injection.kind: (injection, phases) for injection in found}


_GAP: dict[str, Any] = {"serve_within": 10}
"""Seconds after there is a new leader (R2). It is the cluster that takes its time to choose one."""
