"""The gateway's end of the bridge: serves its sources to the readers of Spark queries, on a Unix socket.

Each connection reads one source at a time through `SourceContext.read`, so that credit, losses and ends are
those of every subscription. What a reader is not given is in the log, once, with its exact ranges.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final

import structlog
import trio

from kiwi_gw.api import (
    AtPositions,
    AtTime,
    EventReader,
    Gap,
    Portion,
    Positions,
    ReadingOver,
    ReadSource,
    Start,
    StartAt,
    SubscribeRefused,
)
from kiwi_spark.bridge_events import spark_events
from kiwi_spark.bridge_wire import FRAMES, ROLE, Events, Over, Read, Reading, Refused, Take, Taken
from kiwi_spark.connection import Connection
from kiwi_spark.frames import Message, WireError
from kiwi_spark.wire import VERSION, Hello

log = structlog.get_logger(__name__)

HELLO_SECONDS: Final = 5.0
WAIT_SECONDS: Final = 1.0
"""How long a Take waits for the first event, where there must be one."""

_IDLE_SECONDS: Final = 0.005
"""The same where the source has none: a source that is over says so within that time."""

_COMPLETE: Final = frozenset({"ended", "removed", "altered", "changed"})
"""How a source ends whose readers are given everything."""

_MAX_READERS: Final = 256

Lost = Callable[[str, Gap], None]


async def serve_bridge(
    path: str,
    token: str,
    read: ReadSource,
    *,
    lost: Lost | None = None,
    task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; `started` when `path` can be connected to. Its folder must be private.

    token: what every connection must bring. lost: told of everything that a reader was not given.
    """
    with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM) as listening:
        await listening.bind(path)
        try:
            os.chmod(path, 0o600)
            listening.listen(64)
            bridge = _Bridge(token, read, lost or _told)
            await trio.serve_listeners(
                bridge.serve, [trio.SocketListener(listening)], task_status=task_status
            )
        finally:
            with suppress(FileNotFoundError):  # with its folder, if the driver was quicker
                os.unlink(path)


