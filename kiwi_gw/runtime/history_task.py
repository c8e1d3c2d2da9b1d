"""Reads the history of one source for those who are below its window (see `core.history`).

While the source runs, a few tasks at a time read for one group of subscriptions each. A reader that fails is
opened again where it was, after a pause; while the source itself is restarted everyone waits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing

import structlog
import trio

from kiwi_gw.api import CommitRefused, Committer, History, HistoryReader, SourceChanged, SourceFailed
from kiwi_gw.backoff import Backoff
from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.history import HistoryQueue, SharedHistoryReader
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.core.start_resolution import RequestedPositions, RequestedStart
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import AtTime, Batch, Committed, OffsetRange, batch_pieces
from kiwi_gw.runtime.loop_rounds import count_as_busy, count_as_idle, counting_alike
from kiwi_gw.runtime.plugin_faults import FaultBarrier, words
from kiwi_gw.wakeup import Wakeup

log = structlog.get_logger(__name__)

TURN_SECONDS = 1.0
"""How long a reader may go on while others wait that have none."""

PATIENCE_SECONDS = 0.5
"""How long members that are slow may hold up those that have read everything, before they lose their place;
what was used up comes back at a tenth of the time, so they slow the others down by a tenth at most."""

LINGER_SECONDS = 5.0
"""How long a reader without members is kept: a client that grants credit in small portions comes back, and
of those who lost their gateway some take their time. What it holds is read from memory."""

_QUESTIONS_AT_ONCE = 4
_LOOKUPS_AT_ONCE = 64
"""Questions about groups have places of their own: clients choose the names, and an origin may be able to
answer about some groups only. No other question waits for those."""
_COMMITTED_SECONDS = 3.0
_GIVEN_UP_SECONDS = 0.25
"""How much longer a question goes on that nobody asks any more. What cuts off an answer that is on its way
costs the source a connection, and clients that come and go could have it connect all the time."""
_AT_ONCE = 16
_NOT_SAID_SECONDS, _NOT_SAID_AT_MOST = 0.25, 1.0
"""Until the source is asked again about positions of which it could not say of which history they are: longer
where that took long, for instance because there are many."""
_PATIENCE_REGAINED = 0.1
_LEAST_PATIENCE = 0.001  # less may be an error of rounding
_TURNS_SECONDS, _TURNS_AT_MOST = 0.05, 5.0
"""How long it is waited besides for members that the gateway itself has wait for their turns, before it is
looked again whether there are some, and how long in all; it comes back as patience does."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 10.0  # seconds, doubled with each failure in a row


_Question = AtTime | Committed | bool


