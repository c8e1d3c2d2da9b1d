"""The plugin contract. A plugin imports this module and nothing else of `kiwi_gw`.

A source in 30 lines:

    from kiwi_gw.api import Batch, Field, Kind, Out, Positions, Section, Shape, SourceType, hookimpl

    class TickSettings(Section):
        type: Literal["tick"]
        id: str

    SHAPE = Shape((Field("sourceId", Kind.SOURCE_ID), Field("tick", Kind.INT)))

    class Ticks:
        async def run(self, out: Out, start: Positions | None) -> None:
            tick = start[0] if start else 0
            await out.ready({0: tick})
            while True:
                await trio.sleep(1)
                await out.publish(Batch({0: tick}, [0], [tick], {"tick": [tick]}, cost=8))
                tick += 1

    @hookimpl
    def source_types():
        return [SourceType("tick", TickSettings, lambda settings, context: Ticks(), SHAPE)]

`kiwi_gw.testing.check_source()` checks a source against this contract.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import pluggy
from pydantic import BaseModel, ConfigDict

from kiwi_gw.errors import (
    KiwiError,
    PluginError,
    ReadingOver,
    SourceChanged,
    SourceFailed,
    SubscribeRefused,
)
from kiwi_gw.model import (
    ANONYMOUS,
    AS_JSON,
    BY_PARTITION,
    Action,
    AtPositions,
    AtTime,
    Batch,
    Credential,
    Decode,
    Encoded,
    Extent,
    Field,
    Figure,
    Finding,
    Gap,
    Head,
    Identity,
    Interceptor,
    Kind,
    Lineage,
    Password,
    Permit,
    PositionCodec,
    Positions,
    Ranges,
    Record,
    Refusal,
    Shape,
    SourceInfo,
    SourceStatistics,
    Start,
    StartAt,
    Token,
    Traced,
    Unreadable,
    WireFormat,
)
from kiwi_gw.query.decode import mistake as decode_mistake
from kiwi_gw.units import Bytes, Milliseconds

__all__ = [
    "ANONYMOUS",
    "AS_JSON",
    "BY_PARTITION",
    "Action",
    "AtPositions",
    "AtTime",
    "Batch",
    "Bytes",
    "ConfigSection",
    "Credential",
    "Decode",
    "Encoded",
    "EventReader",
    "Extent",
    "Field",
    "Figure",
    "Figures",
    "Finding",
    "Gap",
    "Head",
    "History",
    "HistoryReader",
    "Identity",
    "Interceptor",
    "Kind",
    "KiwiError",
    "Lineage",
    "Measured",
    "Milliseconds",
    "Out",
    "Password",
    "Permit",
    "PluginContext",
    "PluginError",
    "Portion",
    "PositionCodec",
    "Positions",
    "Ranges",
    "ReadSource",
    "ReadingOver",
    "Record",
    "Refusal",
    "Section",
    "ServiceType",
    "Shape",
    "Source",
    "SourceChanged",
    "SourceContext",
    "SourceFailed",
    "SourceInfo",
    "SourceStatistics",
    "SourceType",
    "Start",
    "StartAt",
    "SubscribeRefused",
    "Token",
    "Traced",
    "Unreadable",
    "WireFormat",
    "decode_mistake",
    "hookimpl",
]

hookimpl = pluggy.HookimplMarker("kiwi_gw")


class Section(BaseModel):
    """Base of every part of the configuration: immutable, and an unknown key is an error.

    The docstring below a field is its description in the JSON Schema and in the table of keys.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True
    )


