"""How a client learns the brokers of a cluster when it begins."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataResponse_v1
from kiwi_kafka.client.internals import ReadOnlyClient

from kiwi_kafka.client.options import connection_options
from kiwi_kafka.settings import KafkaSettings

Brokers = list[tuple[int, str, int, None]]


def known_brokers(monkeypatch: pytest.MonkeyPatch, answers: list[Brokers]) -> set[int]:
    """Bootstrap from servers that give these answers, in turn. Returns the ids that the client knows then."""
    left = iter(answers)

    async def answer(client: ReadOnlyClient, host: str, port: int) -> MetadataResponse_v1:
        return MetadataResponse_v1(next(left), -1, [])

    monkeypatch.setattr(ReadOnlyClient, "_ask_one", answer)
    servers = ",".join(f"127.0.0.1:{number}" for number in range(1, len(answers) + 1))

    async def bootstrap() -> set[int]:
        client = ReadOnlyClient(**connection_options(KafkaSettings(bootstrap_servers=servers)))
        try:
            await client.bootstrap()
            return {broker.nodeId for broker in client.cluster.brokers()}
        finally:
            await client.close()

    return asyncio.run(bootstrap())


def test_the_first_server_that_knows_brokers_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was stopped for longer than its session lasts knows none until it is registered again. Who
    begins with its answer has no broker to ask, ever."""
    assert known_brokers(monkeypatch, [[], [(7, "well", 9092, None)]]) == {7}


def test_a_cluster_without_brokers_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        KafkaConnectionError, match=r"no broker is registered yet; .*: no broker is registered"
    ):
        known_brokers(monkeypatch, [[], []])
