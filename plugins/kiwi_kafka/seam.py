"""The seam between what this plugin decides and the client that speaks to the brokers.

Above it nothing knows aiokafka's clients or asyncio; below it nothing decides. Tests put fakes here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kiwi_gw.api import KiwiError
from kiwi_kafka.columns import Fetched


class Place(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class UnreachableError(KiwiError):
    """No broker answered in time. The message says which were asked and what happened."""


NO_ID = bytes(16)
"""The topic id where the broker gives none."""


@dataclass(frozen=True, slots=True)
class TopicView:
    """What the cluster says about a topic that exists.

    id: 16 bytes, other ones after it was deleted and created anew; zeros where the broker has no ids.
    leaders: node id of the leader by partition, -1 where there is none at the moment.
    readable: whether this client may read it; None where the broker does not say.
    epochs: of the leaders, by partition; empty where the broker does not say.
    """

    name: str
    id: bytes
    leaders: Mapping[int, int]
    readable: bool | None = None
    epochs: Mapping[int, int] = field(default_factory=dict)

    def is_another(self, known_id: bytes) -> bool:
        """Whether this is another topic than the one of the same name that had this id. Without ids nobody
        can tell, and it counts as the same."""
        return NO_ID not in (known_id, self.id) and self.id != known_id


@dataclass(frozen=True, slots=True)
class Missing:
    """A topic that cannot be looked at: it does not exist, or (`denied`) the client may not know."""

    name: str
    denied: bool = False


@dataclass(frozen=True, slots=True)
class Offsets:
    """Offsets by place, and the nodes that did not answer in time.

    mute: places of which the broker never says it, and why: it is too old, or this client may not know.
    """

    known: Mapping[Place, int]
    silent: frozenset[int] = frozenset()
    mute: Mapping[Place, str] = field(default_factory=dict)


class OutOfRangeError(KiwiError):
    """`places` (with the offsets asked for) are not held by the brokers: too old, or beyond the end."""

    def __init__(self, places: Mapping[Place, int]) -> None:
        self.places = places
        super().__init__(f"offsets out of range: {dict(places)}")


class TooLargeError(KiwiError):
    """The record at `offset` is larger than the client can fetch; the client is behind it already."""

    def __init__(self, place: Place, offset: int) -> None:
        self.place = place
        self.offset = offset
        super().__init__(f"the record at offset {offset} of {place.topic}/{place.partition} is too large")


class DeniedError(KiwiError):
    """This client may not read `topic`."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"not authorized to read topic {topic!r}")


class UndecodableError(KiwiError):
    """Something that was fetched cannot be decoded; the client does not say which partition it was."""


class Scout(Protocol):
    """Looks at the cluster on connections of its own, which no waiting fetch blocks. Creates nothing.

    Every method raises UnreachableError when no broker answers within the probe timeout.
    """

    async def describe(self, topics: Collection[str], rights: bool = False) -> dict[str, TopicView | Missing]:
        """Every named topic. Without topics it only shows that a broker answers."""

    async def starts(self, views: Collection[TopicView]) -> Offsets:
        """The first offset that is kept, of every partition that has a leader."""

    async def ends(self, views: Collection[TopicView], stable: bool) -> Offsets:
        """The offset behind the last record; `stable`: before the first one of an open transaction."""

    async def epoch_ends(self, view: TopicView, epochs: Mapping[int, int]) -> Offsets:
        """Behind the last record of an epoch or an earlier one, by partition; -1 where the
        leader does not know. Missing where it does not answer, or is not the one of `view`."""

    async def since(self, views: Collection[TopicView], timestamp: int) -> Offsets:
        """The first committed record at or after `timestamp` (ms, not negative); -1 where there is none."""

    async def nothing_before(self, view: TopicView, place: Place, offset: int) -> int | None:
        """If no record is kept from `offset` to the end: the end. None: one is kept, or who knows."""

    async def unreadable(self, view: TopicView, place: Place, offset: int) -> tuple[int, int] | None:
        """First and next offset of the first batch from `offset` on, within one fetch, that cannot be
        decoded; None if all can."""

    async def close(self) -> None: ...


class Consumer(Protocol):
    """One client that fetches. Every method raises OSError or KiwiError when it can no longer work."""

    async def assign(self, positions: Mapping[Place, int]) -> None:
        """Read exactly these places, each from its offset. To be called once."""

    async def seek(self, positions: Mapping[Place, int]) -> None:
        """Go on from these offsets, and drop what was fetched before."""

    async def pause(self, places: Collection[Place]) -> None: ...

    async def resume(self, positions: Mapping[Place, int]) -> None:
        """Read these places again, from these offsets."""

    async def positions(self, places: Collection[Place]) -> dict[Place, int]: ...

    async def read(
        self, only: Sequence[Place], wait_ms: int, max_records: int | None = None
    ) -> dict[str, list[Fetched]]:
        """What has come, by topic; nothing after `wait_ms`. `only`: empty for all.

        Cancelling it loses nothing. What it raises beside OSError: OutOfRangeError, TooLargeError,
        DeniedError, UndecodableError; what had been fetched may then be lost, so `seek` everything.
        """

    def gather(self, wait_ms: int) -> None:
        """From now on let records gather at the broker for `wait_ms` before the next fetch; 0: no longer."""

    async def close(self) -> None: ...


class Transport(Protocol):
    """Makes scouts and consumers. Both raise UnreachableError when no broker answers in time."""

    async def scout(self) -> Scout: ...

    async def consumer(self, *, live: bool = True) -> Consumer:
        """live: it waits for records to come; else it reads what there is, and is answered at once."""
