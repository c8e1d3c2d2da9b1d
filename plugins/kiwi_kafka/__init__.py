"""The source type `kafka`: topics of one cluster, read by a small pool of consumers without a group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from kiwi_gw.api import (
    ConfigSection,
    Decode,
    Finding,
    PluginContext,
    Section,
    ServiceType,
    Shape,
    SourceType,
    hookimpl,
)
from kiwi_kafka.findings import check_kafka, kafka_check
from kiwi_kafka.pool import Kafka, open_kafka
from kiwi_kafka.positions import BY_TOPIC
from kiwi_kafka.settings import KafkaSettings, KafkaSourceSettings
from kiwi_kafka.shape import event_shape
from kiwi_kafka.source import KafkaSource, build_source

__all__ = [
    "Kafka",
    "KafkaSettings",
    "KafkaSource",
    "KafkaSourceSettings",
    "check_kafka",
    "open_kafka",
]


def _source_id(settings: Section) -> str:
    return cast("KafkaSourceSettings", settings).topic


def _shape(settings: Section) -> Shape:
    return event_shape(cast("KafkaSourceSettings", settings).fields)


def _decode(settings: Section) -> Decode:
    return cast("KafkaSourceSettings", settings).decode.decode


KAFKA = SourceType(
    "kafka",
    KafkaSourceSettings,
    build_source,
    _shape,
    services=("kafka",),
    sections=("kafka",),
    source_id=_source_id,
    codec=BY_TOPIC,
    replayable=True,
    decode=_decode,
)


@hookimpl
def source_types() -> Sequence[SourceType]:
    return (KAFKA,)


@hookimpl
def services() -> Sequence[ServiceType]:
    return (ServiceType("kafka", open_kafka, sections=("kafka",)),)


@hookimpl
def config_sections() -> Sequence[ConfigSection]:
    return (ConfigSection("kafka", KafkaSettings, required=True),)


@hookimpl
def check(
    context: PluginContext, sources: Sequence[Section]
) -> Callable[[], Awaitable[Sequence[Finding]]] | None:
    return kafka_check(context, sources)
