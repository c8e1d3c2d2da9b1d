"""The requests of the Kafka protocol that are made: aiokafka's, and those that it does not have.

Fields and versions are those of the Kafka protocol guide. Metadata in version 12 knows topic ids, rights and
epochs: a topic that is deleted and created anew has another id, and nothing else tells it apart for sure. The
request that is made all the time, Fetch, has its bytes made in `fetch_session.py`.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

from aiokafka.protocol import types as kafka
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.admin import ApiVersionRequest as ApiVersionRequest
from aiokafka.protocol.admin import DescribeGroupsRequest as DescribeGroupsRequest
from aiokafka.protocol.admin import ListGroupsRequest as ListGroupsRequest
from aiokafka.protocol.admin import SaslAuthenticateRequest as SaslAuthenticateRequest
from aiokafka.protocol.admin import SaslHandShakeRequest as SaslHandShakeRequest
from aiokafka.protocol.api import Request as Request
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.commit import OffsetCommitRequest as OffsetCommitRequest
from aiokafka.protocol.commit import OffsetFetchRequest as OffsetFetchRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest as FindCoordinatorRequest
from aiokafka.protocol.fetch import FetchRequest as FetchRequest
from aiokafka.protocol.group import HeartbeatRequest as HeartbeatRequest
from aiokafka.protocol.group import JoinGroupRequest as JoinGroupRequest
from aiokafka.protocol.group import LeaveGroupRequest as LeaveGroupRequest
from aiokafka.protocol.group import MemberAssignment as MemberAssignment
from aiokafka.protocol.group import ProtocolMetadata as ProtocolMetadata
from aiokafka.protocol.group import SyncGroupRequest as SyncGroupRequest
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.offset import OffsetRequest as OffsetRequest
from aiokafka.protocol.produce import (
    ProduceRequest_v3,
    ProduceRequest_v4,
    ProduceRequest_v5,
    ProduceRequest_v6,
    ProduceRequest_v7,
    ProduceRequest_v8,
)
from aiokafka.protocol.transaction import InitProducerIdRequest as InitProducerIdRequest

from kiwi_kafka.ports import NO_ID

RIGHTS_UNKNOWN = -(2**31)
NO_REPLICA = -1


class _Uuid(AbstractType[bytes]):  # type: ignore[misc]
    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


def _array(**fields: Any) -> Any:
    return kafka.Array(*fields.items())


def _compact(**fields: Any) -> Any:
    return kafka.CompactArray(*fields.items(), ("tags", kafka.TaggedFields))


def _struct(key: int, version: int, request: Any, answer: Any, flexible: bool = False) -> Any:
    """Make one version of a request, and of its answer (`RESPONSE_TYPE`), of these fields."""
    names: dict[str, Any] = {"API_KEY": key, "API_VERSION": version, "FLEXIBLE_VERSION": flexible}
    tags = {"tags": kafka.TaggedFields} if flexible else {}
    schemas = [kafka.Schema(*fields.items()) for fields in (request | tags, answer | tags)]
    names["RESPONSE_TYPE"] = type("Answer", (Response,), names | {"SCHEMA": schemas[1]})
    return type("Question", (RequestStruct,), names | {"SCHEMA": schemas[0]})


_CODE, _INT, _BOOL, _NAME = kafka.Int16, kafka.Int32, kafka.Boolean, kafka.String("utf-8")
_TEXT, _INTS = kafka.CompactString("utf-8"), kafka.CompactArray(kafka.Int32)
_REPLICAS = {"replicas": _INTS, "isr": _INTS, "offline_replicas": _INTS}
_LEADERS = _compact(error_code=_CODE, partition=_INT, leader=_INT, leader_epoch=_INT, **_REPLICAS)
_ABOUT = {"error_code": _CODE, "topic": _TEXT, "topic_id": _Uuid, "is_internal": _BOOL}
_BROKERS = _compact(node_id=_INT, host=_TEXT, port=_INT, rack=_TEXT)
_CLUSTER = {"throttle_time_ms": _INT, "brokers": _BROKERS, "cluster_id": _TEXT, "controller_id": _INT}
_FLAGS = {"allow_auto_topic_creation": _BOOL, "include_topic_authorized_operations": _BOOL}
_ASKED = _array(partition=_INT, current_leader_epoch=_INT, leader_epoch=_INT)
_ENDS = _array(error_code=_CODE, partition=_INT, leader_epoch=_INT, end_offset=kafka.Int64)

MetadataV12 = _struct(
    3,
    12,
    {"topics": _compact(topic_id=_Uuid, topic=_TEXT)} | _FLAGS,
    _CLUSTER | {"topics": _compact(**_ABOUT, partitions=_LEADERS, operations=_INT)},
    flexible=True,
)
_OffsetForLeaderEpochV3 = _struct(
    23,
    3,
    {"replica_id": _INT, "topics": _array(topic=_NAME, partitions=_ASKED)},
    {"throttle_time_ms": _INT, "topics": _array(topic=_NAME, partitions=_ENDS)},
)


_DeleteGroupsV1 = _struct(
    42,
    1,
    {"groups": kafka.Array(_NAME)},
    {"throttle_time_ms": _INT, "results": _array(group=_NAME, error_code=_CODE)},
)


_Produce = (
    ProduceRequest_v3
    | ProduceRequest_v4
    | ProduceRequest_v5
    | ProduceRequest_v6
    | ProduceRequest_v7
    | ProduceRequest_v8
)


class ProduceRequest(Request[_Produce]):  # type: ignore[misc]
    """Write batches of idempotent producers, from version 3 on. In version 8, which aiokafka's own request
    leaves out, the answer names the records that are at fault (KIP-467)."""

    API_KEY = 0

    def __init__(
        self, required_acks: int, timeout: int, topics: list[tuple[str, list[tuple[int, bytes]]]]
    ) -> None:
        self._acks, self._timeout, self._topics = required_acks, timeout, topics

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class(None, self._acks, self._timeout, self._topics)


class DeleteGroupsRequest(Request[_DeleteGroupsV1]):  # type: ignore[misc]
    """Forget a group that has no members."""

    API_KEY = 42

    def __init__(self, group: str) -> None:
        self._group = group

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class([self._group])


class TopicMetadataRequest(Request[MetadataRequest_v5 | MetadataV12]):  # type: ignore[misc]
    """Look at topics by name; never create one. An empty list asks for the brokers alone."""

    API_KEY = 3

    def __init__(self, topics: list[str], rights: bool = False) -> None:
        self._topics, self._rights = topics, rights

    def build(self, request_struct_class: Any) -> Any:
        if request_struct_class is MetadataV12:
            return MetadataV12([(NO_ID, name, {}) for name in self._topics], False, self._rights, {})
        return MetadataRequest_v5(self._topics, False)


class OffsetForLeaderEpochRequest(Request[_OffsetForLeaderEpochV3]):  # type: ignore[misc]
    """Ask where the records of a leader's epoch end (KIP-320).

    asked: (partition, epoch of the leader that is asked, epoch whose end is wanted).
    """

    API_KEY = 23

    def __init__(self, topic: str, asked: list[tuple[int, int, int]]) -> None:
        self._topic = topic
        self._asked = asked

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class(NO_REPLICA, [(self._topic, self._asked)])
