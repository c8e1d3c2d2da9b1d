"""The ports between what this plugin decides and the client that speaks to the brokers.

Above it nothing knows Kafka's protocol; below it nothing decides. Tests put fakes here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kiwi_gw.api import GroupMember, KiwiError, Outgoing, Positions, Published, Sharing, Unpublished


class TopicPartition(NamedTuple):
    """Name one partition of one topic."""

    topic: str
    partition: int


HeaderPairs = Sequence[tuple[str, bytes | None]]


class KafkaRecord(Protocol):
    """Name what is used of a record of the client."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """Hold records of one partition, and the offset of the next one to read.

    `next` is behind the last record or further: compaction and transaction markers leave holes.
    epoch: of the leader that wrote the last batch before `next`; -1 where it is not known.
    """

    partition: int
    records: Sequence[KafkaRecord]
    next: int
    epoch: int = -1


class UnreachableError(KiwiError):
    """Report that no broker answered in time. The message says which were asked and what happened."""


NO_ID = bytes(16)
"""The topic id where the broker gives none."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """Hold what the cluster says about a topic that exists.

    id: 16 bytes, other ones after it was deleted and created anew; zeros where the broker has no ids.
    leaders: node id of the leader by partition, -1 where there is none at the moment.
    readable, writable: whether this client may read it, and write to it; None where the broker does not say.
    epochs: of the leaders, by partition; empty where the broker does not say.
    """

    name: str
    id: bytes
    leaders: Mapping[int, int]
    readable: bool | None = None
    epochs: Mapping[int, int] = field(default_factory=dict)
    writable: bool | None = None

    def is_another(self, known_id: bytes) -> bool:
        """Return whether this is another topic than the one of the same name that had this id. Without ids
        this is not known, and it counts as the same."""
        return NO_ID not in (known_id, self.id) and self.id != known_id


@dataclass(frozen=True, slots=True)
class MissingTopic:
    """Describe a topic that cannot be looked at: it does not exist, or (`denied`) the client may not know."""

    name: str
    denied: bool = False


@dataclass(frozen=True, slots=True)
class OffsetsResult:
    """Hold offsets by partition, and the nodes that did not answer in time.

    refused: partitions of which the broker never says it, and why: it is too old, or this client may not
    know.
    """

    known: Mapping[TopicPartition, int]
    silent_nodes: frozenset[int] = frozenset()
    refused: Mapping[TopicPartition, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupList:
    """Hold names of groups, and the nodes that did not say which they coordinate."""

    names: frozenset[str]
    silent_nodes: frozenset[int] = frozenset()


class OffsetOutOfRangeError(KiwiError):
    """Report that the brokers do not hold `tps` (with the offsets asked for): too old, or beyond the end."""

    def __init__(self, tps: Mapping[TopicPartition, int]) -> None:
        self.tps = tps
        super().__init__(f"offsets out of range: {dict(tps)}")


class TopicAuthorizationError(KiwiError):
    """Report that this client may not read `topic`."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"not authorized to read topic {topic!r}")


class CorruptRecordsError(KiwiError):
    """Report that what was fetched of `tp` cannot be decoded, from the last position that was handed out."""

    def __init__(self, tp: TopicPartition, problem: str) -> None:
        self.tp = tp
        super().__init__(f"partition {tp.partition} of topic {tp.topic!r}: {problem}")


class AdminClient(Protocol):
    """Look at the cluster on connections of its own, which no waiting fetch blocks. Creates nothing.

    Every method raises UnreachableError when no broker answers within the probe timeout.
    """

    async def describe_topics(
        self, topics: Collection[str], rights: bool = False
    ) -> dict[str, TopicDescription | MissingTopic]:
        """Look at every named topic. Without topics it only shows that a broker answers."""

    async def beginning_offsets(self, infos: Collection[TopicDescription]) -> OffsetsResult:
        """Return the first offset that is kept, of every partition that has a leader."""

    async def end_offsets(self, infos: Collection[TopicDescription], stable: bool) -> OffsetsResult:
        """Return the offset behind the last record; `stable`: before the first one of an open transaction."""

    async def epoch_end_offsets(self, info: TopicDescription, epochs: Mapping[int, int]) -> OffsetsResult:
        """Return the offset behind the last record of an epoch or an earlier one, by partition; -1 where the
        leader does not know. Missing where it does not answer, or is not the one of `info`."""

    async def offsets_for_time(self, infos: Collection[TopicDescription], timestamp: int) -> OffsetsResult:
        """Return the first committed record at or after `timestamp` (ms, not negative); -1 where there is
        none."""

    async def end_if_empty(self, info: TopicDescription, tp: TopicPartition, offset: int) -> int | None:
        """Return the end, if no record is kept from `offset` to it. None: one is kept, or it is not known."""

    async def find_corrupt_batch(
        self, info: TopicDescription, tp: TopicPartition, offset: int
    ) -> tuple[int, int] | None:
        """Return the first and next offset of the first batch from `offset` on, within one fetch, that cannot
        be decoded; None if all can."""

    async def list_groups(self) -> GroupList:
        """Return all groups that this client may see."""

    async def close(self) -> None: ...