class Out(Protocol):
    """Where a source puts its events. Given to `Source.run`, valid until that returns."""

    async def ready(self, positions: Positions) -> None:
        """The source works, and the next event of every partition is the one at `positions`.

        Until the first call SUBSCRIBE waits (up to `subscribe_timeout_ms`, or `SourceType.start_ms` where
        that is not set). Call it once per run, before the first `publish`.
        """

    async def publish(self, batch: Batch) -> None:
        """Hand over events, in order, one batch after the other. Returns when the gateway has taken them and
        may have more.

        A batch must begin where the last one ended or later (a hole is legal, a repetition is a
        `ValueError`); an empty batch with a `gap` announces a loss.
        """

    async def wait_subscribed(self) -> None:
        """Returns as soon as the source has a subscription (at once if it has one)."""

    def describe(self, members: str) -> None:
        """Say what the values of the events from now on are made of, in DDL (`carrier STRING, n BIGINT`;
        empty: anything). A subscription that is opened from now on and whose query names other members is
        refused. Values stay as they are, whatever the types say. ValueError: it is no such schema.
        """

    def trouble(self, message: str) -> None:
        """Say what keeps the source from its origin for now (`the Kafka cluster does not answer`), or with
        an empty message that nothing does any more. Subscribers are told; it must name nothing secret."""


@runtime_checkable
class Source(Protocol):
    """One named stream of events, made by `SourceType.build`. Making it does no I/O."""

    async def run(self, out: Out, start: Positions | None) -> None:
        """Read events and publish them, on Trio.

        start: None, begin at the source's own idea of now; else the first events not yet taken, which
        must come next (after a restart).

        Returning means that the source is finite and over. `SourceFailed`: it can never work.
        `SourceChanged`: what it is has changed. Anything else that is raised: it is built and called
        again, after a pause that grows, with `start` behind the last batch that was taken.
        Cancellation may come at any checkpoint.
        """


@runtime_checkable
class Measured(Protocol):
    """What a source can also do if it can see how far it is behind its origin: it feeds `source_lag_records`
    and `source_stalled_seconds`."""

    def statistics(self) -> SourceStatistics:
        """Asked about once a second while `Source.run` runs. Answers at once from what is known: no I/O."""


class Figures(Protocol):
    """Where a source counts what its type has declared in `SourceType.figures`. KeyError for other names.

    What is added and observed is kept over restarts of the source; a gauge is gone with it.
    """

    def set(self, name: str, value: float) -> None:
        """A gauge is this now."""

    def add(self, name: str, amount: float = 1) -> None:
        """A counter has grown."""

    def observe(self, name: str, value: float) -> None:
        """One value more for a histogram."""


class _Uncounted:
    def set(self, name: str, value: float) -> None: ...

    def add(self, name: str, amount: float = 1) -> None: ...

    def observe(self, name: str, value: float) -> None: ...


class HistoryReader(Protocol):
    """Reads a source again, from a position on. Used by one task at a time."""

    async def read(self, until: Positions) -> Batch:
        """The next events whose offsets are below `until`, at most about a megabyte of them.

        `starts` of what is returned are the reader's positions before it; they move from batch to batch
        over holes too (compaction, markers of transactions), so a batch may be empty. Where a partition
        has reached `until`, or began beyond it, nothing of it is read. The reader is there as soon as the
        position, not the last event, of every partition has reached `until`; then an empty batch with
        these `starts` is returned at once. `until` never moves back, and names events that exist or
        existed. What the source no longer has, below `until`, is announced by a `gap`, with its ranges.

        Waits while the source is out of reach. Cancelled, it has read nothing: the same events come again.
        """


@runtime_checkable
class History(Protocol):
    """What a source can also do if its events can be read again. One whose type is `replayable` must be this.

    Asked while `Source.run` is running, from other tasks, and after a finite one has returned by itself,
    until everyone has read the rest. Calls wait while the origin is out of reach. One that raises is tried
    again after a pause, but `SourceChanged` and `SourceFailed` mean the same as from `run`.
    """

    async def extent(self) -> Extent:
        """What there is now."""

    async def at(self, timestamp: int) -> Positions:
        """In every partition the first event at or after `timestamp` (ms), or where the next will be."""

    def read_from(self, positions: Positions) -> AbstractAsyncContextManager[HistoryReader]:
        """Read from `positions`, which name every partition."""


