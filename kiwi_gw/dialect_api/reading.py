"""Reading a source for a plain request: at the request's pace, as a subscription of the core.

async with request.rights.read(source_id, wire, AtEvents({0: 12})) as reader:
    while not reader.over:
        events = await reader.next(100, 65_536, within=3.0)
        ...
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kiwi_gw.api import CommitRefused, Sharing
from kiwi_gw.codes import RefusalCode
from kiwi_gw.model import Batch, Positions, Ranges, StartAt, WireFormat


@dataclass(frozen=True, slots=True)
class AtEvents:
    """Begin with the events that have these offsets, by partition, or the first ones behind them; in others
    with the next to come. What the source does not have yet is a refusal; what it no longer has, too, unless
    skip_missing: then it is lost."""

    offsets: Positions
    skip_missing: bool = False


@dataclass(frozen=True, slots=True)
class ReadingOver:
    """Nothing more comes. code: a `RefusalCode`, or a `CloseReason` by its value. message: a sentence."""

    code: str
    message: str


Fragment = tuple[int, bytes]
"""The index of an event in its batch, and its fragment."""


class EventRun(Protocol):
    """Events that were encoded together."""

    @property
    def bytes(self) -> memoryview:
        """Return the fragments, one behind the other."""

    @property
    def events(self) -> int:
        """Return how many of them there are."""

    @property
    def batch(self) -> Batch:
        """Return the batch that they are of."""

    @property
    def fragments(self) -> Iterator[Fragment]:
        """Yield them one by one."""


class EventReader(Protocol):
    """Read events in the order in which they come. It is open while its block runs.

    positions: of the next event. lost: by partition, what was given up since that was last emptied, in order.
    over: None as long as something may come. full: whether there was no room for the next event.
    """

    positions: Positions
    lost: list[Ranges]
    over: ReadingOver | None
    full: bool

    @property
    def behind(self) -> bool:
        """Whether there is more that is still to be fetched from where the source keeps its past."""

    async def next(
        self, most_events: int, most_bytes: int, within: float, room: int | None = None
    ) -> Sequence[EventRun]:
        """Return what is there now, at most so many events and bytes or one event; else wait for something,
        so many seconds. room: bytes that one event may have; a larger one stays, for later. Empty: nothing
        came, something was lost, there was no room, or it is over."""


@dataclass(frozen=True, slots=True)
class GroupTerms:
    """Say which group, and how its members share the partitions. kind: members of another kind cannot be in
    the same group. start: where a group begins that has committed nothing yet."""

    group: str
    kind: str
    sharing: Sharing
    start: StartAt


class PartitionsMoved(CommitRefused):
    """Of what was to be kept, that of these partitions was not: the member has them no more, or anew. That of
    the others was."""

    def __init__(self, partitions: Collection[int]) -> None:
        super().__init__(RefusalCode.MOVED, "the partition is another member's now")
        self.partitions = frozenset(partitions)


WireOf = Callable[[Collection[int]], WireFormat]
"""Makes the wire format of some of a source's partitions."""


class GroupSink(Protocol):
    """Take what a member of a group is given and reads. Called between two steps of its task; it waits for
    nothing.

    pending: how many events clients have been given that are not done yet. redelivered: how often one was
    given again, so far.
    uncommitted: partitions whose commits have changed, though nobody has asked to have them kept; the reader
    takes them out when they are.
    """

    uncommitted: set[int]

    @property
    def pending(self) -> int: ...

    @property
    def redelivered(self) -> int: ...

    @property
    def offsets(self) -> Positions:
        """Return where to read on, by partition, of those that the member has."""

    @property
    def room(self) -> tuple[int, int]:
        """Return how many events and bytes it takes now; none: it says later that there is room
        (`GroupReader.look`)."""

    def assigned(self, given: Mapping[int, tuple[int, str]], kept: frozenset[int], members: int) -> None:
        """Have these partitions from now on (see `api.GroupAssignment`)."""

    def read(self, runs: Sequence[EventRun], positions: Positions) -> None:
        """Take events, in order. positions: up to where was read of each partition; what lies below and does
        not come is not there, or not any more."""

    def has(self, who: Hashable) -> bool:
        """Say whether there is something for one that waits."""

    def commits(self, partitions: Collection[int]) -> Mapping[int, tuple[int, str]]:
        """Return what is to be committed of these partitions now."""

    def look(self, now: float) -> bool:
        """Do what is due, about once a second. False: the member is to leave."""

    def over(self, over: ReadingOver) -> None:
        """Take note that it is over: nothing more is read or committed."""


class GroupReader(Protocol):
    """Be a member of a group that shares the partitions of a source, and read those that it has, until it is
    closed or over."""

    @property
    def view(self) -> object:
        """Return what stands for all that is changed of its events now (`ClientRights.view`)."""

    @property
    def given(self) -> Mapping[int, int]:
        """Return which partitions it has, each with the number of the assignment that has given it."""

    @property
    def leaving(self) -> bool:
        """Return whether it is about to leave, or has left: `wait_left`."""

    async def wait_ready(self, within: float) -> None:
        """Wait for the first assignment. SubscribeRefused: why there is none."""

    async def wait(self, within: float, who: Hashable | None = None) -> None:
        """Return when something was assigned, or `look` was called; or after so many seconds. who: or when
        something was read, or offered, that this one may have (`GroupSink.has`)."""

    def look(self) -> None:
        """Have it read on, where there is room again or where `offsets` were changed. All who wait return."""

    def offer(self, events: int) -> None:
        """Have it read on, and as many of those return who wait as there are events for them, who has waited
        longest first: to wake hundreds for one takes as long from all."""

    async def commit(self, partitions: Collection[int], given: Mapping[int, int] | None = None) -> None:
        """Have the source keep how far the sink is in these, together with what others want kept meanwhile.
        given: as it was when the sink came to be there, if not now: of a partition that has gone and come
        again since, the sink knows nothing of that. Raises PartitionsMoved; CommitRefused: none of it was
        kept, and why."""

    def rewind(self) -> None:
        """Read on from where the sink says now."""

    def close(self) -> None:
        """Leave the group."""

    async def wait_left(self) -> None:
        """Wait until it has left, or is over."""
