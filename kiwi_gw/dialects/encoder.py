"""The hot path of every dialect that sends one text frame per event: a batch in, one buffer out.

Theory of operation. `RowEncoder` makes rows of the columns of a batch, by a source's `EventSchema`; msgspec
writes them as JSON objects. Everything that can be decided per source is decided once: the member names
become a msgspec struct, and members that are the same for every event are glued together into one piece of
ready JSON. Per batch and member there is one pass over a column at C speed where the values are as
expected; only a column that holds something else (no bytes, bytes that are not UTF-8) is walked value
by value. Bytes are given to msgspec as they are: it writes them as base64.

`FrameEncoder` puts frames around them. Measured against its alternatives (rows encoded together and split
again, columns encoded apart and interleaved, a bytes template per event, the frames collected and joined):
encoding row after row and appending to one buffer is the fastest for 10 events and more, and among the
fastest for one. What it costs is msgspec's own work, half of it the escaping of a value that is JSON itself
and its base64.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice, repeat
from operator import itemgetter
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from kiwi_gw.dialect_api import frames
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import Batch, Encoded, Field, FieldEncoding

MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Of a frame, where the configuration is not asked."""

_MOST_SEPARATORS = 8_192
_MOST_BYTES = 512 * 1024
"""Of those of one head: with the ids of many subscriptions it may be long."""
_EACH = 80

Column = Iterable[Any]
Reader = Callable[[Any], Column]

UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
"""What encoding a row raises if the row holds something that has no JSON."""

_BAD = object()
"""Stands for a value that breaks its column's contract; encoding it raises TypeError."""

_encode = msgspec.json.Encoder().encode
_check_json = msgspec.json.Decoder(Raw).decode


# --- frames ---


