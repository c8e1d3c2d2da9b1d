"""Being a member of a group for clients of plain requests, and reading what it is given.

One task is the member; what it has is read by a reader of the core, as plain requests read, which is opened
anew when the partitions change. Who reads is the client that the member was made for: if that may read no
more, it is over.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, Protocol

import structlog
import trio

from kiwi_gw.api import CommitRefused, GroupAssignment, GroupMember, Groups, History
from kiwi_gw.codes import RefusalCode
from kiwi_gw.dialect_api.reading import AtEvents, GroupSink, GroupTerms, PartitionsMoved, ReadingOver, WireOf
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import Identity, OverflowPolicy, Positions, StartAt
from kiwi_gw.runtime.plugin_faults import FaultBarrier, words
from kiwi_gw.runtime.request_reader import ReaderContext, RequestReader, Turn
from kiwi_gw.wakeup import Wakeup

log = structlog.get_logger(__name__)

_PIECE_BYTES: Final = 256 * 1024
LOOK_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 1.0
PASS_SECONDS: Final = 5.0
"""After so long without events the sink is told what has passed that is none (the ends of transactions)."""
_LATE: Final = "the group could not be joined in time; try again"


class GroupContext(ReaderContext, Protocol):
    """What is needed of the gateway."""

    def running_source(self, source_id: str) -> object:
        """Return the source as it runs now; None: it does not."""

    def spawn(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run this in the gateway's nursery."""


class ReaderRights(Turn, Protocol):
    """What the client may see who reads."""

    def view(self, source_id: str) -> object:
        """Do as `ClientRights.view`."""


@dataclass(slots=True)
class _Committing:
    """What is to be committed together. done: set when it is, or is not. moved: of the partitions, those that
    the member does not have any more. given: as `GroupReader.given`, when it was looked how far the sink
    is."""

    partitions: set[int] = field(default_factory=set)
    moved: set[int] = field(default_factory=set)
    given: Mapping[int, int] = field(default_factory=dict)
    done: trio.Event = field(default_factory=trio.Event)
    refused: CommitRefused | None = None


