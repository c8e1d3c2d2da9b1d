"""The messages of an answer: one fragment each, a JSON object and a byte that separates it from the next.

Columns become rows of a msgspec struct, as in `kiwi_gw.dialects.encoder`. Nothing in a fragment is a client's
own: all who read a partition the same way share its bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, repeat
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct

from kiwi_gw.dialects.encoder import UNENCODABLE
from kiwi_gw.dialects.pulsar.message_ids import message_ids
from kiwi_gw.dialects.pulsar.messages import SEQUENCE
from kiwi_gw.dialects.pulsar.values import AS_THE_SOURCE_SAYS, ReadAs, keys_reader, values_reader
from kiwi_gw.model import Batch, Encoded, SourceInfo, WireFormat
from kiwi_gw.query.decode import header_text
from kiwi_gw.query.values import UNDECODABLE

IN_ARRAY: Final = b","
IN_LINES: Final = b"\n"

Headers = Iterable[tuple[str, bytes | None]]

_encode = msgspec.json.Encoder().encode
_NEVER: Final = b"0}"
"""The end of a message that is counted and was not delivered yet."""
_NO_PROPERTIES: Final = Raw(b"{}")
_NO_CLUSTERS: Final = Raw(b"[]")


class _Row(Struct, gc=False):  # it lives for a microsecond
    messageId: str  # noqa: N815
    key: Any
    value: Any
    partition: int
    properties: Any
    eventTime: int | None  # noqa: N815
    sequenceId: int | None  # noqa: N815
    replicationClusters: Raw  # noqa: N815
    payload: Any = UNSET
    keyPayload: Any = UNSET  # noqa: N815
    redeliveryCount: Any = UNSET  # noqa: N815


def messages_wire(
    info: SourceInfo,
    life: int,
    partitions: Collection[int],
    separator: bytes,
    *,
    counted: bool = False,
    read_as: ReadAs = AS_THE_SOURCE_SAYS,
) -> WireFormat:
    """Make the wire format of some partitions. life: as message ids have it. separator: the last byte of
    every fragment. counted: whether messages have a `redeliveryCount`, which is 0 (`redelivered`)."""
    wanted = frozenset(partitions)
    encoder = MessageEncoder(info, life, wanted, separator, counted=counted, read_as=read_as)
    return WireFormat(("pulsar", life, wanted, separator, counted, read_as), encoder)


def redelivered(fragment: bytes, times: int) -> bytes:
    """Return a fragment (without its separator) of a message that is delivered again."""
    return b"%b%d}" % (fragment[: -len(_NEVER)], times) if times else fragment


class MessageEncoder:
    """Make the fragments of a batch; events of other partitions yield nothing. What cannot be decoded is null
    with its bytes beside it, and counts as `decode_errors`."""

    __slots__ = ("_counted", "_ids", "_partitions", "_read_keys", "_read_values", "_separator")

    def __init__(
        self,
        info: SourceInfo,
        life: int,
        partitions: frozenset[int],
        separator: bytes,
        *,
        counted: bool,
        read_as: ReadAs,
    ) -> None:
        self._partitions = partitions
        self._separator = separator
        self._counted = counted
        self._ids = {partition: message_ids(life, partition) for partition in partitions}
        self._read_values = values_reader(info, read_as.value)
        self._read_keys = keys_reader(info, read_as.key)

    def __call__(self, batch: Batch) -> Encoded:
        wanted, size = self._partitions, len(batch)
        mine = [index for index, partition in enumerate(batch.partitions) if partition in wanted]
        if len(mine) == size:
            lines, bad = self._lines(batch.partitions, batch.offsets, batch.columns)
            ends = array("Q", accumulate(len(line) + 1 for line in lines))
            return Encoded(self._joined(lines), ends, decode_errors=bad)
        columns = {name: [column[index] for index in mine] for name, column in batch.columns.items()}
        partitions = [batch.partitions[index] for index in mine]
        lines, bad = self._lines(partitions, [batch.offsets[index] for index in mine], columns)
        lengths = [0] * size
        for index, line in zip(mine, lines, strict=True):
            lengths[index] = len(line) + 1
        counts = array("Q", accumulate(map(bool, lengths), initial=0))
        return Encoded(self._joined(lines), array("Q", accumulate(lengths)), counts, decode_errors=bad)

    def _written_ids(self, partitions: Sequence[int], offsets: Sequence[int]) -> list[str]:
        if len(offsets) and partitions.count(partitions[0]) == len(offsets):
            return self._ids[partitions[0]](offsets)
        return [self._ids[p]((offset,))[0] for p, offset in zip(partitions, offsets, strict=True)]

    def _joined(self, lines: list[bytes]) -> bytes:
        return self._separator.join([*lines, b""])

    def _lines(
        self, partitions: Sequence[int], offsets: Sequence[int], columns: Mapping[str, Sequence[Any]]
    ) -> tuple[list[bytes], int]:
        """Encode the messages. Returns how many have something that could not be decoded."""
        rows, bad = self._rows(partitions, offsets, columns)
        try:
            return list(map(_encode, rows)), bad
        except UNENCODABLE:
            pass
        lines = []
        for row in rows:
            try:
                lines.append(_encode(row))
            except UNENCODABLE:  # a value that was no bytes and has no JSON
                row.value, bad = None, bad + 1
                lines.append(_encode(row))
        return lines, bad

    def _rows(
        self, partitions: Sequence[int], offsets: Sequence[int], columns: Mapping[str, Sequence[Any]]
    ) -> tuple[list[_Row], int]:
        size = len(offsets)
        keys = self._read_keys(columns) or [None] * size
        values = self._read_values(columns)
        times = [None if time == -1 else time for time in columns.get("timestamp", ())] or [None] * size
        properties, sequences = _properties(columns.get("headers", ()), size)
        ids = self._written_ids(partitions, offsets)
        counts = repeat(0 if self._counted else UNSET)
        same = repeat(_NO_CLUSTERS), repeat(UNSET), repeat(UNSET), counts
        rows = list(map(_Row, ids, keys, values, partitions, properties, times, sequences, *same))
        bad = 0
        if UNDECODABLE in values or UNDECODABLE in keys:
            for index, row in enumerate(rows):
                if row.value is UNDECODABLE:
                    row.value, row.payload = None, columns["value"][index]
                if row.key is UNDECODABLE:
                    row.key, row.keyPayload = None, columns["key"][index]
                bad += row.payload is not UNSET or row.keyPayload is not UNSET
        return rows, bad


def _properties(column: Sequence[Headers], size: int) -> tuple[Sequence[Any], Sequence[int | None]]:
    """Return the properties and the sequence ids that headers hold."""
    if not any(column):
        return [_NO_PROPERTIES] * size, [None] * size
    properties, sequences = [], []
    for headers in column:
        found = {name: header_text(value) for name, value in headers}
        sequences.append(_sequence(found.pop(SEQUENCE, None)))
        properties.append(found)
    return properties, sequences


def _sequence(text: str | None) -> int | None:
    """Read a sequence id, of 64 bits; None where it is none."""
    return int(text) if text and len(text) <= 20 and text.removeprefix("-").isdecimal() else None