class _Separators(dict[int, bytes]):
    """What stands before an object of so many bytes: the tail of the frame before it, and its own
    frame's header and head."""

    def __init__(self, head: bytes, tail: bytes) -> None:
        super().__init__()
        self._head = head
        self._tail = tail
        self._most = min(_MOST_SEPARATORS, _MOST_BYTES // (_EACH + len(head) + len(tail)))

    def __missing__(self, length: int) -> bytes:
        header = frames.header(len(self._head) + length + len(self._tail))
        separator = self._tail + header + self._head
        if len(self) < self._most:
            self[length] = separator
        return separator


separators = lru_cache(maxsize=64)(_Separators)
"""By head and tail: what stands before an object of so many bytes."""


class FrameEncoder:
    """Makes of every event one text frame around head + its JSON object + tail.

    An event whose whole frame is larger than `max_event_bytes` yields nothing and is `unsendable`; one
    that has no JSON yields nothing and is `decode_errors`. Raises EncodingFailed for a batch without its
    columns.
    """

    __slots__ = ("_max_event_bytes", "_rows", "_separators", "_tail")

    def __init__(
        self,
        fields: Sequence[Field],
        source_id: str,
        source_type: str,
        *,
        head: bytes,
        tail: bytes,
        max_event_bytes: int,
    ) -> None:
        self._rows = RowEncoder(fields, source_id, source_type)
        self._separators = separators(head, tail)
        self._tail = tail
        self._max_event_bytes = max_event_bytes

    def __call__(self, batch: Batch) -> Encoded:
        buffer = bytearray()
        ends: list[int] = []
        separators, end = self._separators, ends.append
        try:
            for line in map(_encode, self._rows.of(batch)):
                buffer += separators[len(line)]
                buffer += line
                end(len(buffer))
        except UNENCODABLE:
            return self._one_by_one(batch)
        if len(ends) != len(batch.offsets):
            raise _uneven(batch, ends)
        # Every separator began with the tail of the frame before it: move the first one to the end.
        buffer += self._tail
        del buffer[: len(self._tail)]
        if len(buffer) > self._max_event_bytes and self._too_large(ends):
            return self._one_by_one(batch)
        return Encoded(bytes(buffer), array("Q", ends))

    def _too_large(self, ends: list[int]) -> bool:
        return max(map(int.__sub__, ends, [0, *ends])) > self._max_event_bytes

    def _one_by_one(self, batch: Batch) -> Encoded:
        buffer = bytearray()
        ends, prefix_counts = array("Q"), array("Q", (0,))
        unsendable: list[int] = []
        sendable = decode_errors = 0
        for index, row in enumerate(self._rows.of(batch)):
            try:
                line = _encode(row)
            except UNENCODABLE:
                decode_errors += 1
            else:
                frame = self._separators[len(line)][len(self._tail) :] + line + self._tail
                if len(frame) > self._max_event_bytes:
                    unsendable.append(index)
                else:
                    buffer += frame
                    sendable += 1
            ends.append(len(buffer))
            prefix_counts.append(sendable)
        if len(ends) != len(batch):
            raise _uneven(batch, ends)
        return Encoded(
            bytes(buffer), ends, prefix_counts, unsendable=tuple(unsendable), decode_errors=decode_errors
        )


def _uneven(batch: Batch, ends: Sequence[int]) -> EncodingFailed:
    return EncodingFailed(f"a batch of {len(batch)} events has columns of {len(ends)} values")


# --- rows ---


class RowEncoder:
    """Makes the rows of batches of one source. Encoding a row with msgspec gives one JSON object."""

    def __init__(self, fields: Sequence[Field], source_id: str, source_type: str) -> None:
        self._source = source_id
        members = _glued(fields, {FieldEncoding.SOURCE_ID: source_id, FieldEncoding.SOURCE_TYPE: source_type})
        self._names = tuple(member.name for member, _ in members)
        self._row = _row_type(self._names)
        # Constants are columns too, under names that no batch has.
        keys = [f.source_column if c is None else f"\0{i}" for i, (f, c) in enumerate(members)]
        self._fetch = _fetcher(keys)
        self._constants = {key: repeat(c) for key, (_, c) in zip(keys, members, strict=True) if c is not None}
        self._endless = all(constant is not None for _, constant in members)
        changing = [(i, member) for i, (member, constant) in enumerate(members) if constant is None]
        self._readers = [(i, read) for i, member in changing if (read := _reader(member)) is not None]
        self._texts = [(i, member) for i, member in changing if member.kind is FieldEncoding.TEXT]

    def of(self, batch: Batch) -> Iterator[object]:
        """As many rows as the batch has events, in order; fewer or more if a column is too short or long.

        Raises EncodingFailed for a batch that lacks a column. A value that has no JSON makes its own row
        raise one of UNENCODABLE when that is encoded.
        """
        data: dict[str, Column] = {**self._constants, **batch.columns}
        data["partition"], data["offset"] = batch.partitions, batch.offsets
        try:
            columns = [*self._fetch(data)]
        except KeyError as error:
            raise EncodingFailed(f"the events of source {self._source!r} lack the column {error}") from None
        for index, read in self._readers:
            columns[index] = read(columns[index])
        twins: dict[int, Column] = {}
        for index, member in self._texts:
            column = columns[index]
            try:
                texts: Column = list(map(bytes.decode, column))
            except (TypeError, UnicodeDecodeError):  # None or something odd: look closer
                texts, odd = _texts(column)
                if odd is not None and member.base64_fallback:
                    twins[index] = odd
            columns[index] = _parsed(column, texts) if member.parsed else texts
        if self._endless:
            return islice(map(self._row, *columns) if columns else repeat(self._row()), len(batch))
        return map(self._row, *columns) if not twins else self._with_base64(columns, twins)

    def _with_base64(self, columns: Sequence[Column], twins: dict[int, Column]) -> Iterator[object]:
        names: list[str] = []
        values: list[Column] = []
        for index, (name, column) in enumerate(zip(self._names, columns, strict=True)):
            names.append(name)
            values.append(column)
            if index in twins:
                names.append(f"{name}Base64")
                values.append(twins[index])
        return map(_row_type(tuple(names)), *values)


def _glued(fields: Sequence[Field], constants: dict[FieldEncoding, str]) -> list[tuple[Field, Raw | None]]:
    """Return the fields, those with a constant value with its JSON. Neighbours that have one are glued
    together: the name of the first, and a value that has the others in it. Both then cost one copy."""
    members: list[tuple[Field, Raw | None]] = []
    for field in fields:
        constant = constants.get(field.kind)
        if constant is None:
            members.append((field, None))
            continue
        value = _encode(constant)
        if members and (before := members[-1][1]) is not None:
            members[-1] = members[-1][0], Raw(b"%b,%b:%b" % (bytes(before), _encode(field.name), value))
        else:
            members.append((field, Raw(value)))
    return members


def _fetcher(keys: Sequence[str]) -> Callable[[dict[str, Column]], Iterable[Column]]:
    if len(keys) > 1:
        return itemgetter(*keys)
    return lambda data: [data[key] for key in keys]


@lru_cache(maxsize=256)
def _row_type(names: tuple[str, ...]) -> Callable[..., object]:
    """Return what makes a row of its values, in the order of the names. UNSET leaves a member out."""
    keys = [f"f{index}" for index in range(len(names))]
    try:
        # Rows live for a microsecond: the garbage collector need not know them.
        return msgspec.defstruct(
            "Row", [(key, Any) for key in keys], rename=dict(zip(keys, names, strict=True)), gc=False
        )
    except ValueError:  # a quote in a name, or one name twice

        def row(*values: object) -> object:
            pairs = zip(names, values, strict=True)
            return {name: value for name, value in pairs if value is not UNSET}

        return row


def _texts(column: Iterable[Any]) -> tuple[Column, Column | None]:
    """Return the texts of a column of bytes or None, and, if some are not UTF-8, a column of just those."""
    texts: list[object] = []
    odd: list[object] = []
    found = False
    for value in column:
        base64_fallback: object = UNSET
        try:
            text: object = None if value is None else str(value, "utf-8")
        except UnicodeDecodeError:
            text, base64_fallback, found = None, value, True
        except TypeError:
            text = _BAD
        texts.append(text)
        odd.append(base64_fallback)
    return texts, odd if found else None


def _without(column: Sequence[object], none: object, instead: object) -> Column:
    if none not in column:
        return column
    return [instead if value == none else value for value in column]


def _json(column: Iterable[Any]) -> Column:
    return [None if value is None else _checked(value) for value in column]


def _checked(value: bytes) -> object:
    # One event with broken JSON must not break the connections that get it.
    try:
        checked = _check_json(value)
        if not value.isascii():
            str(value, "utf-8")
    except (TypeError, AttributeError, RecursionError, ValueError):
        return _BAD
    return checked


def _parsed(column: Iterable[Any], texts: Iterable[Any]) -> Column:
    """Return what is JSON text as that, and other text as it is."""
    found = []
    for value, text in zip(column, texts, strict=True):
        checked = _checked(value)
        found.append(text if checked is _BAD else checked)
    return found


class _Header(msgspec.Struct, gc=False):
    key: str
    value: bytes | None


def _headers(column: Iterable[Any]) -> Column:
    return [_header_list(headers) for headers in column]


def _header_list(headers: Iterable[tuple[str, bytes | None]]) -> object:
    try:
        return [_Header(key, value) for key, value in headers]
    except (TypeError, ValueError):
        return _BAD


_READERS: dict[FieldEncoding, Reader] = {FieldEncoding.JSON: _json, FieldEncoding.HEADERS: _headers}


def _reader(field: Field) -> Reader | None:
    """None where msgspec writes the values as they are in their column."""
    if field.kind is FieldEncoding.INT and field.none is not None:
        return partial(_without, none=field.none, instead=UNSET if field.left_out else None)
    if field.left_out:
        return partial(_without, none=None, instead=UNSET)
    return _READERS.get(field.kind)
