"""One source as the protocol sees it: the topics of its events, and their timestamps and data as JSON.

Whatever is made of a batch is made once and kept with its `DecodedBatch`, for all clients and their topics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec import Raw

from kiwi_gw.dialects.encoder import UNENCODABLE
from kiwi_gw.dialects.zetta.topic_filters import TopicFilter
from kiwi_gw.dialects.zetta.topic_naming import TopicNaming, at
from kiwi_gw.dialects.zetta.topic_templates import field_path, template
from kiwi_gw.dialects.zetta.topics import TopicPattern
from kiwi_gw.model import Batch, SourceInfo, Steps, TimeSlice
from kiwi_gw.query.decoded_batch import DecodedBatch, decoded
from kiwi_gw.query.values import MISSING, UNDECODABLE

if TYPE_CHECKING:
    from kiwi_gw.query.compiler import CompiledQuery

EventBody = bytes | None
"""`1442944840135,"data":{...}}`, the end of an event's frame; None: it has none."""

_DEVICE_LEVELS: Final = 3

_encode = msgspec.json.Encoder().encode
_check_json = msgspec.json.Decoder(Raw).decode


@dataclass(frozen=True, slots=True)
class EventBodies:
    """Hold the line of every event. bad: indexes of those that have none because of an error."""

    lines: Sequence[EventBody]
    bad: Sequence[int]


class TopicStream:
    """Describe the events of one source. server: the first level of its topic if it names none. wall: ms
    since the epoch, for events that do not say when they were produced."""

    def __init__(self, info: SourceInfo, server: str, wall: Callable[[], int]) -> None:
        block: Any = info.blocks.get("zetta")
        topic = getattr(block, "topic", None) or _usual(server, info)
        self.naming: Final = TopicNaming(topic)
        self._info = info
        self._wall = wall
        self._data: str | None = getattr(block, "data", None)
        self._described = {name: path for name in ("name", "state") if (path := getattr(block, name, None))}
        # JSON that is passed on whole need not be decoded.
        self._as_it_is = self._data is None and info.decode.value == "json"
        self._named = {where.root for where in template(topic).paths}
        self._telling = {field_path(path).root for path in self._described.values()}
        self._root = "value" if self._data is None else field_path(self._data).root

    def may_match(self, pattern: TopicPattern) -> bool:
        """Return whether some event may have a topic that the pattern means."""
        return self.naming.may_match(pattern)

    def selects(self, pattern: TopicPattern) -> bool:
        """Return whether a pattern that may match leaves events out. If not, it does not change the bytes."""
        return not self.naming.must_match(pattern)

    @property
    def has_devices(self) -> bool:
        static = self.naming.static
        return static is None or static.count("/") + 1 >= _DEVICE_LEVELS

    def view(self, batch: Batch) -> DecodedBatch:
        return decoded(batch, self._info.decode)

    def named(self, seen: DecodedBatch, turn: TimeSlice) -> Steps[None]:
        """Decode, in turns, what `topics` reads at once."""
        return seen.decoded(self._named, turn)

    def decoded(self, seen: DecodedBatch, turn: TimeSlice, *, queried: bool) -> Steps[None]:
        """Decode, in turns, what `lines` reads at once as well. queried: queries read it, too."""
        roots = {self._root} if queried or not self._as_it_is else set()
        return seen.decoded(roots | self._named, turn)

    # --- of a batch, once -------------------------------------------------------------------

    def topics(self, seen: DecodedBatch) -> str | Sequence[str | None]:
        """Return the topic of all events, or of each: None for one that has none."""
        static = self.naming.static
        if static is not None:
            return static
        return seen.memo(("zetta topics", self), lambda: self.naming.topics(seen))

    def lines(self, seen: DecodedBatch) -> EventBodies:
        """Return the data as they are."""
        return seen.memo(("zetta lines", self), lambda: self._lines(seen))

    def queried(self, seen: DecodedBatch, wanted: TopicFilter, turn: TimeSlice) -> Steps[EventBodies]:
        """Return what the query of a subscription leaves of them, whether its pattern matches or not; in
        turns."""
        weigh = _projected_bytes if wanted.projects else _kept_bytes
        key = "zetta query", self, wanted.key
        return seen.query_result(key, lambda: self._queried(seen, wanted, turn), weigh)

    def mistakes(self, made: Iterable[EventBodies]) -> tuple[int, tuple[int, ...]]:
        """Return how many events are without data or could not be evaluated, the largest number of one query;
        or, where the source says so, those that end whoever comes to them."""
        bad = [item.bad for item in made if item.bad]
        if self._info.decode.close:
            return 0, tuple(sorted(set[int]().union(*bad)))
        return max(map(len, bad), default=0), ()

    def described(
        self, seen: DecodedBatch, devices: Mapping[int, tuple[str, ...]], wanted: TopicFilter, turn: TimeSlice
    ) -> Steps[tuple[dict[int, bytes], int]]:
        """Make, in turns, the lines of those events that tell of a device which passes the query. Returns
        them, and how many events were bad."""
        if not devices:
            return {}, 0
        yield from seen.decoded(self._telling, turn)
        found: list[dict[str, object]] = []
        more = [(name, at(seen, path)) for name, path in self._described.items()]
        for index, (_, kind, name) in devices.items():
            device: dict[str, object] = {"id": name, "type": kind}
            for member, values in more:
                if (value := values[index]) is not MISSING and value is not UNDECODABLE and value is not None:
                    device[member] = value
            found.append(device)
            if turn.over:
                yield
        kept, bad = list(range(len(found))), 0
        if wanted.query is None:
            texts = [_encode(device) for device in found]
        else:
            columns = _device_columns(wanted.query, found)
            kept, failed = yield from wanted.query.filter_steps(columns, len(found), turn)
            bad = len(failed)
            if wanted.projects:
                texts = yield from wanted.query.project_steps(columns, kept, turn, seen.batch.cost)
            else:
                texts = [_encode(found[index]) for index in kept]
        indexes = list(devices)
        times = self.timestamps(seen)
        made = {
            indexes[i]: b'%d,"data":%b}' % (times[indexes[i]], text)
            for i, text in zip(kept, texts, strict=True)
            if text
        }
        return made, bad + texts.count(b"")

    def timestamps(self, seen: DecodedBatch) -> Sequence[int]:
        """Return when each was produced, in ms since the epoch; if unknown, when it was looked at."""
        return seen.memo(("zetta timestamps", self), lambda: self._timestamps(seen))

    # --- inside ----------------------------------------------------------------------------

    def _timestamps(self, seen: DecodedBatch) -> Sequence[int]:
        column = seen.batch.columns.get("timestamp")
        if column is None:
            return [self._wall()] * len(seen.batch)
        times = cast(Sequence[int], column)
        if times and min(times) >= 0:
            return times
        now = self._wall()
        return [now if time < 0 else time for time in times]

    def _values(self, seen: DecodedBatch) -> Sequence[object]:
        """Return the data, decoded; MISSING where an event has none, UNDECODABLE where that is unknown."""
        path = self._data
        if path is None:
            return seen.column("value")
        return seen.memo(("zetta data", self), lambda: at(seen, path))

    def _lines(self, seen: DecodedBatch) -> EventBodies:
        times = self.timestamps(seen)
        values: Sequence[object]
        if self._as_it_is and (raw := seen.batch.columns.get("value")) is not None:
            values, write = raw, _json
        else:
            values, write = self._values(seen), _encoded
        found = [write(time, value) for time, value in zip(times, values, strict=True)]
        topics = self.topics(seen)
        if not isinstance(topics, str) and None in topics:
            # What is on no topic has no line either, and so it is counted once.
            found = [None if topic is None else item for topic, item in zip(topics, found, strict=True)]
        return EventBodies(found, [index for index, line in enumerate(found) if line is None])

    def _queried(self, seen: DecodedBatch, wanted: TopicFilter, turn: TimeSlice) -> Steps[EventBodies]:
        query, length = wanted.query, len(seen.batch)
        if query is None:
            return self.lines(seen)
        topics = self.topics(seen)
        columns: dict[str, Sequence[object]] = {}
        for root in query.roots:
            if root == "data":
                columns[root] = self._values(seen)
            elif root == "timestamp":
                columns[root] = self.timestamps(seen)
            else:
                columns[root] = [topics] * length if isinstance(topics, str) else topics
        kept, bad = yield from query.filter_steps(columns, length, turn)
        lines: list[EventBody] = [None] * length
        if wanted.projects:
            times = self.timestamps(seen)
            texts = yield from query.project_steps(columns, kept, turn, seen.batch.cost)
            bad = bad + [index for index, text in zip(kept, texts, strict=True) if not text]
            for index, text in zip(kept, texts, strict=True):
                if text:
                    lines[index] = b'%d,"data":%b}' % (times[index], text)
        else:
            plain = self.lines(seen).lines
            for index in kept:
                lines[index] = plain[index]
        return EventBodies(lines, bad)