class HistoryTask:
    """Reads history for one hub. serves_readers: called before a batch is sent to some. failures: how often a
    reader, or a question where to begin, has failed."""

    def __init__(self, hub: SourceHub, serves_readers: Callable[[], None]) -> None:
        self.failures = 0
        self._hub, self._serves_readers = hub, serves_readers
        self._todo = Wakeup()
        self._looked = trio.lowlevel.ParkingLot()  # set when there may be others who ask
        self._failing = False
        self._asking: dict[_Question, trio.CancelScope] = {}
        self._questions = trio.Semaphore(_QUESTIONS_AT_ONCE)
        self._lookups = trio.Semaphore(_LOOKUPS_AT_ONCE)

    async def run(self, source: History) -> None:
        """Until cancelled. Raises SourceChanged or SourceFailed where a reader does."""
        replay = self._hub.history
        replay.on_changed = self._changed
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    self._ask_all(source, nursery)
                    self._looked.unpark_all()
                    opens_in = replay.opens_in
                    if opens_in == 0:
                        while (reader := replay.open()) is not None:
                            nursery.start_soon(self._serve, source, reader)
                        opens_in = None
                    with trio.move_on_after(math.inf if opens_in is None else opens_in):
                        await self._todo.wait()
        finally:
            replay.on_changed = _nothing
            replay.close()

    def _changed(self) -> None:
        self._todo.set()

    # --- where to begin --------------------------------------------------------------------

    def _ask_all(self, source: History, nursery: trio.Nursery) -> None:
        """Ask what somebody wants to know, and give up what nobody does."""
        wanted = dict.fromkeys(_question(asks, where) for asks, where in self._hub.unresolved.items())
        for question, scope in self._asking.items():
            given_up_at = trio.current_time() + _GIVEN_UP_SECONDS
            scope.deadline = math.inf if question in wanted else min(scope.deadline, given_up_at)
        for question in wanted:
            asking = self._asking.get(question)
            if asking is None or asking.cancel_called:
                self._asking[question] = scope = trio.CancelScope()
                nursery.start_soon(self._ask, source, question, scope)

    async def _ask(self, source: History, question: _Question, scope: trio.CancelScope) -> None:
        """Ask when there is a place, as long as somebody wants to know."""
        try:
            with scope:
                async with self._lookups if isinstance(question, Committed) else self._questions:
                    await self._ask_on(source, question)
        finally:
            if self._asking.get(question) is scope:
                del self._asking[question]

    async def _ask_on(self, source: History, question: _Question) -> None:
        """Ask the source once for all who want to know the same; those who come meanwhile, again. Those whose
        positions it could not judge are put off, so that no other waits for them."""
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        later: dict[Subscription, float] = {}
        while waiting := [s for s, w in self._hub.unresolved.items() if _question(s, w) == question]:
            looked_at = trio.current_time()
            asking = [s for s in waiting if later.get(s, 0) <= looked_at]
            if not asking:
                with trio.move_on_at(min(later[s] for s in waiting)):
                    await self._looked.park()
            elif not await self._answer(source, question, asking):
                await trio.sleep(backoff.next())
            else:
                now = trio.current_time()
                again = now + min(max(_NOT_SAID_SECONDS, 4 * (now - looked_at)), _NOT_SAID_AT_MOST)
                later |= dict.fromkeys(asking, again)
                later = {s: at for s, at in later.items() if s in self._hub.unresolved}

    async def _answer(self, source: History, question: _Question, asking: Sequence[Subscription]) -> bool:
        """Ask the source, and tell them. False: it has failed, and is to be asked again."""
        with FaultBarrier(SourceChanged, SourceFailed) as barrier:
            committed: Mapping[int, int] | None = None
            if isinstance(question, Committed):
                committed = await _committed(source, question.group)
            asked_at = self._hub.now
            offset_range = await source.offset_range()  # what is committed meanwhile may be behind its end
            if (lineage := self._hub.lineage) is not None:
                await lineage.learn([p for item in asking for p in self._hub.requested_positions(item)])
            if not isinstance(question, AtTime):
                self._hub.history.set_offset_range(offset_range, asked_at)
            else:
                offset_range = OffsetRange(await source.at(question.timestamp), offset_range.end)
        if isinstance(barrier.error, CommitRefused):
            refused = SubscribeRefused(barrier.error.code, str(barrier.error))
            for subscription in asking:
                self._hub.refuse(subscription, refused)
        elif barrier.error is not None:
            self._failed(barrier.error, "history does not say where to begin; it is asked again")
            return False
        else:
            self._failing = False
            await self._resolve(asking, offset_range, committed)
        return True

    async def _resolve(
        self,
        asking: Iterable[Subscription],
        offset_range: OffsetRange,
        committed: Mapping[int, int] | None,
    ) -> None:
        """Tell them where they begin, a slice of time at once."""
        hub = self._hub
        until = hub.now + hub.limits.slice_seconds
        for number, subscription in enumerate(asking, 1):
            hub.resolved(subscription, offset_range, committed)
            if number % _AT_ONCE == 0 or hub.now >= until:
                await trio.lowlevel.checkpoint()
                until = hub.now + hub.limits.slice_seconds
        await trio.lowlevel.checkpoint()

    # --- reading ---------------------------------------------------------------------------

    async def _serve(self, source: History, reader: SharedHistoryReader) -> None:
        """Read for one group of subscriptions until none of them is left, or others have their turn."""
        turn = _ReaderTurn(reader, self._hub.history)
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        try:
            while True:
                before = reader.positions
                with FaultBarrier(SourceChanged, SourceFailed) as barrier:
                    async with source.read_from(dict(before)) as events:
                        await self._read(turn, events)
                if barrier.error is None:
                    return
                self._failed(barrier.error, "history cannot be read; it is tried again")
                if reader.positions != before:
                    backoff.reset()
                await trio.sleep(backoff.next())
        finally:
            reader.close()

    async def _read(self, turn: _ReaderTurn, events: HistoryReader) -> None:
        reader = turn.reader
        while await turn.goes_on():
            if reader.arrived:
                reader.join()
                await turn.wait()
                continue
            if reader.for_queries:
                count_as_idle()
            else:
                count_as_busy()
            with counting_alike():  # what fetches for it is part of it
                batch = await events.read(reader.catch_up_target())
            self._failing = False
            self._serves_readers()
            for piece in batch_pieces(batch):
                if not await turn.room(piece):
                    return
                with closing(reader.take(piece)) as steps:  # type: ignore[type-var]
                    for _ in steps:
                        await trio.lowlevel.checkpoint()
            turn.queue.pass_by()
            await trio.lowlevel.checkpoint()

    def _failed(self, error: BaseException, event: str) -> None:
        """Count a fault of the source's, and log the first of some in a row."""
        self.failures += 1
        if not self._failing:  # once, until something works again
            log.error(event, source=self._hub.info.id, error=words(error), exc_info=error)
        self._failing = True


