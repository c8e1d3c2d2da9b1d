"""All that is used of aiokafka beyond what it documents: its client, its requests, its decoder.

No other file of this plugin imports more of aiokafka than `TopicPartition` and its errors. After an update of
aiokafka `tests/plugins/kafka/test_aiokafka_contract.py` names what has changed of what is used here.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from itertools import islice
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer
from aiokafka import errors as kafka_errors
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.consumer.fetcher import READ_COMMITTED, FetchResult, PartitionRecords
from aiokafka.protocol import types as kafka
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.fetch import FetchRequest as FetchRequest
from aiokafka.protocol.metadata import MetadataRequest, MetadataRequest_v5
from aiokafka.protocol.offset import OffsetRequest as OffsetRequest
from aiokafka.record.memory_records import MemoryRecords

from kiwi_kafka.ports import NO_ID

VERSION = "0.14.0"
"""The version of aiokafka whose insides are known. Fast records are used with exactly this one."""

log = logging.getLogger("kiwi_kafka")

_CLOSE_S = 0.5
_OF_CONNECTIONS = ("client_id", "request_timeout_ms", "ssl_", "security_", "sasl_")
_BATCH_HEAD = 12  # bytes: offset and length, which come before what the length counts


# --- requests that aiokafka does not have (Kafka protocol guide: Metadata, OffsetForLeaderEpoch) ---
#
# Metadata in version 12 knows topic ids, rights and epochs: a topic that is deleted and created anew has
# another id, and nothing else tells it apart for sure.

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


# --- the client ---


class ReadOnlyClient(AIOKafkaClient):  # type: ignore[misc]
    """Ask for topics without ever creating one, and never for all topics.

    aiokafka's metadata requests allow the broker to create what is missing, so that a consumer creates the
    topic it waits for, and a deleted topic anew. `_metadata_update` is there because aiokafka has no option
    for that. Its `bootstrap` does not say why it failed, and leaves a connection open when it is cancelled.

    missed: a broker said that the topic of a fetch is gone. In the versions that aiokafka speaks brokers know
    topics by name only, so the next answer may be from another topic of that name.
    on_batches: called with a partition (topic, number) and the bytes that a fetch brought of it.
    fetch_interval: least seconds from one fetch of a broker to the next.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.missed = False
        self.on_batches: Callable[[tuple[str, int], bytes], None] = lambda *_: None
        self.fetch_interval = 0.0
        self._next_fetch: dict[Any, float] = {}
        self._updated = 0.0
        self._is_closed = False
        self._connection = {name: options[name] for name in options if name.startswith(_OF_CONNECTIONS)}

    async def bootstrap(self) -> None:
        """Learn the brokers from the first server that answers. KafkaConnectionError: none did, and why."""
        problems = []
        for host, port, _ in self.hosts:
            try:
                answer = await self._ask_one(host, port)
            except (kafka_errors.KafkaError, OSError) as error:
                problems.append(f"{host}:{port}: {error or type(error).__name__}")
            else:
                if answer.brokers:
                    self.cluster.update_metadata(answer)
                    self._sync_task = asyncio.create_task(self._md_synchronizer())
                    return
                # It was stopped for a while and has to register anew. A client without brokers asks none.
                problems.append(f"{host}:{port}: no broker is registered yet")
        raise kafka_errors.KafkaConnectionError("; ".join(problems))

    async def close(self) -> None:
        self._is_closed = True
        await super().close()

    async def send(self, node_id: Any, request: Any, **group: Any) -> Any:
        if not isinstance(request, FetchRequest):
            return await super().send(node_id, request, **group)
        if self.fetch_interval:
            now = time.monotonic()
            due = max(now, self._next_fetch.get(node_id, 0.0))
            self._next_fetch[node_id] = due + self.fetch_interval
            await asyncio.sleep(due - now)
        answer = await super().send(node_id, request, **group)
        for topic, parts in answer.topics:
            for partition, code, *rest in parts:
                self.on_batches((topic, partition), rest[-1])
                self.missed = self.missed or code == kafka_errors.UnknownTopicOrPartitionError.errno
        return answer

    async def ready(self, node_id: Any, **group: Any) -> bool:
        # aiokafka's client would connect again after it was closed, for a request that was under way.
        if self._is_closed:
            return False
        connected: bool = await super().ready(node_id, **group)
        return connected and await self._still_open()

    async def _still_open(self) -> bool:
        if self._is_closed:
            await super().close()  # that connection, too
        return not self._is_closed

    async def _ask_one(self, host: str, port: int) -> Any:
        connection = AIOKafkaConnection(host, port, **self._connection)
        try:
            await connection.connect()
            return await connection.send(MetadataRequest([], False))
        finally:
            closed = connection.close()
            if connection._protocol is not None:  # it was connected, whatever happened then
                # Its end is only waited for so that the event loop is not closed before it.
                await asyncio.wait([closed], timeout=_CLOSE_S)

    async def _metadata_update(self, cluster_metadata: Any, topics: Any) -> bool:
        # While a partition has no leader aiokafka asks again without a pause.
        await asyncio.sleep(max(0.0, self._updated + self._retry_backoff - time.monotonic()))
        try:
            return await self._ask(cluster_metadata, MetadataRequest(list(topics), False))
        finally:
            self._updated = time.monotonic()

    async def _ask(self, cluster_metadata: Any, request: MetadataRequest) -> bool:
        nodes = [broker.nodeId for broker in self.cluster.brokers()]
        random.shuffle(nodes)
        for node in nodes:
            try:
                answer = await self.send(node, request)
            except kafka_errors.KafkaError:
                continue
            if answer.brokers:
                cluster_metadata.update_metadata(answer)
                return True
        cluster_metadata.failed_update(None)
        return False


class ReadOnlyConsumer(AIOKafkaConsumer):  # type: ignore[misc]
    """Consume through a `ReadOnlyClient`. connection: options of every client; options: of the consumer."""

    def __init__(self, connection: Mapping[str, Any], *, fetch_max_wait_ms: int, **options: Any) -> None:
        super().__init__(**connection, fetch_max_wait_ms=fetch_max_wait_ms, **options)
        self._client: ReadOnlyClient = ReadOnlyClient(**connection)
        self._usual_wait_ms = fetch_max_wait_ms

    @property
    def client(self) -> ReadOnlyClient:
        """Return the client that it reads through."""
        return self._client

    async def start(self) -> None:
        await super().start()
        use_fast_records(self._fetcher)

    async def stop(self) -> None:
        try:
            await super().stop()
        except asyncio.CancelledError:
            # aiokafka cancels its fetches and then waits for them: one that was pausing after an error
            # raises that cancellation out of here, and the connections stay open.
            await self._client.close()

    def set_fetch_interval(self, interval_ms: int) -> None:
        """Fetch every `interval_ms` from now on, so that one fetch brings the records of many; 0: at once.

        aiokafka has no such option. A broker that held such a fetch would go through all of its partitions
        for every record that one of them gets, on the time of the sender of that record.
        """
        self._client.fetch_interval = interval_ms / 1000
        self._fetcher._fetch_max_wait_ms = 0 if interval_ms else self._usual_wait_ms


# --- records, as the decoder makes them ---
#
# aiokafka takes a generator's step, a method call and a dataclass of eleven fields for each record: more than
# its decoding costs. The decoder's own objects have all that is wanted of a record. So a consumer keeps
# `FastRecords` in place of `PartitionRecords`, and takes records by the thousand, in C: 1.2 us of CPU each
# with the columns, where it was 2.2. Another version of aiokafka is read in its own way.


def use_fast_records(fetcher: Any) -> bool:
    """Make a fetcher that has fetched nothing yet keep fast records. False: it is another version."""
    if aiokafka.__version__ != VERSION:
        log.info("aiokafka %s is read record by record", aiokafka.__version__)
        return False
    fetcher._records = FastFetches()
    return True


