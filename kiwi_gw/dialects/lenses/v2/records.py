"""The records of a statement: a frame RECORD for each that passes, BADRECORD for each that cannot be read
(document 001, Record and Bad Record).

Theory of operation. The query of a statement is not put before the format, as elsewhere, but evaluated in
it: an event that does not pass still counts for what was scanned, and one that cannot be decoded has a frame.
What is counted is counted by labels (`core.commands.LabelLimit`), so that an execution ends at exactly the
record that reaches a limit. `rownum` is the offset, and nothing in a frame is a client's own: all that
execute the same statement share its bytes.

What cannot be decoded is a bad record if the statement looks at it: in its condition or its columns, or, with
`*`, in a key or value that would be sent. So is one for which the statement cannot be evaluated.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, repeat
from typing import Any, Final
from uuid import UUID, uuid5

import msgspec
from msgspec import UNSET, Raw, Struct

from kiwi_gw.dialects.encoder import UNENCODABLE, separators
from kiwi_gw.dialects.lenses.queries import Applied
from kiwi_gw.dialects.lenses.v2.bad_frames import BadFrames
from kiwi_gw.dialects.lenses.v2.timestamps import milliseconds, texts_of
from kiwi_gw.model import Batch, Decode, Encoded, Steps, TimeSlice, WireFormat, at_once
from kiwi_gw.query.avro import schema_id
from kiwi_gw.query.decode import decoder
from kiwi_gw.query.decoded_batch import DecodedBatch, decoded
from kiwi_gw.query.filtered import PROJECTION
from kiwi_gw.query.values import UNDECODABLE

FIELDS: Final = ("offset", "partition", "timestamp", "__keysize", "__valuesize")
"""The members of the metadata of every record."""

_SCHEMA_IDS: Final = {"key": "keySchemaId", "value": "valueSchemaId"}
"""Those of one whose schemas are in a registry."""

RESULTS: Final = "results"
SCANNED: Final = "scanned"
BYTES: Final = "bytes"
BAD: Final = "bad"
"""What is counted: frames RECORD, events, bytes of their keys and values, those that cannot be decoded."""

_SOURCES: Final = UUID("5f0c0c2e-9a43-4a6b-8d1b-0f6a5a2f0c71")
_HEAD, _TAIL = b'{"type":"RECORD","data":', b"}"
_NULL: Final = Raw(b"null")
_UNREADABLE: Final = object()
"""Stands for a key or a value that cannot be decoded. It has no JSON."""

_encode = msgspec.json.Encoder().encode
_check_json = msgspec.json.Decoder(Raw).decode


def fields_of(decode: Decode) -> tuple[str, ...]:
    """Return the members of the metadata of records that are read so."""
    ids = (name for root, name in _SCHEMA_IDS.items() if _registered(decode, root))
    return (*FIELDS, *ids)


def _registered(decode: Decode, root: str) -> bool:
    return decode.registry and (decode.key if root == "key" else decode.value) == "avro"


def id_of(source_id: str) -> str:
    """Return what a source is called in answers."""
    return str(uuid5(_SOURCES, source_id))


class _Metadata(Struct, gc=False):
    offset: int
    partition: int
    timestamp: Any
    key_size: int = msgspec.field(name="__keysize")
    value_size: int = msgspec.field(name="__valuesize")
    key_schema: Any = msgspec.field(name="keySchemaId")
    value_schema: Any = msgspec.field(name="valueSchemaId")


class _RecordRow(Struct, gc=False):  # it lives for a microsecond
    key: Any
    value: Any
    metadata: _Metadata
    rownum: int


@dataclass(frozen=True, slots=True)
class RecordForm:
    """How records are written. table: what the client calls it. iso: timestamps as text. bad: whether bad
    records have frames."""

    table: str
    iso: bool = True
    bad: bool = True


def records_wire(form: RecordForm, projects: bool, applied: Applied, max_event_bytes: int) -> WireFormat:
    """Make the wire format of a statement. projects: it has columns. max_event_bytes: of a frame; a larger
    one is unsendable."""
    query = "" if applied.transform is None else applied.transform.key
    decode = applied.source.decode
    key = f"lenses sql {(form, projects, applied.source.id, decode, max_event_bytes)!r} {query}"
    frames = RecordFrames(form, projects, applied, max_event_bytes)
    chosen = applied.chosen or form != RecordForm(form.table) or applied.transform is not None
    return WireFormat(key, frames, steps=frames.steps, chosen=chosen)


class RecordFrames:
    """Make the frames of a batch. A frame that is too large yields nothing and is `unsendable`. A record
    that cannot be decoded is `failing`, if the source says so.
    """

    __slots__ = ("_applied", "_bad", "_form", "_looked_at", "_max_event_bytes", "_projects", "_separators")

    def __init__(self, form: RecordForm, projects: bool, applied: Applied, max_event_bytes: int) -> None:
        self._form = form
        self._projects = projects
        self._applied = applied
        self._max_event_bytes = max_event_bytes
        roots = () if applied.query is None else applied.query.roots
        self._looked_at = [root for root in ("key", "value") if root in roots]
        self._separators = separators(_HEAD, _TAIL)
        self._bad = id_of(applied.source.id)

    def __call__(self, batch: Batch) -> Encoded:
        return at_once(self.steps(batch, TimeSlice()))

    def steps(self, batch: Batch, turn: TimeSlice) -> Steps[Encoded]:
        """Make the same, in turns."""
        view = decoded(batch, self._applied.source.decode)
        kept: Sequence[int] = range(len(batch))
        columns = batch.columns
        bad: set[int] = set()
        failing: set[int] = set()
        if self._applied.transform is not None:
            assert self._applied.transform.steps is not None  # noqa: S101  it is a query's
            changed = yield from self._applied.transform.steps(batch, turn)
            bad.update(changed.bad)
            failing.update(changed.failing)
            kept = kept if changed.kept is None else changed.kept
            columns = changed.columns
        if self._projects:
            keys: Iterable[object] = repeat(UNSET, len(kept))
            values: Iterable[object] = map(Raw, columns[PROJECTION])  # type: ignore[arg-type]
        else:
            keys = yield from self._part(view, "key", kept, turn)
            values = yield from self._part(view, "value", kept, turn)
        yield from turn.pause()
        sizes = view.memo("lenses sizes", lambda: _sizes(batch))
        yield from turn.pause()
        found = _Frames(len(batch), self._separators, self._max_event_bytes)
        unread = yield from found.add(self._rows(batch, kept, keys, values), kept, turn)
        (failing if self._applied.source.decode.close else bad).update(unread)
        yield from turn.pause()
        shown = yield from found.encoded(sorted(bad), self._bad_frames(batch), turn, show=self._form.bad)
        labels = {**shown.prefix_counts_by_label, BYTES: sizes, SCANNED: _numbers(len(batch))}
        return replace(
            shown, prefix_counts_by_label=labels, decode_errors=len(bad), failing=tuple(sorted(failing))
        )

    def _part(
        self, view: DecodedBatch, root: str, kept: Sequence[int], turn: TimeSlice
    ) -> Steps[Iterable[object]]:
        """Return the keys or values of these events as what has a JSON text; `_UNREADABLE` for one that has
        none, UNSET for a key that is null."""
        yield from turn.pause()
        decode, columns = self._applied.source.decode, view.batch.columns
        if root == "key" and root not in columns:
            return repeat(UNSET, len(kept))
        form = decode.key if root == "key" else decode.value
        if form == "json" and root in columns:
            return _as_json(_picked(columns[root], kept), UNSET if root == "key" else None)
        alone = root not in self._looked_at and not _registered(decode, root)
        if alone and _are_few(columns.get(root), kept):
            found = decoder(form, decode.avro_schema)(_picked(columns[root], kept))
        else:
            yield from view.decoded((root,), turn)
            found = _picked(view.column(root), kept)
        return [_value(value, UNSET if root == "key" else None) for value in found]

    def _rows(
        self, batch: Batch, kept: Sequence[int], keys: Iterable[object], values: Iterable[object]
    ) -> Iterator[_RecordRow]:
        column: Any = batch.columns.get("timestamp")
        timestamps = [None] * len(kept) if column is None else _picked(column, kept)
        key_sizes, value_sizes = (_part_sizes(batch, name, kept) for name in ("key", "value"))
        offsets = _picked(batch.offsets, kept)
        metadata = map(
            _Metadata,
            offsets,
            _picked(batch.partitions, kept),
            texts_of(timestamps) if self._form.iso else map(milliseconds, timestamps),
            key_sizes,
            value_sizes,
            self._schemas(batch, "key", kept),
            self._schemas(batch, "value", kept),
        )
        return map(_RecordRow, keys, values, metadata, offsets)

    def _schemas(self, batch: Batch, root: str, kept: Sequence[int]) -> Iterable[object]:
        """Return the ids of the schemas of these events; UNSET where they are in no registry."""
        column: Any = batch.columns.get(root)
        if column is None or not _registered(self._applied.source.decode, root):
            return repeat(UNSET, len(kept))
        return [_schema_id(column[index]) for index in kept]

    def _bad_frames(self, batch: Batch) -> BadFrames:
        return BadFrames(batch, self._form.table, self._bad)


class _Frames:
    """Puts frames one behind the other, each at its place in a batch of so many events."""

    def __init__(self, length: int, before: Any, most: int) -> None:
        self._length = length
        self._separators = before
        self._most = most
        self._frames: dict[int, bytes] = {}
        self._unsendable: list[int] = []

    def add(self, rows: Iterator[_RecordRow], kept: Sequence[int], turn: TimeSlice) -> Steps[list[int]]:
        """Take the rows of these events. Returns those that have none, as they cannot be read."""
        unread: list[int] = []
        before, frames, most = self._separators, self._frames, self._most
        held = 0
        for index, row in zip(kept, rows, strict=True):
            try:
                line = _encode(row)
            except UNENCODABLE:
                unread.append(index)
                if not len(unread) & _FEW and turn.over:
                    yield
                continue
            frame = before[len(line)][len(_TAIL) :] + line + _TAIL
            if len(frame) > most:
                self._unsendable.append(index)
                continue
            frames[index] = frame
            held += len(frame)
            if (not len(frames) & _FEW or len(frame) > _LARGE) and turn.over:
                turn.held = held
                yield
        return unread

    def encoded(
        self, bad: Sequence[int], bad_frames: BadFrames, turn: TimeSlice, *, show: bool
    ) -> Steps[Encoded]:
        """Join them. bad: events that are bad records, which have frames if they are shown."""
        frames, length = self._frames, self._length
        results = _counts(frames, length)
        counts = results
        by_label: dict[Hashable, Sequence[int]] = {
            RESULTS: results,
            BAD: _counts(bad, length) if bad else _zeros(length),
        }
        if bad and show:
            for number, index in enumerate(bad):
                frames[index] = bad_frames[index]
                if not number & _FEW and turn.over:
                    yield
            frames = dict(sorted(frames.items()))
            counts = _counts(frames, length)
        ends = array("Q", bytes(8 * length))
        if frames:
            sizes = [0] * length
            for index, frame in frames.items():
                sizes[index] = len(frame)
            ends = array("Q", accumulate(sizes))
        return Encoded(b"".join(frames.values()), ends, counts, by_label, tuple(self._unsendable))


_AT_ONCE: Final = 64, 32 * 1024
"""So few events, and bytes of them, are decoded in one go and for themselves, not with all of their batch."""

_FEW: Final = 15
_LARGE: Final = 4_096
"""A bit mask, and bytes: the clock is looked at behind every 16 frames, and behind each that is larger."""


def _counts(places: Iterable[int], length: int) -> array[int]:
    """Count from the first event on how many of these there are before each, and behind the last."""
    there = bytearray(length)
    for index in places:
        there[index] = 1
    return array("Q", accumulate(there, initial=0))


@lru_cache(maxsize=16)
def _numbers(length: int) -> array[int]:
    return array("Q", range(length + 1))


@lru_cache(maxsize=16)
def _zeros(length: int) -> array[int]:
    return array("Q", bytes(8 * (length + 1)))


def _sizes(batch: Batch) -> array[int]:
    """Count the bytes of keys and values before each event, and behind the last."""
    everything = range(len(batch))
    keys, values = (_part_sizes(batch, name, everything) for name in ("key", "value"))
    return array("Q", accumulate(map(int.__add__, keys, values), initial=0))


def _part_sizes(batch: Batch, name: str, kept: Sequence[int]) -> Sequence[int]:
    column = batch.columns.get(name)
    if column is None:
        return [0] * len(kept)
    some: Any = _picked(column, kept)
    if set(map(type, some)) == {bytes}:
        return list(map(len, some))
    return [_size(value) for value in some]


def _size(value: object) -> int:
    """Return the bytes of a key or value, as queries see them (`_meta.__keysize`)."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    return len(value) if isinstance(value, bytes) else 0