class SourceGroupReader:
    """Implement `kiwi_gw.dialect_api.GroupReader`."""

    def __init__(
        self,
        context: GroupContext,
        identity: Identity,
        endpoint: tuple[str, str],
        rights: ReaderRights,
        source_id: str,
        terms: GroupTerms,
        wire: WireOf,
        sink: GroupSink,
        there: set[SourceGroupReader],
    ) -> None:
        """Begin. identity: who reads. endpoint: the protocol, and where its client is. there: those of this
        process; it is one of them until it is over. Raises SubscribeRefused."""
        self._context, self._endpoint, self._rights, self._there = context, endpoint, rights, there
        self._identity = replace(identity, expires_at=None, issued_token=None)
        self.source_id, self._terms, self._wire, self._sink = source_id, terms, wire, sink
        source = context.running_source(source_id)
        if not isinstance(source, Groups) or not isinstance(source, History):
            if source is None:
                raise SubscribeRefused(RefusalCode.UNAVAILABLE, "the source does not run just now; try again")
            raise SubscribeRefused(RefusalCode.GROUP, "this source keeps no groups")
        self._source = source
        self._history: History = source
        self._member: GroupMember | None = None
        self._over: ReadingOver | None = None
        self._left = self._leaving = False
        self._given: Mapping[int, int] = {}
        self._assignments = 0
        self._news = trio.lowlevel.ParkingLot()
        self._waiting: dict[trio.Event, Hashable] = {}
        self._changed = Wakeup()
        self._scope = trio.CancelScope()
        self._reading = trio.CancelScope()
        self._next: _Committing | None = None
        self._writing = False
        self._meter = context.meters.source(source_id)
        self._meter.joins += 1
        there.add(self)
        context.spawn(self._run)

    # --- for who uses it -------------------------------------------------------------------

    async def wait_ready(self, within: float) -> None:
        with trio.move_on_after(within) as scope:
            while self._member is None and self._over is None:
                await self._news.park()
        if self._over is not None:
            raise SubscribeRefused(self._over.code, self._over.message)
        if scope.cancelled_caught:
            raise SubscribeRefused(RefusalCode.UNAVAILABLE, _LATE)

    async def wait(self, within: float, who: Hashable | None = None) -> None:
        if who is None:
            with trio.move_on_after(within):
                await self._news.park()
            return
        news, given_up = trio.Event(), True
        self._waiting[news] = who
        try:
            with trio.move_on_after(within):
                await news.wait()
            given_up = False
        finally:
            self._waiting.pop(news, None)
            if given_up and news.is_set():
                self._wake(1)  # another one: this one takes nothing any more

    @property
    def sink(self) -> GroupSink:
        """Return who takes what is read."""
        return self._sink

    @property
    def view(self) -> object:
        return self._rights.view(self.source_id)

    @property
    def given(self) -> Mapping[int, int]:
        return self._given

    @property
    def leaving(self) -> bool:
        return self._leaving

    def look(self) -> None:
        self._changed.set()
        self._tell()

    def offer(self, events: int) -> None:
        self._changed.set()
        self._wake(events)

    def rewind(self) -> None:
        self._reading.cancel()
        self.look()

    def close(self) -> None:
        self._leaving = True
        self._scope.cancel()

    async def wait_left(self) -> None:
        while self._over is None or not self._left:
            await self._news.park()

    async def commit(self, partitions: Collection[int], given: Mapping[int, int] | None = None) -> None:
        had = self._given if given is None else given
        mine = self._next = self._next or _Committing()
        mine.partitions.update(partitions)
        if not self._writing:
            self._writing = True
            self._context.spawn(self._write)
        await mine.done.wait()
        if moved := {p for p in partitions if p in mine.moved or had.get(p) != mine.given.get(p)}:
            raise PartitionsMoved(moved)
        if mine.refused is not None:
            raise CommitRefused(mine.refused.code, str(mine.refused), retry=mine.refused.retry)

    # --- inside ----------------------------------------------------------------------------

    def _tell(self) -> None:
        self._news.unpark_all()
        for news in self._waiting:
            news.set()
        self._waiting.clear()

    def _wake(self, most: int) -> None:
        """Wake so many of those who wait, and for whom there is something."""
        has = self._sink.has
        for news in list(islice((news for news, who in self._waiting.items() if has(who)), most)):
            del self._waiting[news]
            news.set()

    async def _write(self) -> None:
        """Commit, and what came meanwhile, until there is nothing more."""
        try:
            while (committing := self._next) is not None:
                self._next = None
                self._meter.commits[await self._commit(committing)] += 1
                committing.done.set()
        finally:
            self._writing = False

    async def _commit(self, committing: _Committing) -> str:
        """Commit. Returns what came of it, as metrics have it."""
        committing.given = self._given
        if self._member is None or self._over is not None:
            committing.moved = committing.partitions
            return "refused"
        positions = self._sink.commits(committing.partitions)
        committing.moved = committing.partitions - positions.keys()
        owed = self._sink.uncommitted & positions.keys()
        # Before it is done: what changes meanwhile is to be committed, too.
        self._sink.uncommitted -= committing.partitions
        with FaultBarrier() as barrier:
            if positions:
                committing.moved.update(await _kept(self._member, positions))
        if barrier.error is not None:
            self._sink.uncommitted |= owed & self._sink.offsets.keys()
        if isinstance(barrier.error, CommitRefused):
            committing.refused = barrier.error
            return "refused"
        if barrier.error is not None:
            log.error("a source failed to commit", source=self.source_id, exc_info=barrier.error)
            unknown = "not known whether it was committed"
            committing.refused = CommitRefused(RefusalCode.UNAVAILABLE, unknown, retry=True)
            return "failed"
        return "ok" if committing.moved < committing.partitions else "refused"

    async def _run(self) -> None:
        over = ReadingOver(RefusalCode.CANCELLED, "the member has left the group")
        try:
            with self._scope, FaultBarrier() as barrier:
                terms = self._terms
                joined = self._source.join(terms.group, terms.kind, terms.sharing, self._begin)
                async with joined as member, trio.open_nursery() as nursery:
                    nursery.start_soon(self._keep_reading, nursery.cancel_scope)
                    nursery.start_soon(self._keep_looking, nursery.cancel_scope)
                    while True:
                        news = await member.next_assignment()
                        self._note(news)
                        self._sink.assigned(news.given, news.kept, news.members)
                        self._member = member
                        self.rewind()
            if isinstance(barrier.error, CommitRefused):
                over = ReadingOver(barrier.error.code, str(barrier.error))
            elif barrier.error is not None:
                log.error("a group reader failed", source=self.source_id, exc_info=barrier.error)
                over = ReadingOver(RefusalCode.INTERNAL_ERROR, words(barrier.error))
        finally:
            self._over, self._left, self._leaving = self._over or over, True, True
            self._sink.over(self._over)
            self._there.discard(self)
            self._meter.redelivered += self._sink.redelivered
            self._tell()

    def _note(self, news: GroupAssignment) -> None:
        self._assignments += 1
        kept = {p: number for p, number in self._given.items() if p in news.kept}
        self._given = kept | dict.fromkeys(news.given, self._assignments)

    async def _begin(self) -> Positions:
        """Say where a group begins that has committed nothing."""
        there = await self._history.offset_range()
        return there.first if self._terms.start is StartAt.EARLIEST else there.end

    async def _keep_looking(self, scope: trio.CancelScope) -> None:
        """Have the sink do what is due, and end when it says so, or the source has become another."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            if self._context.running_source(self.source_id) is not self._source:
                self._over = ReadingOver(RefusalCode.UNAVAILABLE, "the source has begun anew; try again")
            elif self._sink.look(time.monotonic()):
                if partitions := self._sink.uncommitted:
                    with suppress(CommitRefused):  # it is tried again, or another's
                        await self.commit(partitions)
                continue
            self._leaving = True
            scope.cancel()
            return

    async def _keep_reading(self, scope: trio.CancelScope) -> None:
        """Read what the member has, from where the sink says, as long as nothing changes that."""
        while True:
            with trio.CancelScope() as self._reading:
                over = None
                if offsets := self._sink.offsets:
                    over = await self._read(offsets)
                else:
                    await self._changed.wait()
            if over is not None:
                self._over, self._leaving = over, True
                scope.cancel()
                return

    async def _read(self, offsets: Positions) -> ReadingOver | None:
        """Read these partitions. Returns why it is over; None: it is to be tried again."""
        hub, reading = self._context.hub(self.source_id), self._reading
        ends = offsets if hub is None else hub.positions
        # Who shares them out may know of a partition that has just been added before this process does.
        unknown = offsets.keys() - ends.keys()
        start = AtEvents({p: min(o, ends[p]) for p, o in offsets.items() if p in ends}, skip_missing=True)
        if not start.offsets:
            await trio.sleep(AGAIN_SECONDS)
            return None
        identity, endpoint, source_id = self._identity, self._endpoint, self.source_id
        wire = self._wire(start.offsets.keys())
        reader = RequestReader(self._context, identity, endpoint, self._rights, source_id, wire, start)
        reader.overflow = OverflowPolicy.REPLAY
        try:
            async with reader:
                while reader.over is None:
                    if hub is not None and not unknown.isdisjoint(hub.positions):
                        return None
                    events, size = self._sink.room
                    if events <= 0 or size <= 0:
                        await self._changed.wait()
                        continue
                    runs = await reader.next(events, min(size, _PIECE_BYTES), PASS_SECONDS)
                    if reading.cancel_called:
                        return None  # they are from where it is to be read no more
                    reader.lost.clear()
                    there = {p: o for p, o in reader.positions.items() if p in start.offsets}
                    self._sink.read(runs, there)
                    self._wake(sum(run.events for run in runs))
                return reader.over
        except SubscribeRefused as refused:
            if refused.code in (RefusalCode.POSITIONS, RefusalCode.FAILED, RefusalCode.UNAVAILABLE):
                log.warning("a group cannot be read; it is tried again", source=source_id, why=str(refused))
                await trio.sleep(AGAIN_SECONDS)
                return None
            return ReadingOver(refused.code, str(refused))


async def _kept(member: GroupMember, positions: Mapping[int, tuple[int, str]]) -> Collection[int]:
    """Commit. Returns the partitions that the member does not have any more. Raises CommitRefused for all
    else."""
    try:
        await member.commit(positions)
    except CommitRefused as refused:
        if refused.code != RefusalCode.MOVED:
            raise
    else:
        return ()
    if len(positions) == 1:
        return positions.keys()
    # Of several it is not said which: what is still its own is to be kept, and is not to come again.
    return {p for p, place in positions.items() for _ in await _kept(member, {p: place})}
