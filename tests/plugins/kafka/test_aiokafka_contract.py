"""What `kiwi_kafka/client/` uses of aiokafka beyond what it documents, by version of aiokafka.

When a test here fails after an update of aiokafka, it names what has changed and what uses it. Compare both
sources, and mend what uses it where it needs it; then note the version and the new fingerprints in
`CONTRACTS`.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections import defaultdict
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka.conn import SaslPlainAuthenticator, ScramAuthenticator
from aiokafka.partitioner import murmur2
from aiokafka.protocol import commit, coordination, fetch, offset, produce, transaction
from aiokafka.protocol.admin import ApiVersionRequest, SaslAuthenticateRequest, SaslHandShakeRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.struct import Struct
from aiokafka.record.control_record import ABORT_MARKER, ControlRecord
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.legacy_records import LegacyRecordBatch
from aiokafka.record.memory_records import MemoryRecords

import kiwi_kafka
from kiwi_kafka.client.requests import MetadataV12, TopicMetadataRequest
from kiwi_kafka.ports import NO_ID
from tests.plugins.kafka.batches import ABORT, COMMIT

USES: dict[str, tuple[Any, str]] = {
    "struct": (Struct, "BrokerConnection.ask, Brokers.describe: encode, decode, to_object"),
    "request struct": (RequestStruct, "BrokerConnection.ask: build_request_header, parse_response_header"),
    "request": (Request, "BrokerConnection.ask: prepare; TopicMetadataRequest, OffsetForLeaderEpochRequest"),
    "response": (Response, "MetadataV12, OffsetForLeaderEpoch"),
    "versions": (ApiVersionRequest, "open_connection: asked before any version is known"),
    "handshake": (SaslHandShakeRequest, "_log_in"),
    "authenticate": (SaslAuthenticateRequest, "_log_in"),
    "metadata": (MetadataRequest_v5, "TopicMetadataRequest, for brokers without version 12"),
    "offsets": (offset.OffsetRequest, "BrokerAdminClient"),
    "fetch": (fetch.FetchRequest, "BrokerAdminClient: fetches that are made seldom"),
    "plain": (SaslPlainAuthenticator, "_log_in: _step, as aiokafka's connection runs it in a thread"),
    "plain.step": (SaslPlainAuthenticator._step, "_log_in"),
    "scram": (ScramAuthenticator, "_log_in: _step, as aiokafka's connection runs it in a thread"),
    "control record": (ControlRecord, "FetchedRecords: which markers abort"),
    "hash": (murmur2, "partition_of"),
    "produce": (produce.ProduceRequest_v8, "ProduceRequest"),
    "produced": (
        produce.ProduceResponse_v8,
        "TopicProducer: the places of fields, as in all versions before; _named: of the errors of records",
    ),
    "producer": (transaction.InitProducerIdRequest, "TopicProducer"),
    "coordinator": (coordination.FindCoordinatorRequest, "GroupClient"),
    "commit": (commit.OffsetCommitRequest, "GroupClient"),
    "committed": (commit.OffsetCommitResponse_v3, "GroupClient: the places of fields, as in version 2"),
    "group offsets": (commit.OffsetFetchRequest, "GroupClient"),
    "group offsets found": (commit.OffsetFetchResponse_v3, "GroupClient: the places of fields"),
}

CONTRACTS: dict[str, dict[str, str]] = {
    "0.14.0": {
        "struct": "1835bf7796d2",
        "request struct": "253b240c5da7",
        "request": "83da61187d3a",
        "response": "0f912683f626",
        "versions": "db9c29121a64",
        "handshake": "3c6d955119a3",
        "authenticate": "a5d2f0cc5a76",
        "metadata": "6a8ad371d5fb",
        "offsets": "b5ab302aacfc",
        "fetch": "162ea893b5e5",
        "plain": "3aed699fb054",
        "plain.step": "78b565ebf1c7",
        "scram": "3fa35de0cae9",
        "control record": "dcc60e6ddcf1",
        "hash": "47284bfe2e11",
        "produce": "14496d58d045",
        "produced": "dc5c1b759391",
        "producer": "86d027795ddb",
        "coordinator": "8a2978b23a46",
        "commit": "c0ce10f35182",
        "committed": "96abd76b23c4",
        "group offsets": "3e8c9a371a27",
        "group offsets found": "6c265efea118",
    }
}
"""Of each version of aiokafka, the fingerprints of what is used. Its decoder is compiled: how it reads is
compared in `test_fetched_records.py`."""


def fingerprint(thing: Any) -> str:
    """Tell one source text from another, whatever its blanks are."""
    return hashlib.sha256(" ".join(inspect.getsource(thing).split()).encode()).hexdigest()[:12]


def test_the_installed_version_has_a_contract() -> None:
    assert aiokafka.__version__ in CONTRACTS, "look at what it changed, and note its fingerprints"
    assert all(contract.keys() == USES.keys() for contract in CONTRACTS.values())


@pytest.mark.parametrize("use", USES)
def test_what_is_used_is_as_it_was(use: str) -> None:
    thing, used_by = USES[use]
    found, noted = fingerprint(thing), CONTRACTS[aiokafka.__version__][use]
    assert found == noted, (
        f"{thing.__module__}.{thing.__qualname__} of aiokafka {aiokafka.__version__} has changed; "
        f"it is used by: {used_by}"
    )


def layouts(request: Any, first: int) -> Iterator[list[str]]:
    """Give the fields of a partition in all answers that the request may get, from version `first` on."""
    for version in request._CLASSES:
        if first <= version.API_VERSION:
            schema = version.RESPONSE_TYPE.SCHEMA
            topics = schema.fields[schema.names.index("topics")].array_of
            yield list(topics.fields[topics.names.index("partitions")].array_of.names)


def test_answers_have_the_fields_where_they_are_read() -> None:
    fetches = list(layouts(fetch.FetchRequest, 4))
    offsets = list(layouts(offset.OffsetRequest, 1))
    assert fetches
    assert offsets
    for fields in fetches:
        assert fields[:4] == ["partition", "error_code", "highwater_offset", "last_stable_offset"]
        assert fields[-1] == "message_set"
    for fields in offsets:
        assert fields == ["partition", "error_code", "timestamp", "offset"]


def test_batches_and_requests_have_what_is_asked_of_them() -> None:
    for name in ("base_offset", "next_offset", "producer_id", "is_control_batch", "is_transactional"):
        assert hasattr(DefaultRecordBatch, name), name
    # The older format has no transactions; no producer there is how it is told.
    for name in ("next_offset", "producer_id"):
        assert hasattr(LegacyRecordBatch, name), name
    for batch in (DefaultRecordBatch, LegacyRecordBatch):
        assert callable(batch.validate_crc)
    assert callable(MemoryRecords.has_next)
    assert callable(MemoryRecords.next_batch)
    assert ControlRecord.parse(ABORT) == ABORT_MARKER
    assert ControlRecord.parse(COMMIT) != ABORT_MARKER
    assert list(inspect.signature(fetch.FetchRequest).parameters)[:5] == [
        "max_wait_time",
        "min_bytes",
        "max_bytes",
        "isolation_level",
        "topics",
    ]
    parameters = list(inspect.signature(offset.OffsetRequest).parameters)
    assert parameters == ["replica_id", "isolation_level", "topics"]


def test_asking_for_a_topic_never_allows_to_create_it() -> None:
    for low, high in ((0, 13), (0, 11)):
        request = TopicMetadataRequest(["a", "b"]).prepare({3: (low, high)})
        allowed = request.get_item("allow_auto_topic_creation")
        assert allowed is False


def test_metadata_version_12_round_trip() -> None:
    request = TopicMetadataRequest(["a"], rights=True).prepare({3: (0, 13)})
    assert MetadataV12.decode(BytesIO(request.encode())) == request
    topic: tuple[object, ...] = (0, "a", b"\x01" * 16, False, [(0, 0, 5, 1, [5], [5], [], {})], 8, {})
    answer = MetadataV12.RESPONSE_TYPE(0, [(5, "host", 9092, None, {})], "cluster", 5, [topic], {})
    decoded = MetadataV12.RESPONSE_TYPE.decode(answer.encode())
    assert decoded.to_object()["topics"][0]["topic_id"] == b"\x01" * 16
    assert len(NO_ID) == 16


INSIDES = {
    "client/connection.py": {"aiokafka.conn"},
    "client/fetched_records.py": {"aiokafka.record.control_record", "aiokafka.record.memory_records"},
    "client/outgoing_batch.py": {"aiokafka.partitioner", "aiokafka.record.default_records"},
    "client/requests.py": {
        "aiokafka.protocol",
        "aiokafka.protocol.abstract",
        "aiokafka.protocol.admin",
        "aiokafka.protocol.api",
        "aiokafka.protocol.commit",
        "aiokafka.protocol.coordination",
        "aiokafka.protocol.fetch",
        "aiokafka.protocol.group",
        "aiokafka.protocol.metadata",
        "aiokafka.protocol.offset",
        "aiokafka.protocol.produce",
        "aiokafka.protocol.transaction",
    },
}


def test_no_other_file_of_the_plugin_uses_aiokafkas_insides() -> None:
    root = Path(kiwi_kafka.__file__).parent
    users: dict[str, set[str]] = defaultdict(set)
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for module in modules_of(node):
                if module.split(".")[0] == "aiokafka" and module not in ("aiokafka", "aiokafka.errors"):
                    users[path.relative_to(root).as_posix()].add(module)
    assert users == INSIDES


def test_no_file_of_the_plugin_takes_more_of_aiokafka_itself_than_its_errors() -> None:
    root = Path(kiwi_kafka.__file__).parent
    taken = {
        name.name
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "aiokafka"
        for name in node.names
    }
    assert taken == {"errors"}


def modules_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []
