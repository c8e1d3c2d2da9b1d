"""aiokafka's clients as this plugin needs them, and their options from the settings."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError, KafkaError, UnknownTopicOrPartitionError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest

from kiwi_kafka.epochs import Epochs
from kiwi_kafka.runs import hand_out_runs
from kiwi_kafka.settings import TLS_PROTOCOLS, KafkaSettings, SecuritySettings

_CLOSE_S = 0.5


def tls_context(security: SecuritySettings) -> ssl.SSLContext | None:
    """The TLS context, None for protocols without. OSError or ssl.SSLError if a file cannot be used."""
    if security.protocol not in TLS_PROTOCOLS:
        return None
    context = ssl.create_default_context(cafile=str(security.ca) if security.ca else None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = security.check_hostname
    if security.cert is not None and security.key is not None:
        secret = security.key_password
        context.load_cert_chain(security.cert, security.key, secret.get_secret_value() if secret else None)
    return context


def connection_options(settings: KafkaSettings) -> dict[str, Any]:
    """What every client of aiokafka takes: where, how long, and as whom."""
    client, security = settings.client, settings.security
    return {
        "bootstrap_servers": settings.servers,
        "client_id": client.client_id,
        "request_timeout_ms": client.request_timeout_ms,
        "retry_backoff_ms": client.retry_backoff_ms,
        "metadata_max_age_ms": client.metadata_max_age_ms,
        "connections_max_idle_ms": client.connections_max_idle_ms,
        "security_protocol": security.protocol,
        "ssl_context": tls_context(security),
        "sasl_mechanism": security.mechanism,
        "sasl_plain_username": security.username,
        "sasl_plain_password": security.password.get_secret_value() if security.password else None,
    }


class LookingClient(AIOKafkaClient):  # type: ignore[misc]
    """A client that never creates a topic by asking for it, and never asks for all topics.

    aiokafka's metadata requests allow the broker to create what is missing, so that a consumer creates
    the topic it waits for, and a deleted topic anew. It has no option for that: hence `_metadata_update`.
    Its `bootstrap` does not say why it failed, and leaves a connection open when it is cancelled.

    missed: a fetch was told that its topic is not there. Brokers of the version that aiokafka speaks know
    topics by name only, so the next answer may be from another topic that has that name now.
    pace: seconds from one fetch of a broker to the next, at least.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.missed = False
        self.epochs = Epochs()
        self.pace = 0.0
        self._next_fetch: dict[Any, float] = {}
        self._updated = 0.0
        self._is_closed = False
        self._connection = {
            name: options[name]
            for name in (
                "client_id",
                "request_timeout_ms",
                "ssl_context",
                "security_protocol",
                "sasl_mechanism",
                "sasl_plain_username",
                "sasl_plain_password",
            )
        }

    async def bootstrap(self) -> None:
        """Learn the brokers from the first bootstrap server that answers. KafkaConnectionError: none did,
        and why."""
        problems = []
        for host, port, _ in self.hosts:
            try:
                answer = await self._ask_one(host, port)
            except (KafkaError, OSError) as error:
                problems.append(f"{host}:{port}: {error or type(error).__name__}")
            else:
                self.cluster.update_metadata(answer)
                self._sync_task = asyncio.create_task(self._md_synchronizer())
                return
        raise KafkaConnectionError("; ".join(problems))

    async def close(self) -> None:
        self._is_closed = True
        await super().close()

    async def send(self, node_id: Any, request: Any, **group: Any) -> Any:
        if self.pace and isinstance(request, FetchRequest):
            now = time.monotonic()
            due = max(now, self._next_fetch.get(node_id, 0.0))
            self._next_fetch[node_id] = due + self.pace
            await asyncio.sleep(due - now)
        answer = await super().send(node_id, request, **group)
        if isinstance(request, FetchRequest):
            for topic, parts in answer.topics:
                for partition, *rest in parts:
                    self.epochs.note((topic, partition), rest[-1])
        if isinstance(request, FetchRequest) and any(
            code == UnknownTopicOrPartitionError.errno for _, parts in answer.topics for _, code, *_ in parts
        ):
            self.missed = True
        return answer

    async def ready(self, node_id: Any, **group: Any) -> bool:
        """aiokafka's client would connect again after it was closed, for a request that was under way."""
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
            except KafkaError:
                continue
            if answer.brokers:
                cluster_metadata.update_metadata(answer)
                return True
        cluster_metadata.failed_update(None)
        return False


class LookingConsumer(AIOKafkaConsumer):  # type: ignore[misc]
    """A consumer on a LookingClient, without a group and without a reset of offsets."""

    def __init__(self, settings: KafkaSettings, wait_ms: int | None = None) -> None:
        """wait_ms: how long a broker may hold a fetch for which it has nothing; None: as the settings say."""
        options, client = connection_options(settings), settings.client
        wait_ms = client.fetch_max_wait_ms if wait_ms is None else wait_ms
        super().__init__(
            **options,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            fetch_max_wait_ms=wait_ms,
            fetch_min_bytes=client.fetch_min_bytes,
            fetch_max_bytes=client.fetch_max_bytes,
            max_partition_fetch_bytes=client.max_partition_fetch_bytes,
            max_poll_records=client.max_poll_records,
            client_rack=client.client_rack,
            consumer_timeout_ms=5_000,
        )
        self._client = LookingClient(**options)
        self._usual_wait_ms = wait_ms

    @property
    def missed(self) -> bool:
        """Whether what it reads may be another topic by now."""
        return bool(self._client.missed)

    def epoch_before(self, place: tuple[str, int], offset: int) -> int:
        """Of the leader that wrote the last batch before that offset; -1 if that is not known."""
        return int(self._client.epochs.before(place, offset))

    async def start(self) -> None:
        await super().start()
        hand_out_runs(self._fetcher)

    async def stop(self) -> None:
        try:
            await super().stop()
        except asyncio.CancelledError:
            # aiokafka cancels its fetches and then waits for them: one that was pausing after an error
            # raises that cancellation out of here, and the connections stay open.
            await self._client.close()

    def gather(self, wait_ms: int) -> None:
        """From now on look at brokers every `wait_ms`, so that one fetch brings the records of many; 0: as
        soon as there is something. aiokafka has no option that can be changed: hence this.

        A broker that held such a fetch would go through all of its partitions for every record that one of
        them gets, on the time of whoever sends that record.
        """
        self._client.pace = wait_ms / 1000
        self._fetcher._fetch_max_wait_ms = 0 if wait_ms else self._usual_wait_ms
