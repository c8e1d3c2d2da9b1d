"""Whatever a client sends is answered with a result for every message, or refused and nothing is written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.api import GroupState, RefusalCode, RegisteredSchema, SchemaRefused, SchemaVersion
from kiwi_gw.dialect_api.http import HttpRequest, HttpResponse
from kiwi_gw.dialect_api.reading import AtEvents, EventReader, GroupReader, GroupSink, GroupTerms, WireOf
from kiwi_gw.dialects.pulsar.broker_shape import BrokerProducing
from kiwi_gw.dialects.pulsar.encoders import Encoders, PartEncoder
from kiwi_gw.dialects.pulsar.message_ids import read_message_id
from kiwi_gw.dialects.pulsar.messages import PartitionPath, TopicPath
from kiwi_gw.dialects.pulsar.producing import MadeRecords, Producing, read_request
from kiwi_gw.dialects.pulsar.schemas import value_encoder
from kiwi_gw.dialects.pulsar.settings import PulsarSettings
from kiwi_gw.dialects.pulsar.topics import WritableTopic
from kiwi_gw.model import (
    ANONYMOUS,
    Action,
    AtTime,
    Decode,
    EventSchema,
    HeadCredential,
    Outgoing,
    Part,
    Positions,
    Published,
    Refusal,
    SourceInfo,
    Start,
    StartAt,
    Unpublished,
    WireFormat,
    total_size,
)
from kiwi_gw.query.values import UNDECODABLE
from tests.effort import examples

HEAD = HeadCredential("POST", "/topics/public/default/a", "", (), "", secure=False)


class Rights:
    """Implements `ClientRights`: everything is allowed and written, but for values that say otherwise. Of the
    schemas that are registered each has another id; version 1 is there."""

    def __init__(self) -> None:
        self.written: list[Outgoing] = []
        self.registered: list[tuple[Part, str]] = []

    def source(self, source_id: str) -> SourceInfo | None:
        return next((info for info in self.sources() if info.id == source_id), None)

    def sources(self) -> Iterable[SourceInfo]:
        decode = Decode("avro", "avro", registry=True)
        return [SourceInfo("a", "kafka", EventSchema(()), publish=True, decode=decode)]

    def refusal(self, action: Action, source: SourceInfo) -> Refusal | None:
        return None

    def unwelcome(self) -> Refusal | None:
        return None

    def partitions(self, source_id: str) -> Positions | None:
        return {0: 0, 1: 0, 2: 0}

    def trouble(self, source_id: str) -> str:
        return ""

    async def wait_started(self, source_id: str, within: float) -> None:
        raise AssertionError("the source runs")

    def life(self, source_id: str) -> int:
        return 77

    async def turn(self) -> None:
        await trio.lowlevel.checkpoint()

    def writer(self, source_id: str) -> Rights:
        return self

    def read(
        self, source_id: str, wire: WireFormat, start: Start | AtEvents
    ) -> AbstractAsyncContextManager[EventReader]:
        raise AssertionError("who writes reads nothing")

    def view(self, source_id: str) -> object:
        raise AssertionError("who writes reads nothing")

    def join(self, source_id: str, terms: GroupTerms, wire: WireOf, sink: GroupSink) -> GroupReader:
        raise AssertionError("who writes reads nothing")

    async def places(self, source_id: str, start: StartAt | AtTime) -> Positions:
        raise AssertionError("who writes reads nothing")

    async def group_state(self, source_id: str, group: str) -> GroupState:
        raise AssertionError("who writes reads nothing")

    async def forget_group(self, source_id: str, group: str) -> None:
        raise AssertionError("who writes reads nothing")

    async def register_schema(self, source_id: str, part: Part, definition: str) -> SchemaVersion:
        self.registered.append((part, definition))
        return SchemaVersion(len(self.registered), 5, definition)

    async def find_schema(self, source_id: str, part: Part, version: int) -> SchemaVersion:
        if version == 1:
            return SchemaVersion(77, 1, '["null", "long", "string"]')
        raise SchemaRefused(RefusalCode.UNKNOWN_VERSION, "there is no such version")

    async def schema_versions(
        self, source_id: str, part: Part, schemas: Sequence[RegisteredSchema], within: float
    ) -> Mapping[int, int]:
        raise AssertionError("who writes reads nothing")

    async def produce(self, records: Sequence[Outgoing], within: float) -> Sequence[Published | Unpublished]:
        await trio.lowlevel.checkpoint()
        self.written += records
        return [
            Unpublished("not known whether it was written", retriable=True, known=False)
            if record.value is None
            else Published(record.partition or 0, offset)
            for offset, record in enumerate(records)
        ]


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
kinds = st.sampled_from(
    ["string", "JSON", "avro", "none", "bytes", "int8", "double", "boolean", "key_value", "x"]
)
infos = st.fixed_dictionaries({"type": kinds}, optional={"schema": values, "properties": values}) | values
message_members = {
    "key": values,
    "partition": st.integers(-1, 4) | values,
    "properties": st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2) | values,
    "eventTime": st.integers(-1, 2**63) | values,
    "sequenceId": st.integers(0, 9) | values,
    "deliverAt": st.sampled_from([0, None, 2**62]) | values,
    "more": values,
}
messages = st.fixed_dictionaries({"value": values}, optional=message_members) | values
payloads = st.fixed_dictionaries({"payload": st.text(max_size=5) | values}, optional=message_members) | values
request_members = {
    "schema_type": kinds | values,
    "schema_version": st.sampled_from([None, 1, 2]) | values,
    "key_schema": infos | infos.map(json.dumps),
    "value_schema": infos | infos.map(json.dumps),
    "more": values,
}
requests = st.fixed_dictionaries(
    {"messages": st.lists(messages, max_size=4) | values}, optional=request_members
)
broker_requests = st.fixed_dictionaries(
    {"messages": st.lists(payloads, max_size=4) | values},
    optional={"valueSchema": infos.map(json.dumps) | values, "keySchema": values, "schemaVersion": values},
)


avro = st.fixed_dictionaries(
    {"type": st.just("AVRO"), "schema": st.sampled_from(["string", ["null", "long", "string"], "?"])}
)
texts = st.text(max_size=3)
registered_requests = st.fixed_dictionaries(
    {
        "messages": st.lists(
            st.fixed_dictionaries({"value": st.none() | texts | st.integers(0, 9)}, optional={"key": texts}),
            min_size=1,
            max_size=3,
        )
    },
    optional={
        "schema_type": st.sampled_from(["avro", "key_value"]),
        "schema_version": st.sampled_from([None, 1, 2]),
        "key_schema": avro,
        "value_schema": avro,
    },
)
registered_broker_requests = st.fixed_dictionaries(
    {"messages": st.lists(st.fixed_dictionaries({"payload": st.none() | texts.map(json.dumps)}), min_size=1)},
    optional={"valueSchema": avro.map(json.dumps), "schemaVersion": st.integers(-1, 2)},
)


def answered(
    producing: Producing | BrokerProducing, body: bytes, partition: int | None
) -> tuple[int, Any, Rights]:
    rights = Rights()
    path: TopicPath | PartitionPath = TopicPath("public", "default", "a")
    if partition is not None:
        path = PartitionPath("public", "default", "a", str(partition))
    found: Any = producing.admit(path, rights)
    if not isinstance(found, HttpResponse):
        answer: Any = producing.to_topic if partition is None else producing.to_partition
        found = trio.run(answer, HttpRequest(HEAD, path, ANONYMOUS, body, rights, found))
    if isinstance(found, HttpResponse):
        return found.status, json.loads(found.body), rights
    return 200, msgspec.to_builtins(found), rights


def check_heads(version: int | None, rights: Rights) -> None:
    """What was written by a schema begins with its id, and is one datum."""
    ids = {part: number for number, (part, _) in enumerate(rights.registered, 1)}
    texts = dict(rights.registered)
    if version == 1:
        ids["value"], texts["value"] = 77, '["null", "long", "string"]'
    assert version == (1 if version == 1 else 5 if "value" in ids else None)
    for part, number in ids.items():
        schema = RegisteredSchema(number, texts[part])
        for record in rights.written:
            data = record.value if part == "value" else record.key
            assert data is None or schema.read(data) is not UNDECODABLE


@given(
    (registered_requests | requests).map(json.dumps).map(str.encode) | st.binary(max_size=30),
    st.none() | st.integers(0, 4),
)
@settings(max_examples=examples(300), deadline=None)
def test_the_form_of_the_document(body: bytes, partition: int | None) -> None:
    status, answer, rights = answered(Producing(PulsarSettings()), body, partition)
    if status not in (200, 503):
        assert answer["error_code"] // 100 == status
        assert status in (400, 404, 422)
        assert not rights.written
        assert not rights.registered
        return
    check_heads(answer["schema_version"], rights)
    results = answer["messageIds"]
    assert len(results) == len(rights.written) == len(json.loads(body)["messages"])
    for result, record in zip(results, rights.written, strict=True):
        assert (result["error_code"] is None) == (record.value is not None)
        if record.value is not None:
            assert read_message_id(result["messageId"]).partition == result["partition"]
    assert (status == 503) == all(record.value is None for record in rights.written)


@given(
    (registered_broker_requests | broker_requests).map(json.dumps).map(str.encode) | st.binary(max_size=30),
    st.none() | st.integers(0, 4),
)
@settings(max_examples=examples(300), deadline=None)
def test_the_form_of_brokers(body: bytes, partition: int | None) -> None:
    status, answer, rights = answered(BrokerProducing(PulsarSettings()), body, partition)
    if status != 200:
        assert list(answer) == ["reason"]
        assert status in (400, 404, 422)
        assert not rights.written
        assert not rights.registered
        return
    check_heads(answer["schemaVersion"] or None, rights)
    results = answer["messagePublishResults"]
    assert len(results) == len(rights.written) == len(json.loads(body)["messages"])
    assert [each["errorCode"] for each in results] == [
        2 if record.value is None else 0 for record in rights.written
    ]


def test_what_a_schema_makes_of_little_is_bounded() -> None:
    """A request of 130 kB would be 300 MB of records."""
    field = {"name": "a", "type": "string", "default": "x" * 30_000}
    schema = {"type": "AVRO", "schema": {"type": "record", "name": "R", "fields": [field]}}
    for count, expected in ((500, 200), (10_000, 422)):
        body = json.dumps({"value_schema": schema, "messages": [{"value": {}}] * count}).encode()
        status, answer, rights = answered(Producing(PulsarSettings()), body, 0)
        assert status == expected
        assert len(rights.written) == (count if expected == 200 else 0)
    assert answer["error_code"] == 42205
    assert "16,777,216 bytes together" in answer["message"]


def test_a_schema_of_any_depth_is_no_fault() -> None:
    """That it can be read does not mean that it can be written as text again, which is done further in."""
    for depth in range(940, 1_000):
        doc = "[" * depth + "]" * depth
        schema = f'{{"type":"AVRO","schema":{{"type":"int","doc":{doc}}}}}'
        body = f'{{"value_schema":{schema},"messages":[{{"value":1}}]}}'.encode()
        assert answered(Producing(PulsarSettings()), body, None)[0] in (400, 422)
        body = json.dumps({"valueSchema": schema, "messages": [{"payload": "1"}]}).encode()
        assert answered(BrokerProducing(PulsarSettings()), body, None)[0] in (400, 422)


any_text = st.text() | st.sampled_from(['"', "\\", "\x00", "null", ""])
parts = st.one_of(st.none(), any_text, any_text, any_text)
plain_messages = st.lists(
    st.fixed_dictionaries(
        {"value": parts | st.integers() | st.booleans() | st.lists(st.integers(), max_size=2)},
        optional={"key": parts, "eventTime": st.none() | st.integers(0, 2**63 - 1)},
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=examples(300))
@given(messages=plain_messages, partition=st.none() | st.just(2), kind=st.sampled_from(["none", "string"]))
def test_messages_become_the_same_records_together_and_one_by_one(
    messages: list[dict[str, Any]], partition: int | None, kind: str
) -> None:
    body = json.dumps({"messages": messages}).encode()
    asked = read_request(body)
    rights = Rights()
    (source,) = rights.sources()
    topic = WritableTopic(source, (0, 2, 5), 1, rights.writer("a"), partition)
    encode = value_encoder(kind)
    assert encode is not None
    encoders = Encoders(PartEncoder(encode))
    together, alone = MadeRecords(encoders, topic), MadeRecords(encoders, topic)
    for index, message in enumerate(asked.messages):
        alone.take(index, message, 0, None, None)
    values, keys = together.strings(asked.messages)
    if values is not None and keys is not None and together.take_plain(asked.messages, keys, values):
        assert not alone.invalid
        assert [record[:4] for record in together.records] == [record[:4] for record in alone.records]
        for one, other in zip(together.records, alone.records, strict=True):
            assert type(one) is Outgoing
            assert (one.partition is None) == (other.partition is None)
            assert one.partition in ((partition,) if partition is not None else (None, 0, 2, 5))
        assert total_size(together.records) == sum(record.size for record in alone.records)
    else:
        assert not together.records
        assert alone.invalid or any(not isinstance(message["value"], str | None) for message in messages)
