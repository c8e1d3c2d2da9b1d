"""Reading a source for a plain request: a connection of its own, whose events are fetched instead of sent.

So all that holds for connections holds for such a reader: its rights are judged anew, its credentials expire,
it is counted, listed, and told when the gateway stops.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Protocol, Self

import trio

from kiwi_gw.codes import CloseCode, RefusalCode
from kiwi_gw.core.commands import Command, Open
from kiwi_gw.core.lag_watch import take_lag
from kiwi_gw.core.notices import Dismissed, Ended, Notice, Opened, OpenFailed
from kiwi_gw.core.prepared import Segment
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.dialect_api.http import RequestLimit
from kiwi_gw.dialect_api.reading import AtEvents, ReadingOver
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import AtPositions, Identity, OverflowPolicy, Positions, Ranges, Start, StartAt, WireFormat
from kiwi_gw.runtime.connection import Connection
from kiwi_gw.runtime.ports import GatewayContext
from kiwi_gw.wakeup import Wakeup

_HANDLE: Final = 0
_CODES: Final[Mapping[int, RefusalCode]] = {
    CloseCode.GOING_AWAY: RefusalCode.UNAVAILABLE,
    CloseCode.RESTART: RefusalCode.UNAVAILABLE,
    CloseCode.EXPIRED: RefusalCode.TOKEN_EXPIRED,
    CloseCode.REVOKED: RefusalCode.TOKEN_EXPIRED,
    CloseCode.DISCONNECTED: RefusalCode.CANCELLED,
}
"""What it means that a connection was closed so."""
_OPEN: Final = "open"


class ReaderContext(GatewayContext, Protocol):
    """What is needed of the gateway."""

    def next_number(self) -> int: ...

    def connection_opened(self, connection: Connection) -> None: ...

    def connection_closed(self, connection: Connection) -> None: ...


class Turn(Protocol):
    """Whose turn the reading takes (`ClientRights.turn`)."""

    async def turn(self) -> None: ...


class RequestReader:
    """Implement `kiwi_gw.dialect_api.EventReader`, and `Session` for its connection. One task uses it.

    overflow: what becomes of one that is too far behind; None: what the source says.
    """

    def __init__(
        self,
        context: ReaderContext,
        identity: Identity,
        endpoint: tuple[str, str],
        rights: Turn,
        source_id: str,
        wire: WireFormat,
        start: Start | AtEvents,
    ) -> None:
        """Prepare it. endpoint: the protocol, and where its client is."""
        self.positions: Positions = {}
        self.lost: list[Ranges] = []
        self.over: ReadingOver | None = None
        self.full = False
        self.overflow: OverflowPolicy | None = None
        self._context, self._rights = context, rights
        self._source_id, self._wire, self._start = source_id, wire, start
        self._opened = False
        self._refused: SubscribeRefused | None = None
        self._writer = _WakingWriter()
        dialect, remote = endpoint
        self._connection = Connection(
            context.next_number(),
            context,
            self,
            self._writer,
            identity,
            dialect,
            remote,
            time.monotonic(),
            self._writer.wake,
        )

    async def __aenter__(self) -> Self:
        """Open it. Raises SubscribeRefused, RequestLimit."""
        try:
            self._context.connection_opened(self._connection)
            self._connection.receive(_OPEN, time.monotonic())
            await self._wait_opened()
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @property
    def behind(self) -> bool:
        subscription = self._connection.subscriptions.get(_HANDLE)
        return subscription is not None and subscription.in_history

    async def next(
        self, most_events: int, most_bytes: int, within: float, room: int | None = None
    ) -> Sequence[Segment]:
        deadline = trio.current_time() + within
        self.full = False
        await self._rights.turn()
        while True:
            found = self._read(most_events, most_bytes, room)
            if found or self.lost or self.full or self.over is not None:
                return found
            with trio.move_on_at(deadline) as scope:
                await self._writer.wait()
            if scope.cancelled_caught:
                return self._read(most_events, most_bytes, room)

    # --- for its connection ----------------------------------------------------------------

    def receive(self, message: str | bytes, now: float) -> Iterable[Command]:
        hub = self._context.hub(self._source_id)
        start = self._start
        if isinstance(start, AtEvents):  # without a source it is refused, wherever it begins
            start = StartAt.LATEST if hub is None else _at(start, hub)
        wire, overflow = self._wire, self.overflow
        return (
            Open(_HANDLE, self._source_id, lambda info: wire, start=start, gathers=False, overflow=overflow),
        )

    def notice(self, notice: Notice) -> Iterable[Command]:
        match notice:
            case Opened(begin=begin):
                self._opened, self.positions = True, begin
            case OpenFailed(code=code, message=message):
                self._refused = SubscribeRefused(code, message)
            case Ended(reason=reason, message=message):
                self.over = ReadingOver(reason.value, message)
            case Dismissed(message=message):
                self._writer.close_reason = message
        self._writer.wake()
        return ()

    # --- inside ----------------------------------------------------------------------------

    async def _wait_opened(self) -> None:
        while not self._opened:
            if self._writer.close_code == CloseCode.TRY_AGAIN_LATER:
                raise RequestLimit("memory is short; try again later")
            if self._writer.close_code is not None:
                over = self.over or _ended(self._writer)
                raise SubscribeRefused(over.code, over.message)
            if self._refused is not None:
                raise self._refused
            await self._writer.wait()

    def _read(self, most_events: int, most_bytes: int, room: int | None) -> Sequence[Segment]:
        """Take what is there now."""
        subscription = self._connection.subscriptions.get(_HANDLE)
        if subscription is None:
            if self.over is None:
                self.over = _ended(self._writer)
            return ()
        while True:
            if subscription.lag_due:
                lost = take_lag(subscription, time.monotonic()).ranges
                self.positions = subscription.positions
                if lost:
                    self.lost.append(lost)
                    return ()
            prepared = subscription.prepare(most_bytes, most_events)
            if prepared is not None and room is not None and prepared.size > room:
                subscription.commit(prepared, 0)
                self.full = True
                return ()
            if prepared is not None:
                runs = prepared.segments
                subscription.commit(prepared, prepared.size)
                self.positions = _behind(runs) if subscription.closed else subscription.positions
                if prepared.events:
                    return runs
            elif not _notice_due(subscription):
                self.positions = subscription.positions  # behind what is no event, too
                return ()

    def _close(self) -> None:
        self._connection.end()
        self._context.connection_closed(self._connection)


def _notice_due(subscription: Subscription) -> bool:
    """Say whether the look has found a loss: a type checker takes it that there still is none."""
    return subscription.lag_due


def _behind(runs: Sequence[Segment]) -> Positions:
    """Return the positions behind these events."""
    last = runs[-1]
    return last.entry.batch.positions_at(last.last)


def _at(start: AtEvents, hub: SourceHub) -> Start:
    """Say it in positions of all partitions, so that the source's window may know at once where that is."""
    return AtPositions(hub.info.codec.dump({**hub.positions, **start.offsets}), start.skip_missing)


