"""What is wrong with a source of type `spark` beside the other sources of its file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from kiwi_gw.api import Section
from kiwi_spark.gateway.settings import SparkSourceSettings


def topic_of(source: Section) -> str | None:
    """Return the Kafka topic that the events of a source are in; None where they are in none."""
    if getattr(source, "type", "") == "kafka":
        return cast("str", getattr(source, "topic"))  # noqa: B009  its class is another plugin's
    if isinstance(source, SparkSourceSettings) and source.sink is not None:
        return source.sink.topic
    return None


def validate(settings: SparkSourceSettings, sources: Mapping[str, Section]) -> Mapping[tuple[str, ...], str]:
    """Return what is wrong with its inputs: `SourceType.validate`."""
    mistakes: dict[tuple[str, ...], str] = {}
    for name, item in settings.inputs.items():
        origin = sources.get(item.source or "")
        if origin is None:
            continue
        topic = topic_of(origin)
        where = ("inputs", name, "source")
        if topic is None:
            mistakes[where] = _not_a_topic(item.source or "", origin)
        elif settings.sink is not None and topic == settings.sink.topic:
            mistakes[where] = (
                f"{item.source!r} is the topic {topic!r}, to which this query writes, so that it would never "
                "come to an end of it: give its `sink` another topic"
            )
    return mistakes


def _not_a_topic(source_id: str, source: Section) -> str:
    kind = getattr(source, "type", "")
    instead = (
        "give that source a sink (`sink: {topic: ...}`)"
        if isinstance(source, SparkSourceSettings)
        else "write its events to a Kafka topic, and name the source of type kafka that has the topic"
    )
    return f"Spark reads Kafka topics, and {source_id!r} (type {kind}) is none: {instead}"
