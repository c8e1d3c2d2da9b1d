"""What a plugin declares to the gateway, and what the gateway gives it to work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Generic

from typing_extensions import TypeVar

from kiwi_gw.api.settings import Section
from kiwi_gw.api.source import Source, SourceMetrics
from kiwi_gw.model import (
    AS_JSON,
    BY_PARTITION,
    Decode,
    Diagnostic,
    EventSchema,
    MetricSpec,
    PositionCodec,
)


@dataclass(frozen=True, slots=True)
class PluginContext:
    """Describe the gateway to a plugin that works in it.

    sections: the validated configuration sections that plugins and protocols declared. sources: the settings
    of all sources by id, in the order of the file. blocks: what each says to protocols, by source and
    protocol. worker, workers: which of how many processes that all run this configuration it is, from 0
    (`kiwi-gw check` asks as the first of as many as there would be). written: names of the sections that the
    file has. columns: those that protocols write where sources have them, of those that sources leave out
    unless somebody wants them. groups: what the names of the groups begin with in which protocols have
    members of a source, by its id.
    """

    sections: Mapping[str, Section] = field(repr=False)
    gateway_name: str = "kiwi-gw"
    sources: Mapping[str, Section] = field(default_factory=dict, repr=False)
    worker: int = 0
    workers: int = 1
    blocks: Mapping[str, Mapping[str, Section]] = field(default_factory=dict, repr=False)
    written: frozenset[str] = frozenset()
    columns: frozenset[str] = frozenset()
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)

    def section(self, name: str) -> Section:
        """Return the section of that name, with its defaults if the file has none. KeyError: not declared."""
        return self.sections[name]


class _Uncounted:
    def set(self, name: str, value: float) -> None: ...

    def add(self, name: str, amount: float = 1) -> None: ...

    def observe(self, name: str, value: float) -> None: ...


@dataclass(frozen=True, slots=True)
class SourceContext:
    """Hold what a source is built with: its id, the sections, and the services that its type asked for.

    altered: whether it takes the place of another source that had its id in this gateway, by a reload.
    metrics: where it counts what only it can count.
    """

    source_id: str
    plugins: PluginContext = field(repr=False)
    services: Mapping[str, object] = field(repr=False)
    altered: bool = False
    metrics: SourceMetrics = field(default_factory=_Uncounted, repr=False)


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """Describe a source to the gateway before it is built.

    schema: what its events look like on the wire.
    id: what it is called if its settings have no `id` (which is then optional in the file).
    services: names of the services that it needs, opened before `SourceType.build`.
    sections: names of the configuration sections that it reads: if one changes, it restarts.
    codec: how its positions are written for clients.
    replayable: whether it can be read again from positions: it is then a `History`, too.
    depends: ids of the other sources whose settings it reads (`PluginContext.sources`). They must exist and
        not depend on it in turn, in whatever order the file has them; if one is altered, it restarts.
    decode: what queries make of the columns `key` and `value` of its events.
    publish, commit: whether its settings let clients write to it, and (where no plugin authenticates them)
        commit positions.
    keeps_commits: whether it is a `Committer`, too.
    """

    schema: EventSchema
    id: str | None = None
    services: Sequence[str] = ()
    sections: Sequence[str] = ()
    codec: PositionCodec = BY_PARTITION
    replayable: bool = False
    depends: Sequence[str] = ()
    decode: Decode = AS_JSON
    publish: bool = False
    commit: bool = False
    keeps_commits: bool = False


S = TypeVar("S", bound=Section, default=Any)
"""The settings of a source."""


@dataclass(frozen=True, slots=True)
class SourceType(Generic[S]):
    """Declare one value of `type` in the `sources` of the configuration.

    settings: the keys of such a source. It must have `type: Literal[name]`; `id` and `subscriber` are
        added by the gateway where the model does not declare them.
    build: makes a source, anew for every run; no I/O.
    common: what is the same for all its sources; a schema alone where the rest is as usual.
    describe: what one source is, where sources of this type differ; it must be pure.
    validate: what is wrong with a source beside the others, whose settings it gets by id (of those that have
        no mistakes): by the path below the source, in words that are shown at file:line. A file with such a
        mistake is not used. It must be pure.
    start_ms: how long its sources may take until they are ready. A SUBSCRIBE waits so long for one that
        is starting, unless `subscriber.subscribe_timeout_ms` says otherwise.
    metrics: those that its sources have beside those of every source (`SourceContext.metrics`).
    vet: asked at a reload, before it replaces a source that works: whether one with these settings can. Its
        findings of level `error` refuse the reload, and so does an error that it raises, or no answer within
        `start_ms`. It has the services of the new source.
    """

    name: str
    settings: type[S]
    build: Callable[[S, SourceContext], Source]
    common: SourceDescription | EventSchema
    describe: Callable[[S], SourceDescription] | None = None
    validate: Callable[[S, Mapping[str, Section]], Mapping[tuple[str, ...], str]] | None = None
    start_ms: int = 5_000
    metrics: Sequence[MetricSpec] = ()
    vet: Callable[[S, SourceContext], Awaitable[Sequence[Diagnostic]]] | None = None

    @property
    def common_description(self) -> SourceDescription:
        """Return what is the same for all its sources."""
        return self.common if isinstance(self.common, SourceDescription) else SourceDescription(self.common)

    def description_of(self, settings: S) -> SourceDescription:
        """Say what a source with these settings is."""
        return self.common_description if self.describe is None else self.describe(settings)


@dataclass(frozen=True, slots=True)
class ServiceType:
    """Declare what sources share (a connection pool, a process): opened when first needed, closed after the
    last source that uses it. `open` returns an async context manager, whose value the sources find in
    `SourceContext.services`. It is entered and left in the same task."""

    name: str
    open: Callable[[PluginContext], AbstractAsyncContextManager[object]]
    sections: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigSection:
    """Declare a top-level key of the configuration. `settings` needs defaults for all keys unless
    `required`."""

    name: str
    settings: type[Section]
    required: bool = False
