"""A query that writes to Kafka, and the topic that it writes to as the source.

The gateway then has nothing of its own to keep: the rows are in the topic, with offsets that every gateway
counts alike. So such a source can be read again, and any number of gateways can serve it; one of them runs
the query.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import trio

from kiwi_gw.api import (
    Diagnostic,
    EventSchema,
    Field,
    FieldEncoding,
    PluginContext,
    Positions,
    Publisher,
    SourceContext,
    SourceStatistics,
)

# The plugin `kafka` has an extra of its own, which only sources with a sink need. Where one is built, the
# service `kafka` is open already.
if TYPE_CHECKING:
    from kiwi_kafka import Kafka, KafkaSettings, KafkaSource

SERVICE: Final = "kafka"
"""The service, and the section of the configuration, that a source with a sink needs."""

SINK_SCHEMA: Final = EventSchema(
    (
        Field("sourceId", FieldEncoding.SOURCE_ID),
        Field("sourceType", FieldEncoding.SOURCE_TYPE),
        Field("partition", FieldEncoding.INT),
        Field("offset", FieldEncoding.INT),
        Field("timestamp", FieldEncoding.INT, none=-1),
        Field("key", FieldEncoding.JSON),
        Field("value", FieldEncoding.JSON),
    )
)
"""What a row looks like that came through Kafka. A record that is not JSON (another producer's) is left out
where events are encoded; the others are not held up by it."""

Tell = Callable[[str], None]
"""The type of `Publisher.report_degraded`."""

RunQuery = Callable[[Tell, Callable[[], None]], Awaitable[None]]
"""Runs the query of a source until it is over, or cancelled. It says what keeps it from working for now by
`Tell` (an empty message: nothing does), calls the second argument when it is fixed where it begins in its
inputs, and raises SourceFailed if it can never work. What else it raises starts the source again, behind what
was taken from the topic."""


Details = Callable[[], Mapping[str, str | int | float | None]]
"""How the query is, for operators."""


def writes_here(write: bool, context: PluginContext) -> bool:
    """Return whether this process runs the query. write: the setting `sink.write`."""
    return write and context.worker == 0


def too_many_workers(context: PluginContext, without_sink: Sequence[str]) -> str | None:
    """Return what is wrong if there are several workers and sources without a sink (their ids), for
    `check`."""
    if context.workers == 1 or not without_sink:
        return None
    one = len(without_sink) == 1
    return (
        f"server.workers is {context.workers}, and every worker would run the quer{'y' if one else 'ies'} of "
        f"{', '.join(map(repr, without_sink))} for itself: give {'it' if one else 'them'} a sink "
        "(sink: {topic: ...}), or set server.workers to 1"
    )


def sink_source(
    topic: str, context: SourceContext, query: RunQuery | None, details: Details = dict
) -> SinkSource:
    """Make the source whose events are in `topic`, read through the service `kafka`; no I/O.

    query: None where another gateway, or another worker, runs it.
    """
    from kiwi_kafka import KafkaSource, KafkaSourceSettings

    settings = KafkaSourceSettings(type="kafka", topic=topic)
    return SinkSource(KafkaSource(settings, cast("Kafka", context.services[SERVICE])), query, details)


async def check_sinks(context: PluginContext, topics: Collection[str]) -> list[Diagnostic]:
    """Find whether the topics of sinks can be read, and report the brokers, if none answers."""
    from kiwi_kafka import check_kafka

    if not topics:
        return []
    found = await check_kafka(cast("KafkaSettings", context.section(SERVICE)), sorted(set(topics)))
    about_topics = [finding for finding in found if not finding.subject.startswith("kafka broker ")]
    return about_topics or found


class SinkSource:
    """Reads the topic and, where this gateway writes it, runs the query that fills it. It is ready when what
    is produced from then on will be in the results, or subscribers are told what keeps the query from
    running.

    When the query is over by itself (trigger `available_now`) the topic is still read: others may write it.
    """

    def __init__(self, topic: KafkaSource, query: RunQuery | None, details: Details = dict) -> None:
        self._topic = topic
        self._query = query
        self._details = details
        self.offset_range, self.at, self.read_from = topic.offset_range, topic.at, topic.read_from

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        """Run as the topic's own source does, and run the query."""
        merged = _MergedDegradation(publisher)
        async with trio.open_nursery() as nursery:
            if self._query is None:
                merged.begun()
            else:
                nursery.start_soon(self._query, merged.part(), merged.begun)
            await self._topic.run(merged, start)
            nursery.cancel_scope.cancel()

    def statistics(self) -> SourceStatistics:
        """Return how far this gateway is behind the topic. How far the query is behind its inputs Spark
        says."""
        return replace(self._topic.statistics(), details=self._details())


class _MergedDegradation:
    """A `Publisher` with several parts that may be degraded: it reports all of it, until all is over."""

    def __init__(self, publisher: Publisher) -> None:
        self._out = publisher
        self.publish, self.describe = publisher.publish, publisher.describe
        self.expect = publisher.expect
        self.wait_subscribed = publisher.wait_subscribed
        self._troubles: list[str] = []
        self._begun = trio.Event()
        self.report_degraded = self.part()

    @property
    def subscribed(self) -> bool:
        return self._out.subscribed

    def begun(self) -> None:
        """Note that the query is fixed where it begins."""
        self._begun.set()

    def part(self) -> Tell:
        """Return what one more part reports to."""
        number = len(self._troubles)
        self._troubles.append("")

        def tell(message: str) -> None:
            self._troubles[number] = message
            if message:
                self._begun.set()  # subscribers are told
            self._say()

        return tell

    def _say(self) -> None:
        self._out.report_degraded("; ".join(filter(None, self._troubles)))

    async def ready(self, positions: Positions) -> None:
        await self._begun.wait()
        await self._out.ready(positions)
        if any(self._troubles):
            self._say()  # being ready means to be out of trouble, of which this is only a part
