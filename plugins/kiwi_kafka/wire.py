"""What aiokafka does not have of Kafka's protocol: the Metadata request in version 12, which knows topic ids,
rights and epochs, and OffsetForLeaderEpoch.

A topic that is deleted and created anew has another id; nothing else tells it apart for sure.
(Kafka protocol guide, Metadata API, versions 5 and 12.)
"""

from __future__ import annotations

from io import BytesIO

from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)

from kiwi_kafka.seam import NO_ID

RIGHTS_UNKNOWN = -(2**31)


class Uuid(AbstractType[bytes]):  # type: ignore[misc]
    """16 bytes."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


class TopicsResponseV12(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", CompactString("utf-8")),
                ("topic_id", Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class TopicsRequestV12(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 12
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = TopicsResponseV12
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("topic_id", Uuid),
                ("topic", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class EpochEndsResponseV3(Response):  # type: ignore[misc]
    API_KEY = 23
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader_epoch", Int32),
                        ("end_offset", Int64),
                    ),
                ),
            ),
        ),
    )


class EpochEndsRequestV3(RequestStruct):  # type: ignore[misc]
    API_KEY = 23
    API_VERSION = 3
    RESPONSE_TYPE = EpochEndsResponseV3
    SCHEMA = Schema(
        ("replica_id", Int32),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(("partition", Int32), ("current_leader_epoch", Int32), ("leader_epoch", Int32)),
                ),
            ),
        ),
    )


EpochsOfPartitions = list[tuple[int, int, int]]
"""Partition, the epoch of the leader that is asked, and the epoch whose end is wanted."""


class EpochEndsRequest(Request[EpochEndsRequestV3]):  # type: ignore[misc]
    """Where the records of a leader's epoch end (OffsetForLeaderEpoch, KIP-320)."""

    API_KEY = 23

    def __init__(self, topic: str, asked: EpochsOfPartitions) -> None:
        self._topic = topic
        self._asked = asked

    def build(self, request_struct_class: type[EpochEndsRequestV3]) -> EpochEndsRequestV3:
        return request_struct_class(_CONSUMER, [(self._topic, self._asked)])


_CONSUMER = -1
"""The id of a replica that is none."""


class TopicsRequest(Request[MetadataRequest_v5 | TopicsRequestV12]):  # type: ignore[misc]
    """Looks at topics by name; never creates one. An empty list asks for the brokers alone."""

    API_KEY = 3

    def __init__(self, topics: list[str], rights: bool = False) -> None:
        self._topics = topics
        self._rights = rights

    def build(
        self, request_struct_class: type[MetadataRequest_v5 | TopicsRequestV12]
    ) -> MetadataRequest_v5 | TopicsRequestV12:
        if request_struct_class is TopicsRequestV12:
            return TopicsRequestV12([(NO_ID, name, {}) for name in self._topics], False, self._rights, {})
        return MetadataRequest_v5(self._topics, False)