def _picked(column: Sequence[Any], kept: Sequence[int]) -> Sequence[Any]:
    return column if len(kept) == len(column) else [column[index] for index in kept]


def _as_json(column: Sequence[object], null: object) -> Iterable[object]:
    """Return bytes that are JSON as they are."""
    try:
        found = list(map(_check_json, column))  # type: ignore[arg-type]
        if all(map(bytes.isascii, column)):  # type: ignore[arg-type]
            return [null if value == _NULL else value for value in found] if null is UNSET else found
    except (TypeError, ValueError, RecursionError):
        pass  # null, or something odd: look at each
    return [_checked(value, null) for value in column]


def _checked(value: object, null: object) -> object:
    if not isinstance(value, bytes):
        return _value(value, null)
    try:
        checked = _check_json(value)
        if not value.isascii():
            str(value, "utf-8")
    except (ValueError, RecursionError):
        return _UNREADABLE
    return null if checked == _NULL else checked


def _schema_id(value: object) -> object:
    found = schema_id(value) if isinstance(value, bytes) else None
    return UNSET if found is None else found


def _are_few(column: Sequence[object] | None, kept: Sequence[int]) -> bool:
    events, size = _AT_ONCE
    return column is not None and len(kept) <= events and sum(_size(column[index]) for index in kept) <= size


def _value(value: object, null: object) -> object:
    if value is None:
        return null
    return _UNREADABLE if value is UNDECODABLE else value
