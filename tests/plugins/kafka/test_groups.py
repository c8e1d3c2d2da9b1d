"""Coordinators of groups, of which some do not answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kiwi_gw.api import CommitRefused
from kiwi_kafka.client.groups import GroupClient
from kiwi_kafka.client.requests import FindCoordinatorRequest
from kiwi_kafka.ports import UnreachableError

OK, GROUP_MOVED, BAD_GROUP, TOPIC_DENIED, GROUP_DENIED = 0, 16, 24, 29, 30
ANSWER_SECONDS = 0.02


@dataclass
class Cluster:
    """Groups called `g` with a number are coordinated by the node of that number.

    gone: nodes that cannot be reached; frozen: that say nothing. moved: groups that have another coordinator
    by now. says: the code of every other answer. away: nobody can be reached. silent: questions for a
    coordinator that get no answer. opened: how often brokers were looked for.
    """

    gone: set[int] = field(default_factory=set)
    frozen: set[int] = field(default_factory=set)
    moved: set[str] = field(default_factory=set)
    says: int = OK
    away: bool = False
    silent: int = 0
    opened: int = 0
    located: dict[int, tuple[str, int]] = field(default_factory=dict)
    found: Counter[str] = field(default_factory=Counter)
    asked_at: dict[int, list[float]] = field(default_factory=dict)
    kept: dict[str, dict[int, tuple[int, str]]] = field(default_factory=dict)

    async def open(self) -> Any:
        await trio.sleep(ANSWER_SECONDS)
        self.opened += 1
        return _Brokers(self)

    def client(self) -> GroupClient:
        return GroupClient(self.open, 0.1)


class _Brokers:
    """As `Brokers`: what is under way when it is closed gets no answer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._closed = trio.Event()

    def locate(self, node: int, host: str, port: int) -> None:
        self._cluster.located[node] = host, port

    async def ask_any(self, request: FindCoordinatorRequest) -> Any:
        if self._cluster.silent:
            self._cluster.silent -= 1
            await trio.sleep_forever()
        await self._answers(self._cluster.away)
        group = request._coordinator_key
        self._cluster.found[group] += 1
        node = int(group.partition(".")[0].removeprefix("g"))
        return SimpleNamespace(error_code=OK, coordinator_id=node, host=f"host{node}", port=9092)

    async def ask(self, node: int, request: Any) -> Any:
        cluster = self._cluster
        cluster.asked_at.setdefault(node, []).append(trio.current_time())
        if node in cluster.frozen:
            await trio.sleep_forever()
        await self._answers(cluster.away or node in cluster.gone)
        group, (topic, parts) = request._consumer_group, request._topics[0]
        code = GROUP_MOVED if group in cluster.moved else cluster.says
        cluster.moved.discard(group)
        if code == OK:
            cluster.kept[group] = {partition: (offset, text) for partition, offset, text in parts}
        return SimpleNamespace(topics=[(topic, [(partition, code) for partition, *_ in parts])])

    async def _answers(self, fails: bool) -> None:
        with trio.move_on_after(ANSWER_SECONDS):
            await self._closed.wait()
            raise UnreachableError("the client is closed")
        if fails:
            raise UnreachableError("refused")

    def close(self) -> None:
        self._closed.set()


async def keep(client: GroupClient, group: str, within: float) -> float | None:
    """Commit something. Returns how long it took; None: longer."""
    began = trio.current_time()
    with trio.move_on_after(within):
        await client.store(group, "t", {0: (1, "")})
        return trio.current_time() - began
    return None


async def test_a_coordinator_that_is_gone_concerns_its_own_groups_alone(autojump_clock: MockClock) -> None:
    cluster = Cluster(gone={1})
    client = cluster.client()
    results: list[float | None] = []

    async def keep_lost(number: int) -> None:
        results.append(await keep(client, f"g1.{number}", 3))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(keep_lost, number)
            await trio.sleep(0.005)
        for number in range(20):
            took = await keep(client, f"g2.{number}", 1)
            assert took is not None
            assert took < 0.1
    assert results == [None] * 20
    assert cluster.opened == 1
    assert cluster.kept.keys() == {f"g2.{number}" for number in range(20)}


async def test_those_who_try_again_do_not_do_so_together(autojump_clock: MockClock) -> None:
    cluster = Cluster(gone={1})
    client = cluster.client()
    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(keep, client, f"g1.{number}", 1)
    times = cluster.asked_at[1]
    assert len(times) > 20
    assert len({round(at, 6) for at in times[10:20]}) == 10


async def test_a_coordinator_that_comes_back_or_hands_over_is_found(autojump_clock: MockClock) -> None:
    cluster = Cluster(gone={1}, moved={"g2"})
    client = cluster.client()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep, client, "g1", 3)
        await trio.sleep(1)
        cluster.gone.clear()
    assert await keep(client, "g2", 1)
    assert cluster.kept.keys() == {"g1", "g2"}
    assert cluster.located == {1: ("host1", 9092), 2: ("host2", 9092)}
    assert cluster.found["g2"] == 2


async def test_where_nobody_answers_brokers_are_looked_for_anew(autojump_clock: MockClock) -> None:
    cluster = Cluster()
    client = cluster.client()
    assert await keep(client, "g1", 1)
    cluster.away = True
    assert await keep(client, "g1", 1) is None
    assert cluster.opened > 1
    cluster.away = False
    assert await keep(client, "g1", 1)


async def test_a_coordinator_that_says_nothing_is_not_asked_again_before_it_is_said_to_be_one(
    autojump_clock: MockClock,
) -> None:
    cluster = Cluster()
    client = cluster.client()
    assert await keep(client, "g1", 1)
    cluster.frozen = {1}
    assert await keep(client, "g1", 1) is None
    cluster.frozen.clear()
    assert await keep(client, "g1", 1)
    assert cluster.found["g1"] == 2
    assert cluster.opened == 1


async def test_a_broker_that_says_nothing_is_not_the_only_one_to_be_asked(autojump_clock: MockClock) -> None:
    """Of a frozen broker an answer is waited for longer than a commit may take."""
    cluster = Cluster(silent=1)
    assert await keep(cluster.client(), "g1", 3)


@pytest.mark.parametrize(
    ("says", "code"),
    [(GROUP_DENIED, "origin_denied"), (TOPIC_DENIED, "origin_denied"), (BAD_GROUP, "group")],
)
async def test_what_kafka_denies_the_gateway_is_not_what_the_gateway_forbids(says: int, code: str) -> None:
    """Of what is forbidden a protocol may think that this client never commits, and begin elsewhere."""
    with pytest.raises(CommitRefused) as refused:
        await keep(Cluster(says=says).client(), "g1", 3)
    assert (refused.value.code, refused.value.retry) == (code, False)
