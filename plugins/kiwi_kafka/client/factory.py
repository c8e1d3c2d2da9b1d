"""Opens aiokafka's clients on an asyncio loop that runs inside Trio's thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from kiwi_kafka.client.admin import AioAdminClient
from kiwi_kafka.client.asyncio_loop import AsyncioLoop
from kiwi_kafka.client.consumer import AioConsumer
from kiwi_kafka.client.errors import deadline
from kiwi_kafka.client.internals import ReadOnlyClient, ReadOnlyConsumer
from kiwi_kafka.client.options import connection_options, consumer_options
from kiwi_kafka.ports import AdminClient, Consumer
from kiwi_kafka.settings import KafkaSettings

T = TypeVar("T")

_HISTORY_WAIT_MS = 100


class AioClientFactory:
    """Open the clients of one cluster. `loop` must be open as long as any of them is."""

    def __init__(self, loop: AsyncioLoop, settings: KafkaSettings) -> None:
        self._loop = loop
        self._settings = settings
        self._ids: dict[str, bytes] = {}

    async def admin(self) -> AdminClient:
        within = self._settings.probe_timeout_ms

        async def opened() -> ReadOnlyClient:
            options = connection_options(self._settings) | {"request_timeout_ms": within}
            client = ReadOnlyClient(**options)
            await client.bootstrap()
            return client

        # Every server that is tried has `within` for connecting and again for its answer.
        client = await self._open(opened, 2 * within / 1000 * len(self._settings.servers))
        return AioAdminClient(self._loop, client, within / 1000, self._ids)

    async def consumer(self, *, live: bool = True) -> Consumer:
        async def opened() -> ReadOnlyConsumer:
            wait_ms = self._settings.client.fetch_max_wait_ms if live else _HISTORY_WAIT_MS
            consumer = ReadOnlyConsumer(
                connection_options(self._settings),
                fetch_max_wait_ms=wait_ms,
                **consumer_options(self._settings),
            )
            try:
                await consumer.start()
            except BaseException:
                await consumer.stop()
                raise
            return consumer

        # The cluster has answered the admin client before; connecting takes a few round trips.
        return AioConsumer(self._loop, await self._open(opened, 2 * self._settings.probe_timeout_ms / 1000))

    async def _open(self, opened: Callable[[], Coroutine[Any, Any, T]], within: float) -> T:
        asked = ", ".join(self._settings.servers)
        with deadline(within, f"no answer from {asked} within {within:g} s"):
            return await self._loop.run_aio_coroutine(opened())
