"""What a source is, and what it may be able to do besides."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from kiwi_gw.model import (
    Batch,
    OffsetRange,
    Outgoing,
    Part,
    Positions,
    Published,
    SourceStatistics,
    Unpublished,
)


class Publisher(Protocol):
    """Take the events of a source. Given to `Source.run`, valid until that returns."""

    async def ready(self, positions: Positions) -> None:
        """Say that the source works, and that the next event of every partition is the one at `positions`.

        Until the first call SUBSCRIBE waits (up to `subscribe_timeout_ms`, or `SourceType.start_ms` where
        that is not set). Call it once per run, before the first `publish`.
        """

    def expect(self, positions: Positions) -> None:
        """Say that the source will come at least this far, as after a start some of its events come again: a
        subscription may begin there, and gets what comes behind it. Call it before `ready`."""

    async def publish(self, batch: Batch) -> None:
        """Hand over events, in order, one batch after the other. Returns when the gateway has taken them and
        may have more.

        A batch must begin where the last one ended or later (a hole is legal, a repetition is a
        `ValueError`); an empty batch with a `gap` announces a loss, one without says that no events come up
        to where it begins.
        """

    @property
    def subscribed(self) -> bool:
        """Return whether the source has a subscription. While it has none, nobody notices whether its events
        come one by one or, a few milliseconds later, together."""

    async def wait_subscribed(self) -> None:
        """Return as soon as the source has a subscription (at once if it has one)."""

    def describe(self, members: str) -> None:
        """Say what the values of the events from now on are made of, in DDL (`carrier STRING, n BIGINT`;
        empty: anything). A subscription that is opened from now on and whose query names other members is
        refused. Values stay as they are, whatever the types say. Raises ValueError if the text is not a
        schema."""

    def report_degraded(self, message: str) -> None:
        """Say what keeps the source from its origin for now (`the Kafka cluster does not answer`). An empty
        message: nothing does any more. Subscribers see it; it must name nothing secret."""


@runtime_checkable
class Source(Protocol):
    """Provide one named stream of events. Made by `SourceType.build`, which does no I/O."""

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        """Read events and publish them, on Trio.

        start: None, begin at the source's own idea of now; else the first events not yet taken, which
        must come next (after a restart).

        Returning means that the source is finite and over. `SourceFailed`: it can never work.
        `SourceChanged`: what it is has changed. Anything else that is raised: it is built and called
        again, after a pause that grows, with `start` behind the last batch that was taken.
        Cancellation may come at any checkpoint.
        """


@runtime_checkable
class HasStatistics(Protocol):
    """Say how far a source is behind its origin, if it can see that. Feeds `source_lag_records` and
    `source_stalled_seconds`."""

    def statistics(self) -> SourceStatistics:
        """Return what is known now, without I/O. Called about once a second while `Source.run` runs."""


class SourceMetrics(Protocol):
    """Count for a source what its type declares in `SourceType.metrics`. KeyError for other names.

    What is added and observed is kept over restarts of the source; a gauge is gone with it.
    """

    def set(self, name: str, value: float) -> None:
        """Let a gauge be this from now on."""

    def add(self, name: str, amount: float = 1) -> None:
        """Add to a counter."""

    def observe(self, name: str, value: float) -> None:
        """Count one value more in a histogram."""


class HistoryReader(Protocol):
    """Read a source again, from a position on. Used by one task at a time."""

    async def read(self, until: Positions) -> Batch:
        """Return the next events whose offsets are below `until`, at most about a megabyte of them.

        `starts` of what is returned are the reader's positions before it; they move from batch to batch over
        holes too (compaction, markers of transactions), so a batch may be empty. Of a partition that has
        reached `until`, or began beyond it, nothing is read. The reader has arrived as soon as the position
        of every partition (not its last event) has reached `until`. Then an empty batch with these `starts`
        is returned at once. `until` never moves back, and names events that exist or existed. Events below
        `until` that the source no longer has are announced by a `gap` with their ranges, which end there at
        the latest.

        Waits while the source is out of reach. A cancelled call has read nothing: the same events come again.
        """


@runtime_checkable
class History(Protocol):
    """Read the events of a source again, where that is possible. A source whose type is `replayable` must be
    this.

    Called from other tasks while `Source.run` runs. A finite source is still called after `run` has returned,
    until every subscription has read the rest. Calls wait while the origin is out of reach. One that raises
    is tried again after a pause, but `SourceChanged` and `SourceFailed` mean the same as from `run`.
    """

    async def offset_range(self) -> OffsetRange:
        """Return the first and the next offset of every partition, as they are now."""

    async def at(self, timestamp: int) -> Positions:
        """Find in every partition the first event at or after `timestamp` (ms), or where the next will be."""

    def read_from(self, positions: Positions) -> AbstractAsyncContextManager[HistoryReader]:
        """Read from `positions`, which name every partition."""


@runtime_checkable
class Producer(Protocol):
    """Write records to where a source reads them, if that is possible.

    Called from another task while `Source.run` runs, one call at a time.
    """

    async def produce(self, records: Sequence[Outgoing], within: float) -> Sequence[Published | Unpublished]:
        """Write them in order, and return what became of each within so many seconds: one result for every
        record. What is `Published` is as safe as the origin makes anything. Whatever else is raised, or no
        answer, means that nobody knows what became of them."""


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A schema (Avro) as a registry has it. id: what is written by it begins with that
    (`kiwi_gw.query.avro.schema_head`). version: what it is called among all that this part of the source's
    records has had. definition: JSON text. references: of the schemas with the types that it names, each
    behind those that it names itself."""

    id: int
    version: int
    definition: str
    references: tuple[str, ...] = ()


