"""The section `zetta` of the configuration, and the block `zetta` of a source."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from kiwi_gw.api import Section
from kiwi_gw.dialects.zetta.topic_templates import field_path, template


def _path(value: str) -> str:
    field_path(value)
    return value


def _template(value: str) -> str:
    found = template(value)
    if not found.paths and "/" not in value:
        raise ValueError(f"has one level only, and nobody could subscribe to it: {value!r}")
    if any(sign in text for sign in "*?[\0" for text in found.texts):
        raise ValueError(f"is that of an event; *, ? and [ are for subscriptions: {value!r}")
    return value


JsonPath = Annotated[str, AfterValidator(_path)]


class ZettaSettings(Section):
    """The Zetta protocol: topics with patterns and queries, on `/events`."""

    enabled: bool = True
    """Whether it is served."""
    name: str | None = Field(default=None, min_length=1, max_length=255, pattern=r"^[^/{}*\[\]?]+$")
    """The first level of the topics of sources that name none of their own; null: the name of the gateway."""


class ZettaSource(Section):
    """What the events of this source are in the Zetta protocol. Paths begin with `key`, `value`, `partition`,
    `offset`, `timestamp` or `headers`."""

    topic: Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_template)] | None = None
    """Their topic, `server/type/id/stream`, with what comes from each event in braces:
    `hub/heater/{key}/state`, or `{value.topic}` alone. An event that lacks it is on no topic. null:
    `kiwi-gw/kafka/flights/events`, with `zetta.name`, the type and the id of the source."""
    data: JsonPath | None = None
    """What of an event is its `data`: `value.celsius`; null: its value."""
    name: JsonPath | None = None
    """Where an event says how its device is called; for queries over devices."""
    state: JsonPath | None = None
    """Where an event says which state its device is in; for queries over devices."""
