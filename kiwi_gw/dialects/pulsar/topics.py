"""Which source a topic is, and what a client may do with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kiwi_gw.dialect_api.http import ClientRights
from kiwi_gw.dialects.pulsar.errors import PulsarCode, PulsarError
from kiwi_gw.dialects.pulsar.settings import PulsarSettings, PulsarSource
from kiwi_gw.model import Action, SourceInfo

_NO_TOPIC = "there is no such topic"


def topic_name(source_id: str, blocks: Mapping[str, object], settings: PulsarSettings) -> str:
    """Return the name of a source as a topic, `tenant/namespace/topic`. blocks: what it says to protocols."""
    block = blocks.get("pulsar")
    if isinstance(block, PulsarSource) and block.name is not None:
        return block.name
    return f"{settings.tenant}/{settings.namespace}/{source_id}"


@dataclass(frozen=True, slots=True)
class WritableTopic:
    """A topic that the client may write to. partitions: ascending. life: as `ClientRights.life` has it."""

    info: SourceInfo
    partitions: tuple[int, ...]
    life: int

    @property
    def values(self) -> str:
        """Return the type of its values, where a request does not say so."""
        block = self.info.blocks.get("pulsar")
        return block.values.type.lower() if isinstance(block, PulsarSource) else "none"


def writable_topic(name: str, rights: ClientRights, settings: PulsarSettings) -> WritableTopic:
    """Find a topic to write to. Raises PulsarError; who may neither read nor write does not learn what
    exists."""
    info = next(
        (each for each in rights.sources() if topic_name(each.id, each.blocks, settings) == name), None
    )
    if info is None:
        raise PulsarError(PulsarCode.TOPIC, _NO_TOPIC)
    refusal = rights.refusal(Action.PUBLISH, info)
    if refusal is not None and rights.refusal(Action.SUBSCRIBE, info) is not None:
        raise PulsarError(PulsarCode.TOPIC, _NO_TOPIC)
    if not info.publish:
        words = "this topic cannot be written to: its source does not say publish: true"
        raise PulsarError(PulsarCode.METHOD, words, allow="OPTIONS")
    if refusal is not None:
        raise PulsarError(PulsarCode.FORBIDDEN, refusal.message)
    partitions = rights.partitions(info.id)
    if not partitions:
        raise PulsarError(PulsarCode.UNAVAILABLE, "the topic is not there, or not yet; nothing was written")
    return WritableTopic(info, tuple(sorted(partitions)), rights.life(info.id))


def check_partition(topic: WritableTopic, partition: int) -> None:
    """Raise PulsarError if there is no such partition."""
    if partition not in topic.partitions:
        raise PulsarError(PulsarCode.PARTITION, f"there is no partition {partition}")
