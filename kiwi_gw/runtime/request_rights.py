"""What the client of a plain request may do, and what is done in its name."""

from __future__ import annotations

import secrets
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from functools import partial
from itertools import accumulate
from typing import Final, Protocol, cast

import trio

from kiwi_gw.api import (
    CommitRefused,
    Groups,
    GroupState,
    History,
    RegisteredSchema,
    SchemaRefused,
    SchemaRegistrar,
    SchemaVersion,
)
from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.hub_limits import HubState
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.dialect_api.http import RequestLimit
from kiwi_gw.dialect_api.reading import AtEvents, GroupSink, GroupTerms, WireOf
from kiwi_gw.model import (
    Action,
    AtTime,
    Identity,
    Outgoing,
    Part,
    Positions,
    Published,
    Refusal,
    SourceInfo,
    Start,
    StartAt,
    Unpublished,
    WireFormat,
    total_size,
)
from kiwi_gw.runtime.command_scheduler import CommandScheduler
from kiwi_gw.runtime.group_reader import GroupContext, SourceGroupReader
from kiwi_gw.runtime.keepalive import unexpired
from kiwi_gw.runtime.produce_queue import RECORD_OVERHEAD, TURN_RECORDS, ProduceQueue, ProduceTicket
from kiwi_gw.runtime.request_load import RequestLoad
from kiwi_gw.runtime.request_reader import RequestReader
from kiwi_gw.runtime.source_rights import refusal_of
from kiwi_gw.runtime.source_runner import SourceRunner

MOST_GROUPS: Final = 100
"""Of which one process is a member."""

_TURN_SECONDS: Final = 0.001
_ORIGIN_SECONDS: Final = 5.0
_TOGETHER_BYTES: Final = 64 << 10
"""Of records of a request that are handed over together, or one record."""
_OBJECTS, _HEADER = 500, 200
"""Bytes of the objects that a record, and each of its headers, is made of."""

_SOURCE_GONE: Final = Refusal(RefusalCode.UNKNOWN_SOURCE, "the source is gone")

_OF_THIS_PROCESS: Final = secrets.randbits(48)


_COMMIT_REFUSED: Final = partial(CommitRefused, retry=True)


class Context(GroupContext, Protocol):
    """What is needed of the gateway."""

    @property
    def request_load(self) -> RequestLoad: ...

    @property
    def command_scheduler(self) -> CommandScheduler: ...

    draining: bool

    def runner(self, source_id: str) -> SourceRunner | None: ...


@contextmanager
def _in_time(refused: Callable[[str, str], Exception] = _COMMIT_REFUSED) -> Iterator[None]:
    """Give an origin so long to answer. Raises what `refused` makes of a code and words."""
    try:
        with trio.fail_after(_ORIGIN_SECONDS):
            yield
    except trio.TooSlowError:
        words = f"the source's origin has not answered within {_ORIGIN_SECONDS:g} s"
        raise refused(RefusalCode.UNAVAILABLE, words) from None


