"""Filtered subscriptions that are behind: in the window, in history, by every policy, and from positions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway
from tests.edge.test_queries import numbers, seen
from tests.edge.wire import Client, command, connect

WINDOW = 16
ODD = "value.n % 2 = 1"


@asynccontextmanager
async def running(**extra: object) -> AsyncIterator[tuple[GatewayUnderTest, ScriptedSources]]:
    sources = ScriptedSources(replayable=True)
    config = {
        "plugins": ["scripted"],
        "window": {"events": WINDOW, "last_values": True},
        "sources": [{"type": "scripted", "id": "a"}],
        **extra,
    }
    async with open_gateway(json.dumps(config), plugins={"scripted": sources}) as gateway:
        with trio.fail_after(30):
            yield gateway, sources


class Reading:
    """What a subscription was told, until so many events came."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.notices: list[dict[str, Any]] = []
        self.data: list[dict[str, Any]] = []

    async def until(self, client: Client, count: int) -> Reading:
        while len(self.values) < count:
            message = await client.message()
            if message["type"] == "RESULT":
                self.values.append(seen(message))
                self.data.append(message["data"])
            elif message["type"] == "NOTICE":
                self.notices.append(message["data"])
        return self


async def test_all_of_the_past_that_passes() -> None:
    async with running() as (gateway, sources), connect(gateway) as client:
        for n in range(0, 100, 10):
            await sources["a"].publish(numbers(*range(n, n + 10)))
        await client.subscribe("a", **{"from": "earliest", "where": "value.n % 10 = 3", "select": "value.n"})
        found = await Reading().until(client, 10)
        assert found.values == [{"n": n} for n in range(3, 100, 10)]
        await sources["a"].publish(numbers(103, 104))
        assert (await found.until(client, 11)).values[-1] == {"n": 103}


async def test_a_slow_pull_client_loses_nothing_that_passes() -> None:
    async with running() as (gateway, sources), connect(gateway) as client:
        await client.subscribe("a", mode="pull", where=ODD)
        for n in range(0, 100, 10):
            await sources["a"].publish(numbers(*range(n, n + 10)))
        found = Reading()
        for count in range(10, 51, 10):
            await client.send(command("REQUEST", "a", n=10))
            await found.until(client, count)
        assert found.values == list(range(1, 100, 2))
        assert all(notice["filtered"] for notice in found.notices if notice["type"] == "LAG")


@pytest.mark.parametrize("policy", ["drop_oldest", "latest"])
async def test_what_is_given_up_is_announced(policy: str) -> None:
    async with running() as (gateway, sources), connect(gateway) as client:
        await client.subscribe("a", mode="pull", where=ODD, overflow=policy)
        for n in range(0, 100, 10):
            await sources["a"].publish(numbers(*range(n, n + 10)), keys=[str(i).encode() for i in range(10)])
        await client.send(command("REQUEST", "a", n=3))  # a LAG may come before its reply
        found = await Reading().until(client, 3)
        assert all(n % 2 for n in found.values)
        lags = [notice for notice in found.notices if notice["type"] == "LAG"]
        assert sum(lag["dropped"] for lag in lags) > 0
        assert all(lag["filtered"] for lag in lags)
        if policy == "drop_oldest":
            assert found.values == [91, 93, 95]  # the window lets go of whole batches
            given_up = [
                offset
                for lag in lags
                for first, last in lag["ranges"].values()
                for offset in range(first, last + 1)
            ]
            assert given_up == list(range(90))


async def test_a_snapshot_of_what_passes() -> None:
    async with running() as (gateway, sources), connect(gateway) as client:
        for n in range(0, 40, 10):
            await sources["a"].publish(numbers(*range(n, n + 10)), keys=[str(i).encode() for i in range(10)])
        await client.subscribe("a", **{"from": "snapshot", "where": "key IN ('3', '4')"})
        assert (await Reading().until(client, 2)).values == [33, 34]


async def test_going_on_from_the_positions_of_an_event() -> None:
    async with running() as (gateway, sources):
        async with connect(gateway) as client:
            await client.subscribe("a", where=ODD)
            await sources["a"].publish(numbers(*range(10)))
            found = await Reading().until(client, 3)
            place = found.data[2]["offset"] + 1
        await sources["a"].publish(numbers(*range(10, 40)))
        async with connect(gateway) as client:
            await client.subscribe("a", **{"from": {"positions": {"0": place}}, "where": ODD})
            rest = await Reading().until(client, 17)
        assert found.values + rest.values == list(range(1, 40, 2))


async def test_where_it_is_is_told_though_nothing_passes() -> None:
    async with running() as (gateway, sources), connect(gateway) as client:
        await client.subscribe("a", where="value.n < 0", positionsEveryMs=100)
        await sources["a"].publish(numbers(*range(10)))
        told = [(await client.message())["data"]]
        if told[0]["positions"] == {"0": 0}:  # as it was when it began, if it was looked at before the events
            told.append((await client.message())["data"])
        assert {each["type"] for each in told} == {"POSITIONS"}
        assert told[-1]["positions"] == {"0": 10}


async def test_who_waits_for_a_match_in_history_holds_up_nobody() -> None:
    async with running() as (gateway, sources), connect(gateway) as never, connect(gateway) as other:
        for n in range(0, 200, 10):
            await sources["a"].publish(numbers(*range(n, n + 10)))
        await never.subscribe("a", **{"mode": "pull", "from": "earliest", "where": "value.n < 0"})
        await never.ask("REQUEST", "a", n=5)
        await other.subscribe("a", **{"from": "earliest", "where": ODD})
        assert (await Reading().until(other, 100)).values == list(range(1, 200, 2))
        await sources["a"].publish(numbers(-1))
        assert (await Reading().until(never, 1)).values == [-1]
