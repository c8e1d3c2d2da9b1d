"""Which groups there are is said by every broker for itself."""

from __future__ import annotations

from functools import partial
from typing import Any

import trio
from trio.testing import MockClock

from kiwi_kafka.client.factory import BrokerClientFactory
from kiwi_kafka.ports import GroupList
from tests.plugins.kafka.faulty_answers import instead
from tests.plugins.kafka.scripted_broker import GROUPS, SECONDS, cluster_of, whole

LOADING = 14


async def test_all_brokers_are_asked_and_one_that_does_not_say_is_named(clock: MockClock) -> None:
    async with cluster_of(2) as cluster, trio.open_nursery() as nursery:
        cluster.versions[GROUPS] = (0, 5)
        codes = {1: 0, 2: 0}

        def listed(number: int, request: Any) -> tuple[Any, ...]:
            return (0, codes[number], [(f"g{number}", "consumer"), (f"h{number}", "")])

        for number, node in cluster.nodes.items():
            node.more[GROUPS] = partial(listed, number)
        admin = await BrokerClientFactory(cluster.settings(), nursery).admin()
        with trio.fail_after(SECONDS):
            assert await admin.list_groups() == GroupList(frozenset({"g1", "h1", "g2", "h2"}))
            some = GroupList(frozenset({"g1", "h1"}), frozenset({2}))
            codes[2] = LOADING
            assert await admin.list_groups() == some
            codes[2] = 0
            cluster.nodes[2].send = instead(GROUPS, lambda answer: answer[:8] + b"\xff" * (len(answer) - 8))
            assert await admin.list_groups() == some
            cluster.nodes[2].send = instead(GROUPS, lambda answer: answer + b"!")
            assert await admin.list_groups() == some
            cluster.nodes[2].send = whole
            assert await admin.list_groups() == GroupList(frozenset({"g1", "h1", "g2", "h2"}))
        await admin.close()