class _ReaderTurn:
    """The time of one reader: how long it may go on, and how long its slow members may hold it up."""

    def __init__(self, reader: SharedHistoryReader, queue: HistoryQueue) -> None:
        self.reader = reader
        self.queue = queue
        self._signal = Wakeup()
        self._over_at = trio.current_time() + TURN_SECONDS
        self._patience, self._spent_at = PATIENCE_SECONDS, trio.current_time()
        self._for_turns = _TURNS_AT_MOST
        reader.on_changed = self._signal.set

    @property
    def over(self) -> bool:
        return self.queue.starved and trio.current_time() >= self._over_at

    async def wait(self) -> None:
        """Until there is something to do, or others are to have their turn."""
        # Others may come to wait at any time: the end of the turn is looked for, not announced.
        with trio.move_on_after(TURN_SECONDS):
            await self._signal.wait()

    async def goes_on(self) -> bool:
        """Say whether there are members; if not, one may come back within a moment."""
        waits = True
        while waits and not self.reader.members and not self.queue.starved:
            waits = False
            with trio.move_on_after(LINGER_SECONDS):
                await self._signal.wait()  # it may have come and gone at once: then a moment more
                waits = True
        return bool(self.reader.members) and not self.over

    async def room(self, piece: Batch) -> bool:
        """Wait until every member has read enough of what is there. Where others have read it all already,
        not for ever: who is overtaken asks for a place again. False: it is over."""
        reader = self.reader
        now = trio.current_time()
        regained = (now - self._spent_at) * _PATIENCE_REGAINED
        self._patience = min(PATIENCE_SECONDS, self._patience + regained)
        self._for_turns = min(_TURNS_AT_MOST, self._for_turns + regained)
        while reader.members and not reader.fits(piece):
            began, starving = trio.current_time(), reader.starving
            if self.over:
                return False
            if starving and self._patience < _LEAST_PATIENCE:
                if self._for_turns < _LEAST_PATIENCE or not reader.waits_for_turns:
                    break
                self._patience = min(_TURNS_SECONDS, self._for_turns)
                self._for_turns -= self._patience
            with trio.move_on_after(self._patience if starving else TURN_SECONDS):
                await self._signal.wait()
            if starving:
                self._patience -= trio.current_time() - began
        self._spent_at = trio.current_time()
        return bool(reader.members)


def _question(asks: Subscription, where: RequestedStart) -> _Question:
    """Find what is to be asked: when, or what there is; for those who know of no history apart from those who
    may, as that can take long."""
    return (
        where
        if isinstance(where, AtTime | Committed)
        else isinstance(where, RequestedPositions) or asks.delivery.bounds.until is not None
    )


async def _committed(source: object, group: str) -> Mapping[int, int]:
    """Ask how far the group has come. Raises CommitRefused, also where that is not said in time."""
    if not isinstance(source, Committer):
        raise CommitRefused(RefusalCode.START, "this source keeps no positions of groups")
    with trio.move_on_after(_COMMITTED_SECONDS) as scope:
        found = await source.committed(group)
    if scope.cancelled_caught:
        words = f"the source has not said within {_COMMITTED_SECONDS:g} s how far this group has come"
        raise CommitRefused(RefusalCode.UNAVAILABLE, f"{words}; try again", retry=True)
    return {partition: offset for partition, (offset, _) in found.items()}


def _nothing() -> None:
    """Do nothing: history is not read now."""