class FastRecords:
    """Hold the records of one partition in one fetch, behind the methods of a `FetchResult`."""

    def __init__(self, fetched: FetchResult) -> None:
        self._tp = fetched._topic_partition
        self._assignment = fetched._assignment
        self._fetch: PartitionRecords | None = fetched._partition_records
        # Its generator is not used. The two keep each other alive, and a megabyte, until a full collection.
        self._fetch._records_iterator = None
        self._batch: Any = None
        self._left: Iterator[Any] = iter(())

    def has_more(self) -> bool:
        return self._fetch is not None

    def getall(self, max_records: int | None = None) -> list[Any]:
        """Return the next records, at most `max_records`; the partition's position is then behind them.
        Raises whatever decoding raises; nothing of this fetch is handed out afterwards."""
        fetch, self._fetch = self._fetch, None
        if fetch is None or not self._may_go_on(fetch):
            return []
        records = self._take(fetch, max_records)
        self._assignment.state_value(self._tp).consumed_to(fetch.next_fetch_offset)
        if max_records is not None and len(records) == max_records:
            self._fetch = fetch
        return records

    def _may_go_on(self, fetch: PartitionRecords) -> bool:
        # A partition may have been paused, taken away or sent elsewhere since it was fetched.
        if not self._assignment.active:
            return False
        state = self._assignment.state_value(self._tp)
        return not state.paused and bool(state.position == fetch.next_fetch_offset)

    def _take(self, fetch: PartitionRecords, most: int | None) -> list[Any]:
        taken: list[Any] = []
        while most is None or len(taken) < most:
            if self._batch is None and not self._open(fetch):
                break
            wanted = None if most is None else most - len(taken)
            records = list(islice(self._left, wanted))
            ended = wanted is None or len(records) < wanted
            first = fetch.next_fetch_offset
            if records and not ended:
                fetch.next_fetch_offset = max(first, records[-1].offset + 1)
            elif ended:
                # Behind the batch and not behind its last record, which compaction may have removed.
                fetch.next_fetch_offset = self._batch.next_offset
                self._batch = None
            if records and records[0].offset < first:  # a fetch begins with a whole batch
                records = [record for record in records if record.offset >= first]
            taken += records
        return taken

    def _open(self, fetch: PartitionRecords) -> bool:
        # As `PartitionRecords._unpack_records`, whose notes say why. False: there is no further batch.
        while fetch._records.has_next():
            batch = fetch._records.next_batch()
            if fetch._check_crcs and not batch.validate_crc():
                raise kafka_errors.CorruptRecordException(f"Invalid CRC - {self._tp}")
            aborted = False
            if fetch._isolation_level == READ_COMMITTED and batch.producer_id is not None:
                fetch._consume_aborted_up_to(batch.base_offset)
                if batch.is_control_batch and fetch._contains_abort_marker(batch):
                    fetch._aborted_producers.discard(batch.producer_id)
                aborted = batch.is_transactional and batch.producer_id in fetch._aborted_producers
            if aborted or batch.is_control_batch:
                fetch.next_fetch_offset = batch.next_offset
                continue
            self._batch = batch
            self._left = filter(None, batch)  # the batch itself can only be iterated in one go
            return True
        return False


class FastFetches(OrderedDict[Any, Any]):
    """Keep what was fetched, by partition. A `FetchResult` that is put in reads fast records."""

    def __setitem__(self, tp: Any, fetched: Any) -> None:
        if type(fetched) is FetchResult:
            fast = FastRecords(fetched)
            fetched.getall, fetched.has_more = fast.getall, fast.has_more
            fetched._partition_records = None  # not read by anything else from now on
        super().__setitem__(tp, fetched)


def first_corrupt_batch(data: bytes) -> tuple[int, int, int] | None:
    """Return first and next offset of the first batch that cannot be decoded, and its end in `data`."""
    records = MemoryRecords(data)
    end = 0
    while records.has_next():
        end += _BATCH_HEAD + int.from_bytes(data[end + 8 : end + _BATCH_HEAD], "big")
        batch = records.next_batch()
        bounds = (batch.base_offset, batch.next_offset, end)
        try:
            if not batch.validate_crc():
                return bounds
            for _ in batch:
                pass
        except Exception:  # noqa: BLE001  (whatever the decoder raises is what is looked for)
            return bounds
    return None
