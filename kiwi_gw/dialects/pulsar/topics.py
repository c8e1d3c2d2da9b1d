"""Which source a topic is, and what a client may do with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from kiwi_gw.codes import RefusalCode
from kiwi_gw.dialect_api.http import ClientRights, HttpResponse, RecordWriter
from kiwi_gw.dialects.pulsar.errors import PulsarCode, PulsarError
from kiwi_gw.dialects.pulsar.message_ids import MessageId
from kiwi_gw.dialects.pulsar.messages import PartitionPath, SubscriptionPath, TopicPath
from kiwi_gw.dialects.pulsar.schemas import SchemaInfo
from kiwi_gw.dialects.pulsar.settings import PulsarSchema, PulsarSettings, PulsarSource
from kiwi_gw.model import Action, Part, Positions, Refusal, SourceInfo

START_SECONDS: Final = 5.0
"""How long a request waits for the source of its topic to start."""

_NO_TOPIC: Final = "there is no such topic"
_ABSENT: Final = "the topic is not there, or not yet"
_OF_SOURCES: Final = (Action.SUBSCRIBE, Action.PUBLISH, Action.COMMIT, Action.REPLAY)

T = TypeVar("T")

AnyPath = TopicPath | PartitionPath | SubscriptionPath


class NotStarted(PulsarError):  # noqa: N818  (it states what the topic is)
    """A topic whose source is about to start."""

    def __init__(self, source_id: str, message: str) -> None:
        super().__init__(PulsarCode.UNAVAILABLE, message)
        self.source_id = source_id


async def when_started(find: Callable[[], T], rights: ClientRights, within: float) -> T:
    """Find a topic, as soon as its source has started; where it is known what keeps it from that, at once.
    Raises PulsarError, as `find`, also where that has taken so many seconds."""
    try:
        return find()
    except NotStarted as error:
        await rights.wait_started(error.source_id, within)
    return find()


def topic_name(source_id: str, blocks: Mapping[str, object], settings: PulsarSettings) -> str:
    """Return the name of a source as a topic, `tenant/namespace/topic`. blocks: what it says to protocols."""
    block = blocks.get("pulsar")
    if isinstance(block, PulsarSource) and block.name is not None:
        return block.name
    return f"{settings.tenant}/{settings.namespace}/{source_id}"


def group_name(prefix: str, topic: str, subscription: str) -> str:
    """Return the consumer group of a subscription. topic: its name, as `topic_name` has it. As there may be
    slashes in that (in the id of a source), there is none behind it: no two topics share a group."""
    name = subscription.replace("%", "%25").replace("/", "%2F")
    return f"{prefix}/subscription/{topic}/{name}"


def declared_schema(info: SourceInfo) -> SchemaInfo:
    """Return what a source says of its values, for where nobody else does."""
    block = info.blocks.get("pulsar")
    said = block.values if isinstance(block, PulsarSource) else PulsarSchema()
    return SchemaInfo(said.type, said.definition)


def uses_registry(info: SourceInfo, part: Part) -> bool:
    """Return whether what a source has in Avro begins with the id of its schema in a registry."""
    decode = info.decode
    return decode.registry and (decode.key if part == "key" else decode.value) == "avro"


@dataclass(frozen=True, slots=True)
class WritableTopic:
    """A topic that the client may write to. partitions: ascending. life: as `ClientRights.life` has it.
    partition: the one that the request is about; None: all."""

    info: SourceInfo
    partitions: tuple[int, ...]
    life: int
    writer: RecordWriter
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class ReadableTopic:
    """A partition of a topic that the client may read. life: as `ClientRights.life` has it."""

    info: SourceInfo
    partition: int
    life: int

    def message_id(self, offset: int) -> str:
        """Return the id of the message with this offset."""
        return str(MessageId(self.life, offset, self.partition))


@dataclass(frozen=True, slots=True)
class ConsumedTopic:
    """A topic that the client may have subscriptions of. name: `tenant/namespace/topic`. partitions: with the
    next offset of each. life: as `ClientRights.life` has it. prefix: of its groups."""

    info: SourceInfo
    name: str
    partitions: Positions
    life: int
    prefix: str

    def group(self, subscription: str) -> str:
        """Return the consumer group of a subscription."""
        return group_name(self.prefix, self.name, subscription)

    def message_id(self, partition: int, offset: int) -> str:
        """Return the id of the message there."""
        return str(MessageId(self.life, offset, partition))


async def consumed_topic(
    path: SubscriptionPath, rights: ClientRights, settings: PulsarSettings, actions: Sequence[Action]
) -> ConsumedTopic:
    """Find a topic to do these with, as `when_started`."""
    return await when_started(lambda: _consumed_topic(path, rights, settings, actions), rights, START_SECONDS)


def admit(
    path: SubscriptionPath, rights: ClientRights, settings: PulsarSettings, actions: Sequence[Action]
) -> HttpResponse | None:
    """Answer a client that may not do these, before anything is read of what it brings. None: it may, or the
    source has not started yet; `consumed_topic` waits for that."""
    try:
        _consumed_topic(path, rights, settings, actions)
    except NotStarted:
        return None
    except PulsarError as error:
        return error.response
    return None


def _consumed_topic(
    path: SubscriptionPath, rights: ClientRights, settings: PulsarSettings, actions: Sequence[Action]
) -> ConsumedTopic:
    info = _find(path, rights, settings)
    check_rights(info, rights, actions)
    if not info.keeps_commits:
        words = "this topic keeps no cursors: its source has no committed offsets"
        raise PulsarError(PulsarCode.METHOD, words, allow="OPTIONS")
    partitions = _partitions(path, rights, info)
    name = topic_name(info.id, info.blocks, settings)
    return ConsumedTopic(info, name, partitions, rights.life(info.id), settings.group_prefix)


def check_rights(info: SourceInfo, rights: ClientRights, actions: Sequence[Action]) -> None:
    """Raise PulsarError if the client may not do all these with a source."""
    for action in actions:
        refusal = _refusal(rights, info, action, "do that")
        if refusal is not None:
            raise PulsarError(PulsarCode.FORBIDDEN, f"{refusal.message}: this needs the right {action.value}")


def _refusal(rights: ClientRights, info: SourceInfo, action: Action, what: str) -> Refusal | None:
    """Return why the client may not do this with a source. Raises PulsarError where that cannot be known; and
    where it may do nothing at all with it: then it does not learn that there is one."""
    refusal = rights.refusal(action, info)
    if refusal is not None and refusal.code == RefusalCode.INTERNAL_ERROR:
        raise PulsarError(PulsarCode.UNAVAILABLE, f"it cannot be said just now who may {what}")
    if refusal is not None and all(rights.refusal(each, info) for each in _OF_SOURCES):
        raise PulsarError(PulsarCode.TOPIC, _NO_TOPIC)
    return refusal


async def readable_topic(
    path: PartitionPath, rights: ClientRights, settings: PulsarSettings
) -> ReadableTopic:
    """Find a partition to read, now, as `when_started`; in the past is another right."""
    return await when_started(lambda: _readable_topic(path, rights, settings), rights, START_SECONDS)


def _readable_topic(path: PartitionPath, rights: ClientRights, settings: PulsarSettings) -> ReadableTopic:
    info = _find(path, rights, settings)
    refusal = _refusal(rights, info, Action.SUBSCRIBE, "read there")
    if refusal is not None:
        raise PulsarError(PulsarCode.FORBIDDEN, refusal.message)
    partition = int(path.partition)
    _partitions(path, rights, info)
    return ReadableTopic(info, partition, rights.life(info.id))


def writable_topic(
    path: TopicPath | PartitionPath, rights: ClientRights, settings: PulsarSettings
) -> WritableTopic:
    """Find a topic to write to. Raises PulsarError, NotStarted; who may neither read nor write does not learn
    what exists."""
    info = _find(path, rights, settings)
    refusal = _refusal(rights, info, Action.PUBLISH, "write there")
    if not info.publish:
        words = "this topic cannot be written to: its source does not say publish: true"
        raise PulsarError(PulsarCode.METHOD, words, allow="OPTIONS")
    if refusal is not None:
        raise PulsarError(PulsarCode.FORBIDDEN, refusal.message)
    partitions = _partitions(path, rights, info, f"{_ABSENT}; nothing was written")
    partition = int(path.partition) if isinstance(path, PartitionPath) else None
    return WritableTopic(
        info, tuple(sorted(partitions)), rights.life(info.id), rights.writer(info.id), partition
    )


def _find(path: AnyPath, rights: ClientRights, settings: PulsarSettings) -> SourceInfo:
    """Find the source of a topic. Raises PulsarError."""
    name = f"{path.tenant}/{path.namespace}/{path.topic}"
    # Most are called like their source; of many, only the others are searched for.
    namesake = rights.source(path.topic)
    if namesake is not None and topic_name(namesake.id, namesake.blocks, settings) == name:
        return namesake
    for info in rights.sources():
        if topic_name(info.id, info.blocks, settings) == name:
            return info
    raise PulsarError(PulsarCode.TOPIC, _NO_TOPIC)


def _partitions(path: AnyPath, rights: ClientRights, info: SourceInfo, absent: str = _ABSENT) -> Positions:
    """Return the partitions of a topic, of which the path may name one. Raises PulsarError, NotStarted."""
    partitions = rights.partitions(info.id)
    if not partitions:
        if trouble := rights.trouble(info.id):
            raise PulsarError(PulsarCode.UNAVAILABLE, f"{absent}: {trouble}")
        if partitions is None:
            raise NotStarted(info.id, absent)
        raise PulsarError(PulsarCode.UNAVAILABLE, absent)
    if isinstance(path, PartitionPath) and int(path.partition) not in partitions:
        raise PulsarError(PulsarCode.PARTITION, f"there is no partition {int(path.partition)}")
    return partitions
