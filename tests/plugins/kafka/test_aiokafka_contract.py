"""What `kiwi_kafka/client/internals.py` uses of aiokafka's insides, by version of aiokafka.

When a test here fails after an update of aiokafka, it names what has changed and what uses it. Compare both
sources, and mend `internals.py` where it needs it; then note the version and the new fingerprints in
`CONTRACTS`, and in `VERSION` that its records can be read fast.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.consumer.fetcher import Fetcher, FetchResult, PartitionRecords
from aiokafka.protocol import fetch, offset
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords
from kiwi_kafka.client.internals import VERSION, MetadataV12, TopicMetadataRequest

import kiwi_kafka
from kiwi_kafka.ports import NO_ID

USES: dict[str, tuple[Any, str]] = {
    "client": (AIOKafkaClient.__init__, "ReadOnlyClient: hosts, cluster, _retry_backoff, _sync_task"),
    "client.hosts": (AIOKafkaClient.hosts.fget, "ReadOnlyClient.bootstrap"),
    "client.bootstrap": (AIOKafkaClient.bootstrap, "replaced by ReadOnlyClient.bootstrap"),
    "client.synchronizer": (AIOKafkaClient._md_synchronizer, "started by ReadOnlyClient.bootstrap"),
    "client.update": (AIOKafkaClient._metadata_update, "replaced by ReadOnlyClient._metadata_update"),
    "client.send": (AIOKafkaClient.send, "ReadOnlyClient.send"),
    "client.ready": (AIOKafkaClient.ready, "ReadOnlyClient.ready"),
    "client.close": (AIOKafkaClient.close, "ReadOnlyClient.close, called twice"),
    "connection": (AIOKafkaConnection.__init__, "ReadOnlyClient._ask_one: its options, _protocol"),
    "connection.close": (AIOKafkaConnection.close, "ReadOnlyClient._ask_one waits for what it returns"),
    "consumer.start": (AIOKafkaConsumer.start, "ReadOnlyConsumer: _client is used, _fetcher is made"),
    "consumer.stop": (AIOKafkaConsumer.stop, "ReadOnlyConsumer.stop"),
    "fetcher": (Fetcher.__init__, "ReadOnlyConsumer: _records, _fetch_max_wait_ms"),
    "fetcher.fetch": (Fetcher._proc_fetch_request, "FastFetches: where a FetchResult is put in"),
    "fetcher.records": (Fetcher.fetched_records, "FastFetches: where a FetchResult is read"),
    "fetch result": (FetchResult, "FastRecords has its methods"),
    "records": (PartitionRecords, "FastRecords decodes as it does"),
    "struct": (RequestStruct, "MetadataV12, OffsetForLeaderEpoch"),
    "request": (Request, "TopicMetadataRequest, OffsetForLeaderEpochRequest"),
    "response": (Response, "MetadataV12, OffsetForLeaderEpoch"),
    "metadata": (MetadataRequest, "ReadOnlyClient._metadata_update, _ask_one"),
}

CONTRACTS: dict[str, dict[str, str]] = {
    "0.14.0": {
        "client": "2c145ca6f55a",
        "client.hosts": "2409da7aabe6",
        "client.bootstrap": "db81940b88ec",
        "client.synchronizer": "7f81293ee3c2",
        "client.update": "b0fbd354d3af",
        "client.send": "1eb1958d204c",
        "client.ready": "b598bcba9bd8",
        "client.close": "f76d3f828a64",
        "connection": "8a4970ef6bad",
        "connection.close": "ceaf7f674d89",
        "consumer.start": "c645f4ba2a2b",
        "consumer.stop": "df232eec02f3",
        "fetcher": "22d060f3f67e",
        "fetcher.fetch": "074d9f91c524",
        "fetcher.records": "c9d369de9e88",
        "fetch result": "63573b686fb4",
        "records": "44398686f013",
        "struct": "253b240c5da7",
        "request": "83da61187d3a",
        "response": "0f912683f626",
        "metadata": "55056f9143fc",
    }
}
"""Of each version of aiokafka, the fingerprints of what is used."""


def fingerprint(thing: Any) -> str:
    """Tell one source text from another, whatever its blanks are."""
    return hashlib.sha256(" ".join(inspect.getsource(thing).split()).encode()).hexdigest()[:12]


def test_the_installed_version_has_a_contract_and_is_read_fast() -> None:
    assert aiokafka.__version__ in CONTRACTS, "look at what it changed, and note its fingerprints"
    assert aiokafka.__version__ == VERSION
    assert all(contract.keys() == USES.keys() for contract in CONTRACTS.values())


@pytest.mark.parametrize("use", USES)
def test_what_is_used_is_as_it_was(use: str) -> None:
    thing, used_by = USES[use]
    found, noted = fingerprint(thing), CONTRACTS[aiokafka.__version__][use]
    assert found == noted, (
        f"{thing.__module__}.{thing.__qualname__} of aiokafka {aiokafka.__version__} has changed; "
        f"it is used by: {used_by}"
    )


def test_the_fetcher_reads_its_pause_and_its_fetches_where_they_are_replaced() -> None:
    source = " ".join(inspect.getsource(Fetcher).split())
    assert "self._fetch_max_wait_ms, self._fetch_min_bytes," in source
    assert "self._records[tp] = FetchResult(" in source
    assert "if type(res_or_error) is FetchResult: records = res_or_error.getall(max_records)" in source
    assert "if not res_or_error.has_more():" in source


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
    assert callable(DefaultRecordBatch.validate_crc)
    assert callable(MemoryRecords.has_next)
    assert callable(MemoryRecords.next_batch)
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


def test_no_other_file_of_the_plugin_uses_aiokafkas_insides() -> None:
    root = Path(kiwi_kafka.__file__).parent
    users = {
        str(path.relative_to(root)): module
        for path in sorted(root.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for module in modules_of(node)
        if module.split(".")[0] == "aiokafka" and module not in ("aiokafka", "aiokafka.errors")
    }
    assert set(users) == {"client/internals.py"}


def modules_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []
