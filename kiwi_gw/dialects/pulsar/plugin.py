"""Registers Pulsar's REST interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kiwi_gw.api import PluginContext, Section, hookimpl
from kiwi_gw.dialect_api import DialectContext, DialectType
from kiwi_gw.dialects.pulsar.consumer_ids import ConsumerIds
from kiwi_gw.dialects.pulsar.dialect import PulsarDialect
from kiwi_gw.dialects.pulsar.settings import PulsarSettings, PulsarSource
from kiwi_gw.dialects.pulsar.topics import group_name, topic_name
from kiwi_gw.dialects.source_names import check_distinct


def build(settings: PulsarSettings, context: DialectContext) -> PulsarDialect | None:
    """Make it as the configuration wants it; None: it is switched off."""
    if not settings.enabled:
        return None
    key = settings.consumer_key.get_secret_value().encode() if settings.consumer_key else context.secret
    alone = context.workers == 1 or context.worker_port is not None
    ids = ConsumerIds(settings.advertised_url, context.worker_port, key) if alone else None
    return PulsarDialect(settings, ids)


def columns(settings: PulsarSettings) -> Sequence[str]:
    """Say that properties are wanted."""
    return ("headers",) if settings.enabled else ()


def groups(settings: PulsarSettings, source_id: str, blocks: Mapping[str, Section]) -> str | None:
    """Say what the consumer groups of a topic's subscriptions begin with."""
    name = topic_name(source_id, blocks, settings)
    return group_name(settings.group_prefix, name, "") if settings.enabled else None


PULSAR = DialectType("pulsar", PulsarSettings, build, PulsarSource, columns=columns, groups=groups)


@hookimpl
def configure(context: PluginContext) -> None:
    """Refuse two sources that would be one topic. Raises PluginError."""
    settings = context.sections.get("pulsar")
    if not isinstance(settings, PulsarSettings) or not settings.enabled:
        return
    names = ((key, topic_name(key, blocks, settings)) for key, blocks in context.blocks.items())
    check_distinct(names, "Pulsar's REST interface (pulsar.name)")


@hookimpl
def dialect_types() -> Sequence[DialectType[PulsarSettings]]:
    """Provide it."""
    return (PULSAR,)