class RequestRights:
    """Implement `kiwi_gw.dialect_api.ClientRights`, for one request."""

    def __init__(
        self,
        context: Context,
        identity: Identity,
        endpoint: tuple[str, str] = ("", ""),
        watched: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        """Begin a turn. endpoint: the protocol, and where its client is. watched: what is waited for in such
        a block is given up when the client leaves."""
        self._context, self._identity, self._endpoint = context, identity, endpoint
        self._watched = watched
        self._allowance = context.command_scheduler.allowance()
        self._turn_began = time.monotonic()

    def sources(self) -> Iterable[SourceInfo]:
        return self._context.sources()

    def source(self, source_id: str) -> SourceInfo | None:
        hub = self._context.hub(source_id)
        return None if hub is None else hub.info

    def refusal(self, action: Action, source: SourceInfo) -> Refusal | None:
        return refusal_of(self._context.hooks, self._identity, action, source)

    def unwelcome(self) -> Refusal | None:
        found = unexpired(self._context.hooks.reauthenticate(self._identity))
        return found if isinstance(found, Refusal) else None

    def partitions(self, source_id: str) -> Positions | None:
        hub = self._context.hub(source_id)
        return None if hub is None or hub.state is HubState.STARTING else hub.positions

    def trouble(self, source_id: str) -> str:
        hub = self._context.hub(source_id)
        return "" if hub is None else hub.degradation

    async def wait_started(self, source_id: str, within: float) -> None:
        with trio.move_on_after(within):
            async with self._watched():
                while (runner := self._context.runner(source_id)) is not None and self._starts(runner.hub):
                    await runner.turned.park()
        self.resume()

    def _starts(self, hub: SourceHub) -> bool:
        return hub.state is HubState.STARTING and not hub.degradation and not self._context.draining

    def life(self, source_id: str) -> int:
        hub = self._context.hub(source_id)
        lineage = None if hub is None else hub.lineage
        known = None if lineage is None else lineage.life
        return _OF_THIS_PROCESS if known is None else known

    async def turn(self) -> None:
        if time.monotonic() - self._turn_began >= _TURN_SECONDS:
            await self.wait_turn()

    async def wait_turn(self) -> None:
        """Wait until it is this request's turn, among all clients that ask for much. What it has done before
        comes off the budget of the rounds."""
        self._allowance.charge(self._turn_began, time.monotonic())
        await self._context.command_scheduler.wait(self._allowance)
        self.resume()

    def resume(self) -> None:
        """Begin a turn: the request has waited for something."""
        self._turn_began = time.monotonic()
        self._allowance.renew(self._turn_began)

    def writer(self, source_id: str) -> SourceWriter:
        return SourceWriter(self._context, self._context.produce_queue(source_id), self)

    def read(self, source_id: str, wire: WireFormat, start: Start | AtEvents) -> RequestReader:
        return RequestReader(self._context, self._identity, self._endpoint, self, source_id, wire, start)

    def view(self, source_id: str) -> object:
        hub, hooks = self._context.hub(source_id), self._context.hooks
        chain = _SOURCE_GONE if hub is None else hooks.transforms(self._identity, hub.info)
        if isinstance(chain, Refusal):
            return object()
        own = self._identity.name, hooks.generation  # what has no key is for this client alone
        return tuple((*own, n) if link.key is None else link.key for n, link in enumerate(chain))

    def join(self, source_id: str, terms: GroupTerms, wire: WireOf, sink: GroupSink) -> SourceGroupReader:
        there = self._context.request_load.groups
        if len(there) >= MOST_GROUPS:
            raise RequestLimit("this gateway is a member of as many groups as it may be; try again later")
        own = RequestRights(self._context, self._identity, self._endpoint)
        return SourceGroupReader(
            self._context, self._identity, self._endpoint, own, source_id, terms, wire, sink, there
        )

    async def places(self, source_id: str, start: StartAt | AtTime) -> Positions:
        source = self._context.running_source(source_id)
        if not isinstance(source, History):
            words = "the source does not run just now, or cannot be read again"
            raise CommitRefused(RefusalCode.UNAVAILABLE, words, retry=True)
        with _in_time():
            if isinstance(start, AtTime):
                return await source.at(start.timestamp)
            there = await source.offset_range()
        return there.first if start is StartAt.EARLIEST else there.end

    async def group_state(self, source_id: str, group: str) -> GroupState:
        with _in_time():
            return await self._groups(source_id).group_state(group)

    async def forget_group(self, source_id: str, group: str) -> None:
        with _in_time():
            await self._groups(source_id).forget_group(group)

    async def register_schema(self, source_id: str, part: Part, definition: str) -> SchemaVersion:
        with _in_time(SchemaRefused):
            found = await self._registrar(source_id).register_schema(part, definition)
        self.resume()
        return found

    async def find_schema(self, source_id: str, part: Part, version: int) -> SchemaVersion:
        with _in_time(SchemaRefused):
            found = await self._registrar(source_id).find_schema(part, version)
        self.resume()
        return found

    async def schema_versions(
        self, source_id: str, part: Part, schemas: Sequence[RegisteredSchema], within: float
    ) -> Mapping[int, int]:
        found = {}
        with trio.move_on_after(within):
            for schema in schemas:
                with suppress(SchemaRefused):  # it has none
                    known = await self._registrar(source_id).known_schema(part, schema.text)
                    found[schema.id] = known.version
        self.resume()
        return found

    def _registrar(self, source_id: str) -> SchemaRegistrar:
        source = self._context.running_source(source_id)
        if not isinstance(source, SchemaRegistrar):
            words = "the source does not run just now, or has no schema registry"
            raise SchemaRefused(RefusalCode.UNAVAILABLE, words)
        return source

    def _groups(self, source_id: str) -> Groups:
        source = self._context.running_source(source_id)
        if not isinstance(source, Groups):
            code = RefusalCode.UNAVAILABLE if source is None else RefusalCode.GROUP
            raise CommitRefused(code, "the source does not run just now, or keeps no groups", retry=True)
        return source


class SourceWriter:
    """Implement `kiwi_gw.dialect_api.RecordWriter`: of one source, as it was when it was made."""

    def __init__(self, context: Context, queue: ProduceQueue, rights: RequestRights) -> None:
        self._context, self._queue, self._rights = context, queue, rights

    async def produce(self, records: Sequence[Outgoing], within: float) -> Sequence[Published | Unpublished]:
        if self._context.refusing:
            raise RequestLimit("memory is short; try again later")
        tickets: list[ProduceTicket] = []
        deadline = trio.current_time() + within
        for part, size in _parts(records):
            tickets.append(ProduceTicket(len(tickets), part, size, None, deadline))
            await self._rights.turn()
        size, load = sum(map(_held, tickets)), self._context.request_load
        load.add_produced(size)
        try:
            await _ProduceRequest(tickets).run(self._queue)
        finally:
            load.produced_bytes -= size
        self._rights.resume()
        return cast("list[Published | Unpublished]", [r for ticket in tickets for r in ticket.results])


def _parts(records: Sequence[Outgoing]) -> Iterator[tuple[Sequence[Outgoing], int]]:
    """Cut them into what is handed over together, for others are to have their turn between; with the size of
    each part."""
    first = 0
    while first < len(records):
        part = records[first : first + TURN_RECORDS]
        size = total_size(part) + RECORD_OVERHEAD * len(part)
        if size > _TOGETHER_BYTES:
            upto = list(accumulate([record.size + RECORD_OVERHEAD for record in part]))
            last = bisect_left(upto, _TOGETHER_BYTES)
            part, size = part[: last + 1], upto[last]
        yield part, size
        first += len(part)


def _held(ticket: ProduceTicket) -> int:
    """Return about how much memory is held for records, with their messages and their results."""
    records = ticket.records
    return ticket.size + _OBJECTS * len(records) + _HEADER * sum([len(one.headers) for one in records])


class _ProduceRequest:
    """Implement `produce_queue.ProduceFeed`: the records of one request."""

    def __init__(self, tickets: Sequence[ProduceTicket]) -> None:
        self._tickets = tickets
        self._settled = 0
        self._done = trio.Event()

    async def run(self, queue: ProduceQueue) -> None:
        """Have them written. Who is cancelled gives up what was not handed over."""
        try:
            for ticket in self._tickets:
                queue.add(self, ticket)
            if self._tickets:
                await self._done.wait()
        finally:
            queue.drop(self)

    def settle(self) -> None:
        """Look whether all have a result."""
        while self._tickets[self._settled].results:
            self._settled += 1
            if self._settled == len(self._tickets):
                self._done.set()
                break

    def make_room(self) -> None:
        """Do nothing: what plain requests bring is bounded in all, and never waits."""