class Consumer(Protocol):
    """Fetch as one client. Every method raises OSError or KiwiError when it can no longer work.

    on_arrived: called when something has come, before more is asked for: what it takes then with
    `read_nowait` is on its way sooner than if a task had to be woken for it.
    """

    on_arrived: Callable[[], None]

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read exactly these partitions, each from its offset. To be called once."""

    async def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Go on from these offsets, and drop what was fetched before."""

    async def pause(self, tps: Collection[TopicPartition]) -> None: ...

    async def resume(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions again, from these offsets."""

    async def read(
        self, resting: Collection[TopicPartition], wait_ms: int, max_records: int | None = None
    ) -> dict[str, list[FetchedPartition]]:
        """Return what has come, by topic; nothing after `wait_ms`. resting: of these nothing is taken, and
        little more is fetched.

        A part without records has passed offsets that hold none. Cancelling it loses nothing. Beside OSError
        it raises OffsetOutOfRangeError, TopicAuthorizationError and CorruptRecordsError, when all before has
        been handed out; that partition rests then, until `seek` or `pause`.
        """

    def read_nowait(self, resting: Collection[TopicPartition]) -> dict[str, list[FetchedPartition]]:
        """Return what has come, as `read`; nothing where that would raise."""

    def set_fetch_interval(self, wait_ms: int, pause_ms: int = 0) -> None:
        """Let records gather at a broker for `wait_ms` where the last answer brought some, from now on: a
        fetch costs it as much as all partitions that are read, whatever comes. pause_ms: the least time
        between such fetches, as each costs this process something, too."""

    async def close(self) -> None: ...


class RecordProducer(Protocol):
    """Write to one topic. One call at a time."""

    async def produce(self, records: Sequence[Outgoing], within: float) -> Sequence[Published | Unpublished]:
        """Do as `api.Producer.produce`. Raises nothing for what the cluster does."""

    def close(self) -> None:
        """Close its connections for good."""


class GroupOffsets(Protocol):
    """Keep how far groups have come. Its methods wait while nobody answers, and raise CommitRefused."""

    async def fetch(self, group: str, topic: str, partitions: Collection[int]) -> dict[int, tuple[int, str]]:
        """Return the next offset, and what was noted beside it, by partition."""

    async def store(self, group: str, topic: str, positions: Mapping[int, tuple[int, str]]) -> None: ...

    async def state(self, group: str) -> tuple[int, str]:
        """Return how many members it has, and of what kind they are (`GroupMembership.kind`); "" where it has
        none."""

    async def forget(self, group: str) -> None:
        """Delete it, if it has no members."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class GroupMembership:
    """Say which group one is a member of. kind: of its members; others cannot be in it with them. session:
    seconds until a member that says nothing is put out. partitions: of the topic, as they are now."""

    group: str
    topic: str
    kind: str
    sharing: Sharing
    session: float
    partitions: Callable[[], Collection[int]]
    begin: Callable[[], Awaitable[Positions]]


class GroupMemberTask(GroupMember, Protocol):
    """Be a member of a group while `run` runs."""

    async def run(self) -> None:
        """Join and stay, until cancelled or refused."""


class ClientFactory(Protocol):
    """Make clients. Admin clients and consumers raise UnreachableError when no broker answers in time."""

    async def admin(self) -> AdminClient: ...

    async def consumer(self, *, live: bool = True) -> Consumer:
        """Open a consumer. live: it waits for records to come; else it reads what there is, and is answered
        at once."""

    def member(self, membership: GroupMembership) -> GroupMemberTask:
        """Make a member of a group, which joins when it is run."""

    def producer(self, topic: str) -> RecordProducer:
        """Make a producer, which connects when it is used."""

    def groups(self) -> GroupOffsets:
        """Make a client for groups, which connects when it is used."""
