"""The hooks of the Kafka plugin: its source type, its service, its section and its check."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from kiwi_gw.api import (
    ConfigSection,
    Diagnostic,
    PluginContext,
    PluginError,
    Section,
    ServiceType,
    SourceDescription,
    SourceType,
    hookimpl,
)
from kiwi_kafka.diagnostics import kafka_check
from kiwi_kafka.event_schema import event_schema
from kiwi_kafka.positions import BY_TOPIC
from kiwi_kafka.service import NO_REGISTRY, open_kafka
from kiwi_kafka.settings import KafkaSettings, KafkaSourceSettings
from kiwi_kafka.source import build_source

_COMMON = SourceDescription(
    event_schema(),
    services=("kafka",),
    sections=("kafka",),
    codec=BY_TOPIC,
    replayable=True,
    keeps_commits=True,
)


def _describe(settings: KafkaSourceSettings) -> SourceDescription:
    schema, decode = event_schema(settings.fields), settings.decode.decode
    return replace(
        _COMMON,
        schema=schema,
        id=settings.topic,
        decode=decode,
        publish=settings.publish,
        commit=settings.commit,
    )


KAFKA = SourceType("kafka", KafkaSourceSettings, build_source, _COMMON, _describe)


@hookimpl
def configure(context: PluginContext) -> None:
    """Refuse sources whose schemas are in a registry that is not named. Raises PluginError."""
    kafka = context.sections.get("kafka")
    if isinstance(kafka, KafkaSettings) and kafka.registry is not None:
        return
    for source_id, source in context.sources.items():
        if isinstance(source, KafkaSourceSettings) and source.decode.registry:
            raise PluginError(f"source {source_id!r}: {NO_REGISTRY}")


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
) -> Callable[[], Awaitable[Sequence[Diagnostic]]] | None:
    return kafka_check(context, sources)