def same_topics(one: SourceInfo, other: SourceInfo) -> bool:
    """Return whether the streams of two sources are equal: streams depend on nothing else of them."""
    return _read_of(one) == _read_of(other)


def _read_of(info: SourceInfo) -> tuple[object, ...]:
    return info.id, info.type, info.blocks.get("zetta"), info.decode


def _usual(server: str, info: SourceInfo) -> str:
    """Return the topic of a source that names none: an id is any text, and a topic has no empty level."""
    bare = re.sub(r"[{}\0]", "", f"{server}/{info.type}/{info.id}/events")
    return "/".join(level for level in bare.split("/") if level)


def _json(time: int, value: Any) -> EventBody:
    """Check JSON text and make its line: one broken event must not break the connections that get it."""
    if value is None:
        return b'%d,"data":null}' % time
    try:
        _check_json(value)
        if not value.isascii():
            str(value, "utf-8")
    except (TypeError, AttributeError, RecursionError, ValueError):
        return None
    return b'%d,"data":%b}' % (time, value)


def _encoded(time: int, value: object) -> EventBody:
    if value is UNDECODABLE or value is MISSING:
        return None
    try:
        return b'%d,"data":%b}' % (time, _encode(value))
    except UNENCODABLE:
        return None


def _kept_bytes(made: EventBodies) -> int:
    return 8 * len(made.lines)


def _projected_bytes(made: EventBodies) -> int:
    return sum(40 + len(line) for line in made.lines if line is not None) + _kept_bytes(made)


def _device_columns(query: CompiledQuery, found: Sequence[dict[str, object]]) -> dict[str, Sequence[object]]:
    return {
        root: found if root == "device" else [device.get(root, MISSING) for device in found]
        for root in query.roots
    }
