"""How often a consumer looks at its brokers while records gather there."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from kiwi_kafka.client.internals import ReadOnlyClient

from kiwi_kafka.client.options import connection_options
from kiwi_kafka.settings import KafkaSettings


class Answer:
    topics: tuple[()] = ()


def test_fetches_of_one_broker_keep_their_distance_and_nothing_else_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    now = 100.0

    async def answer(self: object, node: int, request: object, **group: Any) -> Answer:
        return Answer()

    async def sleep(seconds: float) -> None:
        slept.append(round(seconds, 3))

    monkeypatch.setattr(AIOKafkaClient, "send", answer)

    async def look() -> None:
        nonlocal now
        client = ReadOnlyClient(**connection_options(KafkaSettings(bootstrap_servers="127.0.0.1:1")))
        fetch = FetchRequest(0, 1, 1, 0, [])
        monkeypatch.setattr(asyncio, "sleep", sleep)
        monkeypatch.setattr(time, "monotonic", lambda: now)
        await client.send(1, fetch)  # as they come, so far
        client.fetch_interval = 0.045
        await client.send(1, fetch)
        await client.send(1, MetadataRequest([], False))
        await client.send(2, fetch)
        await client.send(1, fetch)
        now += 0.1
        await client.send(1, fetch)
        client.fetch_interval = 0.0
        await client.send(1, fetch)

    asyncio.run(look())
    assert slept == [0, 0, 0.045, 0]
