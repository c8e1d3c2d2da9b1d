"""Opens the clients of a cluster."""

from __future__ import annotations

from functools import partial

import trio

from kiwi_kafka.client.admin import BrokerAdminClient
from kiwi_kafka.client.brokers import Brokers
from kiwi_kafka.client.consumer import FetchingConsumer
from kiwi_kafka.client.fetch_session import FetchLimits
from kiwi_kafka.client.group_member import TopicGroupMember
from kiwi_kafka.client.groups import GroupClient
from kiwi_kafka.client.options import connection_options
from kiwi_kafka.client.producer import TopicProducer
from kiwi_kafka.ports import (
    AdminClient,
    Consumer,
    GroupMembership,
    GroupMemberTask,
    GroupOffsets,
    RecordProducer,
)
from kiwi_kafka.settings import KafkaSettings

_HISTORY_WAIT_MS = 100


class BrokerClientFactory:
    """Open the clients of one cluster. nursery: where consumers have their tasks, until they are closed."""

    def __init__(self, settings: KafkaSettings, nursery: trio.Nursery) -> None:
        self._settings = settings
        self._nursery = nursery
        self._ids: dict[str, bytes] = {}
        timeout, retry = settings.client.request_timeout_ms, settings.client.retry_backoff_ms / 1000
        self._groups = GroupClient(partial(self._brokers, timeout), retry)

    async def admin(self) -> AdminClient:
        within = self._settings.probe_timeout_ms
        brokers = await self._brokers(within)
        return BrokerAdminClient(brokers, within / 1000, self._ids)

    async def consumer(self, *, live: bool = True) -> Consumer:
        client = self._settings.client
        brokers = await self._brokers(client.request_timeout_ms)
        limits = FetchLimits(
            client.fetch_max_wait_ms if live else _HISTORY_WAIT_MS,
            client.fetch_min_bytes,
            client.fetch_max_bytes,
            client.max_partition_fetch_bytes,
            client.client_rack or "",
            once=not live,
        )
        consumer = FetchingConsumer(
            brokers,
            limits,
            timeout=client.request_timeout_ms / 1000,
            most=client.max_poll_records,
            retry=client.retry_backoff_ms / 1000,
            refresh=client.metadata_max_age_ms / 1000,
        )
        self._nursery.start_soon(consumer.run)
        return consumer

    def producer(self, topic: str) -> RecordProducer:
        client = self._settings.client
        return TopicProducer(
            topic,
            partial(self._brokers, client.request_timeout_ms),
            retry=client.retry_backoff_ms / 1000,
            refresh=client.metadata_max_age_ms / 1000,
        )

    def groups(self) -> GroupOffsets:
        return self._groups

    def member(self, membership: GroupMembership) -> GroupMemberTask:
        return TopicGroupMember(self._groups, membership)

    async def _brokers(self, timeout_ms: int) -> Brokers:
        brokers = Brokers(self._settings.servers, connection_options(self._settings, timeout_ms))
        try:
            # For connecting, and for an answer.
            await brokers.bootstrap(2 * self._settings.probe_timeout_ms / 1000)
        except BaseException:
            brokers.close()
            raise
        return brokers