@runtime_checkable
class SchemaRegistrar(Protocol):
    """Register the schemas of what is written to a source, and find them by their versions. A source that can
    be written to, and whose `Decode` says `registry`, must be this. Called from other tasks while
    `Source.run` runs; cancelled after 5 s."""

    async def register_schema(self, part: Part, definition: str) -> SchemaVersion:
        """Return the version that this schema (JSON text) is, a new one if it was none. What cannot be read
        by it is not registered. Raises SchemaRefused."""

    async def find_schema(self, part: Part, version: int) -> SchemaVersion:
        """Return what has this version. Raises SchemaRefused."""

    async def known_schema(self, part: Part, definition: str) -> SchemaVersion:
        """Return the version that this schema is. Raises SchemaRefused, also if it is none, and leaves it
        so."""


@runtime_checkable
class Committer(Protocol):
    """Keep for groups of readers how far they have come. A source whose type says `keeps_commits` must be
    this. Called from other tasks while `Source.run` runs."""

    async def committed(self, group: str) -> Mapping[int, tuple[int, str]]:
        """Return the next offset that was committed, and what was noted beside it, by partition; a partition
        without a commit is not there. Waits while the origin is out of reach, and is cancelled after 3 s, or
        when nobody wants to know any more. CommitRefused: why that cannot be known."""

    async def commit(self, group: str, positions: Mapping[int, tuple[int, str]]) -> None:
        """Keep these; the last one wins, backwards too. CommitRefused: none was kept, and why."""


class Sharing(enum.Enum):
    """Say how the members of a group share the partitions of a source."""

    SPREAD = "spread"  # each has some, as many as the others
    ONE = "one"  # one has all of them, which has been there longest


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """Say which partitions a member of a group has from now on.

    given: those that it has anew, with the next offset that is committed and what was noted beside it. kept:
    those that it has had before, and nobody else meanwhile. members: how many the group has.
    """

    given: Mapping[int, tuple[int, str]]
    kept: frozenset[int] = frozenset()
    members: int = 1


class GroupMember(Protocol):
    """Be a member of a group, as long as its block runs. The origin decides who has which partition."""

    async def next_assignment(self) -> GroupAssignment:
        """Wait for the first, or for a change. A member that was put out has no partitions from then on, and
        joins again. CommitRefused: it cannot be a member (`GROUP_IN_USE`: those who are share otherwise)."""

    async def commit(self, positions: Mapping[int, tuple[int, str]]) -> None:
        """Keep these, for what it has by the last assignment that was taken. CommitRefused: none of them was
        kept, and why; `MOVED`: this member does not have all of the partitions any more, or has them anew."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """Say what the origin knows of a group. members: how many it has. committed: as `Committer` has it."""

    members: int
    committed: Mapping[int, tuple[int, str]]


@runtime_checkable
class Groups(Protocol):
    """Let members of groups share the partitions of a source, where its origin decides who has which. A
    `Committer`, too. Called from other tasks while `Source.run` runs; calls wait while the origin is out of
    reach."""

    def join(
        self, group: str, kind: str, sharing: Sharing, begin: Callable[[], Awaitable[Positions]]
    ) -> AbstractAsyncContextManager[GroupMember]:
        """Be a member while the block runs. kind: members of another kind cannot be in the same group. begin:
        asked where a group begins that has committed nothing yet; what is new in one that has begins with the
        first event. Leaving takes a second at most."""

    async def group_state(self, group: str) -> GroupState:
        """Return what is known of a group. Raises CommitRefused."""

    async def forget_group(self, group: str) -> None:
        """Forget a group without members, and all that it has committed. Raises CommitRefused."""