@dataclass(frozen=True, slots=True)
class Portion:
    """What was read of another source at once.

    data: the events, written one behind the other by the `WireFormat` that was asked for. events: how many.
    positions: where the next one is. lost: what the reader was not given and never will be, just before
    `data`; its ranges are exact, its `count` is None where nobody can know how many events they held.
    """

    data: bytes
    events: int
    positions: Positions
    lost: Gap | None = None


class EventReader(Protocol):
    """Reads another source of the same gateway, at the pace of its owner. Used by one task at a time."""

    @property
    def info(self) -> SourceInfo:
        """Of the source that is read."""

    @property
    def epoch(self) -> str:
        """Names the life of the source: another one after the gateway was restarted, or the source altered.
        The positions of a source that is not replayable mean something within one epoch only."""

    @property
    def positions(self) -> Positions:
        """Where the next event is."""

    @property
    def end(self) -> Positions:
        """Where the next event of the source will be. Who has reached it has had everything there is."""

    async def read(self, events: int) -> Portion:
        """The next events, at least one and at most `events` (> 0) of them: that is the credit it gives.
        None, if only a loss is to be told.

        Waits until there is something. Cancelled, it has read nothing. ReadingOver: there is no more. Where
        an event does not fit the bytes of one portion (about a megabyte), it goes alone.
        """


class ReadSource(Protocol):
    """How to read another source of the same gateway: see `SourceContext.read`."""

    def __call__(
        self,
        source_id: str,
        form: Callable[[SourceInfo], WireFormat],
        start: Start = StartAt.LATEST,
        until: object = None,
    ) -> AbstractAsyncContextManager[EventReader]:
        """Read it while the block runs. The source is asked for nothing before `EventReader.read` is called.

        form: how its events are to be written; equal keys share the bytes with whoever else reads them.
        start: where to begin; `positions` in the JSON form of the source's codec (`SourceInfo.codec`).
        until: where to end, in that form: when every partition that it names is there, `read` raises
        ReadingOver with the reason `until`.

        Waits while the source is starting. SubscribeRefused: it cannot be read from there; `code` is
        `unknown_source`, `positions` (`start` or `until` is gone, not there yet, or of another history),
        `start` (it has no past), `ended`, `removed` or `failed`, among others.
        """


def _no_sources(
    source_id: str,
    form: Callable[[SourceInfo], WireFormat],
    start: Start = StartAt.LATEST,
    until: object = None,
) -> AbstractAsyncContextManager[EventReader]:
    raise SubscribeRefused("unknown_source", "there are no other sources here")