def _ended(writer: _WakingWriter) -> ReadingOver:
    """Say why the connection was closed."""
    code = _CODES.get(writer.close_code or 0, RefusalCode.INTERNAL_ERROR)
    return ReadingOver(code, writer.close_reason)


class _WakingWriter:
    """Implement `runtime.ports.ConnectionWriter` for a connection whose events are fetched: it sends nothing,
    and wakes the one who fetches."""

    sent_bytes = unsaid_bytes = 0
    full = False

    def __init__(self) -> None:
        self.writable = self.awaits_turn = False
        self.close_code: int | None = None
        self.close_reason = ""
        self._wakeup = Wakeup()
        self.wake, self.wait = self._wakeup.set, self._wakeup.wait

    @property
    def taken_at(self) -> float:
        """Return now: nothing waits here for the client; who sends what was fetched sees to its pace."""
        return time.monotonic()

    def send(self, data: memoryview | bytes) -> int:
        return 0

    def send_many(self, parts: Sequence[memoryview | bytes]) -> int:
        return 0

    def hold_remainder(self, rest: bytes) -> None: ...

    def mark_ready(self, subscription: Subscription) -> None:
        self.wake()

    def unanswered(self) -> float | None:
        return None

    def control(self, frame: bytes) -> None: ...

    def send_close(self, code: int, reason: str) -> None:
        self.close_code, self.close_reason = code, self.close_reason or reason
        self.wake()

    def cork(self) -> None: ...

    def uncork(self) -> None: ...
