"""Who leads and who holds the partitions of a topic, by the words of an operator.

What `kafka-reassign-partitions` and `kafka-leader-election` do: AlterPartitionReassignments and ElectLeaders
(Kafka protocol guide), of which aiokafka has only the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Schema, String

Replicas = Mapping[int, Sequence[int]]
"""Ids of brokers by partition; the first is the one that is to lead."""

_TIMEOUT_MS = 20_000
_NOT_NEEDED = 84  # ELECTION_NOT_NEEDED


class ElectLeadersResponseV0(Response):  # type: ignore[misc]
    API_KEY = 43
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "results",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(("partition", Int32), ("error_code", Int16), ("error_message", String("utf-8"))),
                ),
            ),
        ),
    )


class ElectLeadersRequestV0(RequestStruct):  # type: ignore[misc]
    API_KEY = 43
    API_VERSION = 0
    RESPONSE_TYPE = ElectLeadersResponseV0
    SCHEMA = Schema(
        ("topics", Array(("topic", String("utf-8")), ("partitions", Array(Int32)))),
        ("timeout_ms", Int32),
    )


class ElectLeadersRequest(Request[ElectLeadersRequestV0]):  # type: ignore[misc]
    """Make the first replica of each partition its leader."""

    API_KEY = 43

    def __init__(self, topic: str, partitions: Sequence[int]) -> None:
        self._topic, self._partitions = topic, list(partitions)

    def build(self, request_struct_class: type[ElectLeadersRequestV0]) -> ElectLeadersRequestV0:
        return request_struct_class([(self._topic, self._partitions)], _TIMEOUT_MS)


async def leaders(admin: AIOKafkaAdminClient, topic: str) -> dict[int, int]:
    """Return the ids of brokers by partition; -1: none leads."""
    return {one["partition"]: one["leader"] for one in await _partitions(admin, topic)}


async def replicas(admin: AIOKafkaAdminClient, topic: str) -> dict[int, list[int]]:
    """Return the brokers that are to hold each partition, the one that is to lead first."""
    return {one["partition"]: list(one["replicas"]) for one in await _partitions(admin, topic)}


async def in_sync(admin: AIOKafkaAdminClient, topic: str) -> dict[int, list[int]]:
    """Return the brokers that hold all of each partition."""
    return {one["partition"]: sorted(one["isr"]) for one in await _partitions(admin, topic)}


async def reassign(admin: AIOKafkaAdminClient, topic: str, wanted: Replicas) -> None:
    """Begin to give the partitions to these brokers. Raises aiokafka's errors."""
    moves: list[Any] = [(partition, list(brokers), {}) for partition, brokers in wanted.items()]
    answer = await admin._send_request(
        AlterPartitionReassignmentsRequest(_TIMEOUT_MS, [(topic, moves, {})], {})
    )
    for code in (answer.error_code, *(one[1] for _, parts, _ in answer.responses for one in parts)):
        if code:
            raise for_code(code)(f"reassigning {topic}: {answer}")


async def elect_first(admin: AIOKafkaAdminClient, topic: str, partitions: Sequence[int]) -> None:
    """Have the first replicas lead. Raises aiokafka's errors."""
    answer = await admin._send_request(ElectLeadersRequest(topic, partitions))
    for _, results in answer.results:
        for _, code, words in results:
            if code not in (0, _NOT_NEEDED):
                raise for_code(code)(f"electing leaders of {topic}: {words}")


async def _partitions(admin: AIOKafkaAdminClient, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await admin.describe_topics([topic]))[0]["partitions"]
    return found