class _Bridge:
    """finished: by source, the epoch that ended last while somebody read it, and where its last event was."""

    def __init__(self, token: str, read: ReadSource, lost: Lost) -> None:
        self.read = read
        self._lost = lost
        self.finished: dict[str, tuple[str, object]] = {}
        self._token = token.encode()
        self._open = 0

    def tell(self, source: str, gap: Gap) -> None:
        """Say what a reader was not given."""
        ranges = dict(gap.ranges)
        log.warning("events lost before Spark read them", source=source, count=gap.count, ranges=ranges)
        self._lost(source, gap)

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection. What goes wrong on it ends it, and nothing else."""
        self._open += 1
        try:
            async with stream:
                if self._open > _MAX_READERS:
                    log.warning("too many Spark readers", most=_MAX_READERS)
                    return
                connection = Connection(stream, FRAMES)
                with trio.move_on_after(HELLO_SECONDS) as patience:
                    await self._welcome(connection)
                if not patience.cancelled_caught:
                    await _serve(connection, self)
        except WireError as error:
            log.info("Spark reader left", reason=str(error))
        finally:
            self._open -= 1

    async def _welcome(self, connection: Connection) -> None:
        hello = await connection.receive()
        if not isinstance(hello, Hello) or hello.role != ROLE or hello.version != VERSION:
            raise WireError("it does not speak this protocol")
        if not hmac.compare_digest(hello.token.encode(), self._token):
            raise WireError("it has another token")


async def _serve(connection: Connection, bridge: _Bridge) -> None:
    message = await connection.receive()
    while message is not None:
        if not isinstance(message, Read):
            raise WireError(f"{type(message).__name__} before Read")
        try:
            opened = await _open(message, bridge)
            async with opened as reader:
                message = await _serve_reader(connection, bridge, reader, message)
        except SubscribeRefused as refused:
            await connection.send(Refused(code=refused.code, message=str(refused)))
            message = await connection.receive()


async def _serve_reader(
    connection: Connection, bridge: _Bridge, reader: EventReader, wish: Read
) -> Message | None:
    """Until something else is wanted: that."""
    epoch = "" if reader.info.replayable else reader.epoch
    here, end = _dump(reader, reader.positions), _dump(reader, reader.end)
    await connection.send(Reading(epoch=epoch, positions=here, end=end))
    while isinstance(message := await connection.receive(), Take):
        if message.events < 1:
            raise WireError("a Take of nothing")
        # Where an end was asked for there is always something to come: events, or that end.
        idle = wish.until is None and _reached(reader.positions, reader.end)
        portion = Portion(b"", 0, reader.positions)
        try:
            with trio.move_on_after(_IDLE_SECONDS if idle else WAIT_SECONDS):
                portion = await reader.read(message.events)
        except ReadingOver as over:
            if over.dropped != 0:
                bridge.tell(wish.source, Gap({}, over.dropped))
            elif over.reason in _COMPLETE:
                bridge.finished[wish.source] = reader.epoch, _dump(reader, reader.positions)
            await connection.send(Over(reason=over.reason, message=str(over)))
            continue
        await connection.send(*_taken(reader, portion))
        if portion.lost is not None:
            bridge.tell(wish.source, portion.lost)
    return message


def _taken(reader: EventReader, portion: Portion) -> list[Message]:
    lost = portion.lost or Gap({}, 0)
    taken = Taken(
        events=portion.events,
        positions=_dump(reader, portion.positions),
        lost={str(partition): ends for partition, ends in lost.ranges.items()},
        count=lost.count,
        end=_reached(portion.positions, reader.end),
    )
    return [taken, Events(data=portion.data)] if portion.events else [taken]


async def _open(wish: Read, bridge: _Bridge) -> AbstractAsyncContextManager[EventReader]:
    """How the source is to be read. SubscribeRefused: not as it is wished."""
    start: Start
    match wish.start:
        case "latest":
            start = StartAt.LATEST
        case "earliest":
            start = StartAt.EARLIEST
        case int():
            start = AtTime(wish.start)
        case str():
            raise SubscribeRefused("start", f"{wish.start!r} is no start")
        case positions:
            start = AtPositions(positions, skip_missing=True)
    if isinstance(start, AtPositions) or wish.until is not None:
        start = await _checked(start, wish, bridge)
    return bridge.read(wish.source, spark_events, start, wish.until)


async def _checked(start: Start, wish: Read, bridge: _Bridge) -> Start:
    """The same start, if its positions are of the source as it is now; where it may be, another one."""
    try:
        async with bridge.read(wish.source, spark_events) as now:
            info, epoch = now.info, now.epoch
    except SubscribeRefused as refused:
        if refused.code == "ended" and wish.until is not None and not wish.strict:
            raise _gone(wish, bridge, "the source is over, and is not read again") from refused
        raise
    if not info.replayable:
        if wish.epoch == epoch:
            return start
        if wish.until is not None:
            raise _gone(wish, bridge, "the source has begun anew, and cannot be read again")
        if bridge.finished.get(wish.source) != (wish.epoch, wish.start):
            bridge.tell(wish.source, Gap({}, None))
        return StartAt.EARLIEST
    if not isinstance(start, AtPositions):
        return start
    if wish.strict:
        return AtPositions(start.positions)
    try:
        async with bridge.read(wish.source, spark_events, start):
            return start
    except SubscribeRefused as refused:
        if refused.code != "positions":
            raise
        # It was made anew, and is shorter than it was.
        if wish.until is not None:
            raise _gone(wish, bridge, str(refused)) from refused
        bridge.tell(wish.source, Gap({}, None))
        return StartAt.EARLIEST


def _gone(wish: Read, bridge: _Bridge, message: str) -> SubscribeRefused:
    bridge.tell(wish.source, Gap({}, None))
    return SubscribeRefused("gone", message)


def _dump(reader: EventReader, positions: Positions) -> dict[str, object]:
    return reader.info.codec.dump(positions)


def _reached(here: Positions, goal: Positions) -> bool:
    return all(here.get(partition, 0) >= offset for partition, offset in goal.items())


def _told(source: str, gap: Gap) -> None:
    """Nobody counts."""
