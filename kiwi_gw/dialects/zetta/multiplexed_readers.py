"""The sources that are read for a client of this protocol, and the subscriptions that each serves.

There is one core subscription (a *reader* here) per source that a topic may match, for all topics of the
connection; its wire format writes the events of every topic that matches, in the order of their ids. When
topics come or go, the readers that are concerned are reconfigured, opened or cancelled. A query for devices
has readers of its own, which begin with the newest event of every key where a source keeps those.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from kiwi_gw.core.commands import Cancel, Command, LabelLimit, Open, Reconfigure
from kiwi_gw.dialects.zetta.devices import devices_wire
from kiwi_gw.dialects.zetta.events import events_wire
from kiwi_gw.dialects.zetta.step_queue import CommandSteps
from kiwi_gw.dialects.zetta.topic_streams import TopicStream
from kiwi_gw.dialects.zetta.topic_subscription import TopicSubscription
from kiwi_gw.model import SourceInfo, StartAt, WireFormat

LOOKED_AT: Final = 8
"""Sources that are looked at in one step, for a pattern without regular expressions."""


@dataclass(slots=True)
class MultiplexedReader:
    """Hold one core subscription. members: the topic subscriptions that it serves, in the order of their ids;
    before: those that it served until it was last reconfigured. snapshot: it begins with the newest event of
    every key."""

    handle: int
    info: SourceInfo
    stream: TopicStream
    members: dict[int, TopicSubscription] = field(default_factory=dict)
    before: dict[int, TopicSubscription] = field(default_factory=dict)
    snapshot: bool = False


class MultiplexedReaders:
    """Hold the readers of one connection. subscriptions: by id, kept by the session. stream: the topics of a
    source. multiple: one event for all topics without a query (`filterMultiple`)."""

    def __init__(
        self,
        subscriptions: Mapping[int, TopicSubscription],
        stream: Callable[[SourceInfo], TopicStream],
        *,
        multiple: bool,
        max_event_bytes: int,
    ) -> None:
        self._subscriptions = subscriptions
        self._stream = stream
        self._multiple = multiple
        self._max_event_bytes = max_event_bytes
        self._handles = count(1)
        self._sources: dict[str, SourceInfo] = {}
        self._readers: dict[Hashable, MultiplexedReader] = {}
        self._joined: dict[str, MultiplexedReader] = {}  # by source: the one that serves its topics

    def get(self, handle: int) -> MultiplexedReader | None:
        """Return the reader with this handle, if it was not given up."""
        return self._readers.get(handle)

    def serving(self, number: int) -> list[MultiplexedReader]:
        """Return the readers that serve a subscription."""
        return [reader for reader in self._readers.values() if number in reader.members]

    def source(self, source_id: str) -> SourceInfo | None:
        return self._sources.get(source_id)

    def appeared(self, info: SourceInfo) -> Iterator[Command]:
        """Read a new source, also in place of an ended one of this id, whose rest is still sent."""
        self._sources[info.id] = info
        self._joined.pop(info.id, None)
        yield from self.read(info)

    def read(self, info: SourceInfo) -> Iterator[Command]:
        """Read a source for all subscriptions that want something of it."""
        yield from self._join(info)
        for item in [item for item in self._subscriptions.values() if item.topic_filter.devices]:
            yield from self.look_for_devices(item, info)

    def refresh(self, new: TopicSubscription) -> CommandSteps:
        """Read the sources that a new subscription may want."""
        every = 1 if new.topic_filter.pattern.patterns else LOOKED_AT
        for seen, info in enumerate(list(self._sources.values())):
            if new.number not in self._subscriptions:
                return
            if self._sources.get(info.id) is not info:
                continue  # it was read when it came in the place of this one
            if new.topic_filter.devices:
                yield from self.look_for_devices(new, info)
            elif self._stream(info).may_match(new.topic_filter.pattern):
                yield from self._join(info, new)
            if seen % every == 0:
                yield None

    def _join(self, info: SourceInfo, new: TopicSubscription | None = None) -> Iterator[Command]:
        """Have a source read for all that want it. new: the only new one among those."""
        reader = self._joined.get(info.id)
        members = {} if reader is None else dict(reader.members)
        if reader is not None and new is not None:
            members[new.number] = new
        else:
            may_match = self._stream(info).may_match
            for number, item in self._subscriptions.items():
                if not item.topic_filter.devices and may_match(item.topic_filter.pattern):
                    members[number] = item
        if reader is not None:
            yield from self._reconfigure(reader, members)
        elif members:
            reader = MultiplexedReader(next(self._handles), info, self._stream(info), members)
            self._joined[info.id] = self._readers[reader.handle] = reader
            yield Open(reader.handle, info.id, self._form(reader), limits=_limits(reader))

    def _reconfigure(
        self, reader: MultiplexedReader, members: dict[int, TopicSubscription]
    ) -> Iterator[Command]:
        """Have a reader serve others, or go on as before."""
        if members.keys() != reader.members.keys() and reader.handle in self._readers:
            fewer = members.keys() < reader.members.keys()
            served = dict(sorted(members.items()))
            reader.members, reader.before = served, reader.members
            yield Reconfigure(reader.handle, self._form(reader), _limits(reader), fewer)
            reader.before = {}
            if reader.members is served:
                for item in served.values():
                    item.over.discard(reader.info.id)

    def leave(self, reader: MultiplexedReader) -> Iterator[Command]:
        """Have a reader serve those of its members that are still there."""
        members = {n: item for n, item in reader.members.items() if n in self._subscriptions}
        if members:
            yield from self._reconfigure(reader, members)
        elif reader.handle in self._readers:
            self.forget(reader)
            yield Cancel(reader.handle)

    def look_for_devices(
        self, item: TopicSubscription, info: SourceInfo, start: StartAt = StartAt.SNAPSHOT
    ) -> Iterator[Command]:
        """Open a reader of its own for a query for devices: it begins with what is there."""
        stream = self._stream(info)
        if item.number not in self._subscriptions or not stream.has_devices:
            return
        if any(item.number in r.members and r.info is info for r in self._readers.values()):
            return
        reader = MultiplexedReader(next(self._handles), info, stream, {item.number: item})
        reader.snapshot = start is StartAt.SNAPSHOT
        self._readers[reader.handle] = reader
        yield Open(reader.handle, info.id, self._form(reader), limits=_limits(reader), start=start)

    def _form(self, reader: MultiplexedReader) -> Callable[[SourceInfo], WireFormat]:
        members = list(reader.members.values())
        alone = members[0].devices if len(members) == 1 else None
        if alone is not None:
            return lambda info: devices_wire(alone, reader.stream, reader.handle, self._max_event_bytes)
        readers = tuple(item.member for item in members)
        return lambda info: events_wire(
            reader.stream, readers, multiple=self._multiple, max_event_bytes=self._max_event_bytes
        )

    def forget(self, reader: MultiplexedReader) -> None:
        self._readers.pop(reader.handle, None)
        if self._joined.get(reader.info.id) is reader:
            del self._joined[reader.info.id]


def _limits(reader: MultiplexedReader) -> Mapping[Hashable, LabelLimit]:
    return {n: item.limit for n, item in reader.members.items() if item.limit is not None}