@dataclass(frozen=True, slots=True)
class PluginContext:
    """What a plugin is told about the world.

    sections: the validated configuration sections that plugins declared. sources: the settings of all
    sources by id, in the order of the file. worker, workers: which of how many processes that all run this
    configuration it is, from 0 (`kiwi-gw check` asks as the first of as many as there would be).
    replayable: ids of the sources that can be read again.
    """

    sections: Mapping[str, Section] = field(repr=False)
    gateway_name: str = "kiwi-gw"
    sources: Mapping[str, Section] = field(default_factory=dict, repr=False)
    worker: int = 0
    workers: int = 1
    replayable: frozenset[str] = frozenset()

    def section(self, name: str) -> Section:
        """The section of that name, with its defaults if the file has none. KeyError if none is declared."""
        return self.sections[name]


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source is built with: its id, the sections, and the services that its type asked for.

    read: how to read another source of the same gateway, in pull mode, through a subscription like those of
    clients. Authorisation and interceptors do not apply: which source reads which is what the operator has
    written into the configuration. It works for as long as the gateway runs.
    altered: whether it takes the place of another source that had its id in this gateway, by a reload.
    figures: where it counts what only it can count.
    """

    source_id: str
    plugins: PluginContext = field(repr=False)
    services: Mapping[str, object] = field(repr=False)
    read: ReadSource = field(default=_no_sources, repr=False)
    altered: bool = False
    figures: Figures = field(default_factory=_Uncounted, repr=False)


@dataclass(frozen=True, slots=True)
class SourceType:
    """One value of `type` in the `sources` of the configuration.

    What can be a function of the settings is one where sources of this type differ in it; it must be pure.

    settings: the keys of such a source. It must have `type: Literal[name]`; `id` and `subscriber` are
        added by the gateway where the model does not declare them.
    build: makes a source, anew for every run; no I/O.
    shape: what its events look like on the wire, known before it is built.
    services: names of the services that it needs, opened before `build`.
    sections: names of the configuration sections that it reads: if one changes, its sources restart.
    source_id: the id of a source whose settings have none (`id` is then optional in the file).
    codec: how its positions are written for clients.
    replayable: whether its sources can be read again from positions: each is then a `History`, too.
    depends: ids of the other sources whose settings it reads (`PluginContext.sources`). They must exist and
        not depend on it in turn, in whatever order the file has them; if one is altered, it restarts.
    start_ms: how long its sources may take until they are ready: as long a SUBSCRIBE waits for one that is
        starting, unless `subscriber.subscribe_timeout_ms` says otherwise.
    figures: metrics that its sources have beside those of every source (`SourceContext.figures`).
    decode: what queries make of the columns `key` and `value` of its events.
    vet: asked at a reload, before it replaces a source that works: whether one with these settings can. Its
        findings of level `error` refuse the reload, and so does an error that it raises, or no answer within
        `start_ms`. It has the services of the new source.
    """

    name: str
    settings: type[Section]
    build: Callable[[Section, SourceContext], Source]
    shape: Shape | Callable[[Section], Shape]
    services: Sequence[str] | Callable[[Section], Sequence[str]] = ()
    sections: Sequence[str] | Callable[[Section], Sequence[str]] = ()
    source_id: Callable[[Section], str] | None = None
    codec: PositionCodec | Callable[[Section], PositionCodec] = BY_PARTITION
    replayable: bool | Callable[[Section], bool] = False
    depends: Callable[[Section], Sequence[str]] | None = None
    start_ms: int = 5_000
    figures: Sequence[Figure] = ()
    decode: Decode | Callable[[Section], Decode] = AS_JSON
    vet: Callable[[Section, SourceContext], Awaitable[Sequence[Finding]]] | None = None

    def shape_of(self, settings: Section) -> Shape:
        """The shape of a source with these settings."""
        return self.shape(settings) if callable(self.shape) else self.shape

    def services_of(self, settings: Section) -> tuple[str, ...]:
        """The services that a source with these settings needs."""
        return tuple(self.services(settings) if callable(self.services) else self.services)

    def sections_of(self, settings: Section) -> tuple[str, ...]:
        """The sections that a source with these settings reads."""
        return tuple(self.sections(settings) if callable(self.sections) else self.sections)

    def codec_of(self, settings: Section) -> PositionCodec:
        """How the positions of a source with these settings are written."""
        return self.codec(settings) if callable(self.codec) else self.codec

    def replayable_of(self, settings: Section) -> bool:
        """Whether a source with these settings can be read again."""
        return self.replayable(settings) if callable(self.replayable) else self.replayable

    def decode_of(self, settings: Section) -> Decode:
        """What queries make of the events of a source with these settings."""
        return self.decode(settings) if callable(self.decode) else self.decode

    def depends_of(self, settings: Section) -> tuple[str, ...]:
        """The ids of the sources that one with these settings depends on."""
        return tuple(self.depends(settings)) if self.depends is not None else ()


@dataclass(frozen=True, slots=True)
class ServiceType:
    """Something that sources share (a connection pool, a process), opened when first needed and closed
    after the last source that uses it. `open` returns an async context manager whose value the sources
    find in `SourceContext.services`. It is entered and left in the same task."""

    name: str
    open: Callable[[PluginContext], AbstractAsyncContextManager[object]]
    sections: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigSection:
    """A top-level key of the configuration that a plugin declares. `settings` must have defaults for all
    its keys unless `required`."""

    name: str
    settings: type[Section]
    required: bool = False
