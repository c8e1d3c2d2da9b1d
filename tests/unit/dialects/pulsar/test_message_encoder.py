"""The messages of an answer: what of a record is in them."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from kiwi_gw.dialects.pulsar.message_encoder import IN_ARRAY, messages_wire, redelivered
from kiwi_gw.dialects.pulsar.message_ids import MessageId, read_message_id
from kiwi_gw.dialects.pulsar.messages import SEQUENCE
from kiwi_gw.dialects.pulsar.settings import PulsarSource
from kiwi_gw.dialects.pulsar.values import AS_THE_SOURCE_SAYS, PulsarType, ReadAs, schema_read
from kiwi_gw.model import Batch, Decode, EventSchema, SourceInfo
from kiwi_gw.query.avro import RegisteredSchema

LIFE = 42
NOTHING = EventSchema(())


def source(schema: str = "", decode: Decode | None = None) -> SourceInfo:
    blocks = {"pulsar": PulsarSource.model_validate({"schema": {"type": schema}})} if schema else {}
    return SourceInfo("s", "fake", NOTHING, decode=decode or Decode(), blocks=blocks)


def batch(values: Sequence[Any], partitions: Sequence[int] = (), **columns: Sequence[Any]) -> Batch:
    found = {"value": values, **columns}
    return Batch({}, partitions or [0] * len(values), range(5, 5 + len(values)), found, 0)


def written(
    info: SourceInfo,
    events: Batch,
    partitions: Collection[int] = (0,),
    *,
    counted: bool = False,
    read_as: ReadAs = AS_THE_SOURCE_SAYS,
) -> tuple[list[Any], int]:
    """Return the messages, None where an event yields none, and how many are not whole."""
    wire = messages_wire(info, LIFE, partitions, IN_ARRAY, counted=counted, read_as=read_as)
    encoded = wire.encode(events)
    found, first = list[Any](), 0
    for end in encoded.ends:
        fragment = encoded.buffer[first:end]
        assert not fragment or fragment.endswith(IN_ARRAY)
        found.append(json.loads(fragment[:-1]) if fragment else None)
        first = end
    assert first == len(encoded.buffer)
    there = [event is not None for event in found]
    counts = encoded.prefix_counts
    assert (counts is None) == all(there)
    assert counts is None or list(counts) == [sum(there[:n]) for n in range(len(there) + 1)]
    return found, encoded.decode_errors


def test_what_a_message_holds() -> None:
    headers = [("colour", "grün".encode()), ("none", None), ("odd", b"\xff"), (SEQUENCE, b"-7")]
    columns: dict[str, list[Any]] = {"key": [b"k"], "timestamp": [1_700], "headers": [headers]}
    ((message,), bad) = written(source(), batch([b'{"a": 1.0}'], **columns), counted=True)
    assert read_message_id(message.pop("messageId")) == MessageId(LIFE, 5, 0)
    assert (message, bad) == (
        {
            "key": "k",
            "value": {"a": 1.0},
            "partition": 0,
            "properties": {"colour": "grün", "none": None, "odd": None},
            "eventTime": 1_700,
            "sequenceId": -7,
            "replicationClusters": [],
            "redeliveryCount": 0,
        },
        0,
    )


@pytest.mark.parametrize("text", [b"", b"x", b"1.0", b"-", b"1" * 21, None])
def test_a_sequence_that_is_none(text: bytes | None) -> None:
    ((message,), _) = written(source(), batch([b"1"], headers=[[(SEQUENCE, text)]]))
    assert (message["sequenceId"], message["properties"]) == (None, {})


def test_events_of_other_partitions_yield_nothing() -> None:
    events = batch([b"0", b"1", b"2", b"3"], [0, 1, 2, 1], key=[b"a", b"b", b"c", b"d"], timestamp=[-1] * 4)
    found, bad = written(source(), events, (1, 2))
    assert [None if each is None else (each["key"], each["value"]) for each in found] == [
        None,
        ("b", 1),
        ("c", 2),
        ("d", 3),
    ]
    assert [read_message_id(each["messageId"]) for each in found[1:]] == [
        MessageId(LIFE, 6, 1),
        MessageId(LIFE, 7, 2),
        MessageId(LIFE, 8, 1),
    ]
    assert bad == 0


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ("STRING", "grün".encode(), "grün"),
        ("BYTES", b"\x00\xff", "AP8="),
        ("JSON", b'{"big":123456789012345678901}', {"big": 123456789012345678901}),
        ("JSON", b'{\n"a":\r1}', {"a": 1}),
        ("NONE", b"[1]", [1]),
        ("NONE", b"text", "text"),
        ("", b"text", "text"),
        ("BOOLEAN", b"\x01", True),
        ("INT8", b"\xff", -1),
        ("INT16", b"\x01\x02", 258),
        ("INT32", b"\x00\x00\x00\x01", 1),
        ("INT64", b"\x7f" + b"\xff" * 7, 2**63 - 1),
        ("FLOAT", struct.pack(">f", 1.5), 1.5),
        ("DOUBLE", struct.pack(">d", -0.5), -0.5),
        ("JSON", None, None),
        ("INT32", None, None),
    ],
)
def test_values_are_read_as_the_schema_says(schema: str, value: bytes | None, expected: object) -> None:
    ((message,), bad) = written(source(schema), batch([value]))
    assert (message["value"], bad, "payload" in message) == (expected, 0, False)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("STRING", b"\xff"),
        ("JSON", b"{"),
        ("JSON", b'"\xff"'),
        ("JSON", b"[" * 5_000),
        ("NONE", b"\xff"),
        ("INT8", b"12"),
        ("DOUBLE", b""),
    ],
)
def test_what_cannot_be_read_comes_as_its_bytes(schema: str, value: bytes) -> None:
    good = {"STRING": b"a", "JSON": b"1", "NONE": b"1", "INT8": b"1", "DOUBLE": b"12345678"}[schema]
    ((first, message), bad) = written(source(schema), batch([good, value]))
    assert "payload" not in first
    assert (message["value"], base64.b64decode(message["payload"]), bad) == (None, value, 1)


def test_keys_are_read_as_the_source_says() -> None:
    info = source(decode=Decode(key="int"))
    ((one, two, none), bad) = written(info, batch([b"1"] * 3, key=[b"\x00\x00\x00\x02", b"x", None]))
    assert (one["key"], two["key"], two["keyPayload"], none["key"], bad) == (2, None, "eA==", None, 1)


def test_a_float_that_json_has_not_is_null() -> None:
    ((message,), _) = written(source("DOUBLE"), batch([struct.pack(">d", float("nan"))]))
    assert message["value"] is None


def test_a_value_that_is_no_bytes_and_has_no_json_is_null() -> None:
    ((one, two), bad) = written(source(), batch([{"a": 1}, {"a": object()}]))
    assert (one["value"], two["value"], bad) == ({"a": 1}, None, 1)


def test_what_names_a_schema_of_a_registry_is_read_by_that_whatever_is_said() -> None:
    schema = RegisteredSchema(7, '"string"')
    decode = Decode("avro", "avro", registry=True)
    columns: dict[str, Sequence[Any]] = {
        "value": [b"\0\0\0\0\7\2a", b"plain", b"\0\0\0\0\x09\2a", None],
        "key": [b"\2b", b"", None, None],
    }
    columns |= {"value schema": [schema, None, None, None], "key schema": [None] * 4}
    events = Batch({}, [0] * 4, range(4), columns, 0)
    said = ReadAs(PulsarType("STRING"), PulsarType("AVRO", '"string"'))
    found, bad = written(source(decode=decode), events, read_as=said)
    assert [(each["value"], each["key"]) for each in found] == [
        ("a", "b"),
        ("plain", None),
        (None, None),  # its schema is not known
        (None, None),
    ]
    assert (bad, found[1]["keyPayload"], "payload" in found[3]) == (2, "", False)


def test_events_without_a_value_are_their_columns() -> None:
    events = Batch({}, [0, 0], range(2), {"count": [1, 2], "name": ["a", "b"]}, 0)
    found, _ = written(source(), events)
    assert [each["value"] for each in found] == [{"count": 1, "name": "a"}, {"count": 2, "name": "b"}]


@pytest.mark.parametrize(
    ("schema", "decode", "expected"),
    [("INT8", "json", "INT8"), ("NONE", "long", "INT64"), ("", "avro", "AVRO"), ("", "json", "JSON")],
)
def test_the_type_that_is_said(schema: str, decode: Any, expected: str) -> None:
    assert schema_read(source(schema, Decode(decode))) == PulsarType(expected)


def test_a_message_that_is_delivered_again_counts_it() -> None:
    encoded = messages_wire(source(), LIFE, (0,), IN_ARRAY, counted=True).encode(batch([b"1"]))
    fragment = encoded.buffer[:-1]
    assert redelivered(fragment, 0) == fragment
    assert json.loads(redelivered(fragment, 12)) == json.loads(fragment) | {"redeliveryCount": 12}
