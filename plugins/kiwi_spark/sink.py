"""A query that writes to Kafka, and the topic that it writes to as the source.

The gateway then has nothing of its own to keep: the rows are in the topic, with offsets that every gateway
counts alike. So such a source can be read again, and any number of gateways can serve it; one of them runs
the query.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import trio

from kiwi_gw.api import (
    Batch,
    Extent,
    Field,
    Finding,
    HistoryReader,
    Kind,
    Out,
    PluginContext,
    PluginError,
    Positions,
    Shape,
    SourceContext,
    SourceStatistics,
)

# The plugin `kafka` has an extra of its own, which only sources with a sink need. Where one is built, the
# service `kafka` is open already.
if TYPE_CHECKING:
    from kiwi_kafka import Kafka, KafkaSettings, KafkaSource

SERVICE: Final = "kafka"
"""The service, and the section of the configuration, that a source with a sink needs."""

SINK_SHAPE: Final = Shape(
    (
        Field("sourceId", Kind.SOURCE_ID),
        Field("sourceType", Kind.SOURCE_TYPE),
        Field("partition", Kind.INT),
        Field("offset", Kind.INT),
        Field("timestamp", Kind.INT, none=-1),
        Field("key", Kind.JSON),
        Field("value", Kind.JSON),
    )
)
"""What a row looks like that came through Kafka. A record that is not JSON (somebody else's, in that topic)
is left out where events are encoded; the others are not held up by it."""

Tell = Callable[[str], None]
"""What `Out.trouble` is."""

RunQuery = Callable[[Tell], Awaitable[None]]
"""Runs the query of a source until it is over, or cancelled. It says what keeps it from working for now by
`Tell` (an empty message: nothing does), and raises SourceFailed if it can never work. What else it raises
starts the source again, behind what was taken from the topic."""


Details = Callable[[], Mapping[str, str | int | float | None]]
"""How the query is, for operators."""


def writes_here(write: bool, context: PluginContext) -> bool:
    """Whether this process runs the query. write: the setting `sink.write`."""
    return write and context.worker == 0


def too_many_workers(context: PluginContext, without_sink: Sequence[str]) -> str | None:
    """What is wrong if there are several workers and sources without a sink (their ids), for `check`."""
    if context.workers == 1 or not without_sink:
        return None
    one = len(without_sink) == 1
    return (
        f"server.workers is {context.workers}, and every worker would run the quer{'y' if one else 'ies'} of "
        f"{', '.join(map(repr, without_sink))} for itself: give {'it' if one else 'them'} a sink "
        "(sink: {topic: ...}), or set server.workers to 1"
    )


def refuse_workers(context: PluginContext, without_sink: Sequence[str]) -> None:
    """For `configure`: raises PluginError where `too_many_workers` has something to say."""
    message = too_many_workers(context, without_sink)
    if message is not None:
        raise PluginError(message)


def sink_source(
    topic: str, context: SourceContext, query: RunQuery | None, details: Details = dict
) -> SinkSource:
    """The source whose events are in `topic`, read through the service `kafka`; no I/O.

    query: None where another gateway, or another worker, runs it.
    """
    from kiwi_kafka import KafkaSource, KafkaSourceSettings

    settings = KafkaSourceSettings(type="kafka", topic=topic)
    return SinkSource(KafkaSource(settings, cast("Kafka", context.services[SERVICE])), query, details)


async def check_sinks(context: PluginContext, topics: Collection[str]) -> list[Finding]:
    """Whether the topics of sinks can be read; and the brokers, if none answers."""
    from kiwi_kafka import check_kafka

    if not topics:
        return []
    found = await check_kafka(cast("KafkaSettings", context.section(SERVICE)), sorted(set(topics)))
    about_topics = [finding for finding in found if not finding.subject.startswith("kafka broker ")]
    return about_topics or found


class SinkSource:
    """Reads the topic and, where it is told to, runs the query that fills it.

    When the query is over by itself (trigger `available_now`) the topic is still read: others may write it.
    """

    def __init__(self, topic: KafkaSource, query: RunQuery | None, details: Details = dict) -> None:
        self._topic = topic
        self._query = query
        self._details = details

    async def run(self, out: Out, start: Positions | None) -> None:
        """As the topic's own source does, and the query."""
        told = _Told(out)
        async with trio.open_nursery() as nursery:
            if self._query is not None:
                nursery.start_soon(self._query, told.part())
            await self._topic.run(told, start)
            nursery.cancel_scope.cancel()

    def statistics(self) -> SourceStatistics:
        """How far this gateway is behind the topic; how far the query is behind its inputs is Spark's."""
        return replace(self._topic.statistics(), details=self._details())

    async def extent(self) -> Extent:
        return await self._topic.extent()

    async def at(self, timestamp: int) -> Positions:
        return await self._topic.at(timestamp)

    @asynccontextmanager
    async def read_from(self, positions: Positions) -> AsyncIterator[HistoryReader]:
        async with self._topic.read_from(positions) as reader:
            yield reader


class _Told:
    """An `Out` with several parts that may be in trouble: all of it is told, until all of it is over."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self._troubles: list[str] = []
        self.trouble = self.part()

    def part(self) -> Tell:
        """What one more part says its troubles to."""
        number = len(self._troubles)
        self._troubles.append("")

        def tell(message: str) -> None:
            self._troubles[number] = message
            self._say()

        return tell

    def _say(self) -> None:
        self._out.trouble("; ".join(filter(None, self._troubles)))

    async def ready(self, positions: Positions) -> None:
        await self._out.ready(positions)
        if any(self._troubles):
            self._say()  # being ready means to be out of trouble, of which this is only a part

    async def publish(self, batch: Batch) -> None:
        await self._out.publish(batch)

    def describe(self, members: str) -> None:
        self._out.describe(members)

    async def wait_subscribed(self) -> None:
        await self._out.wait_subscribed()
