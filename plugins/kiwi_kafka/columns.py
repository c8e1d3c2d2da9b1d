"""Consumer records as columns: nothing of the client's own objects is kept."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

_OBJECT = 33
"""Bytes that a `bytes` object weighs beside its content (CPython, 64 bit)."""
_ROW = 2 * 8 + 4 + 8 + 8
"""References to key and value, and the partition, offset and timestamp of one record."""
_HEADER = 56 + 8 + 57 + _OBJECT
"""A pair, the reference to it, a name and a value, without their content."""

HeaderPairs = Sequence[tuple[str, bytes | None]]


class KafkaRecord(Protocol):
    """What is used of a record of the client."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records of one partition, and the offset of the next one to read.

    `next` is behind the last record or further: compaction and transaction markers leave holes.
    epoch: of the leader that wrote the last batch before `next`; -1 where it is not known.
    """

    partition: int
    records: Sequence[KafkaRecord]
    next: int
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class Columns:
    """Records of one topic as columns. `ends`: the next offset of each partition that they touch."""

    partitions: Sequence[int]
    offsets: Sequence[int]
    columns: Mapping[str, Sequence[object]]
    cost: int
    ends: Mapping[int, int]


def to_columns(fetched: Sequence[Fetched], headers: bool) -> Columns:
    """What was fetched of one topic, partition by partition, each in its order.

    headers: whether the column `headers` is wanted. `cost` is what the columns weigh in memory.
    """
    partitions = array("i")
    offsets = array("q")
    timestamps = array("q")
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    pairs: list[HeaderPairs] = []
    for part in fetched:
        records = part.records
        partitions.extend(array("i", (part.partition,)) * len(records))
        offsets.extend([record.offset for record in records])
        timestamps.extend([record.timestamp for record in records])
        keys.extend([record.key for record in records])
        values.extend([record.value for record in records])
        if headers:
            pairs.extend([tuple(record.headers) for record in records])
    columns: dict[str, Sequence[object]] = {"key": keys, "value": values, "timestamp": timestamps}
    cost = _ROW * len(offsets) + _weight(keys) + _weight(values)
    if headers:
        columns["headers"] = pairs
        cost += sum(48 + sum(map(_header_weight, names)) for names in pairs)
    return Columns(partitions, offsets, columns, cost, {part.partition: part.next for part in fetched})


def _weight(texts: list[bytes | None]) -> int:
    try:
        return sum(map(len, texts)) + _OBJECT * len(texts)  # type: ignore[arg-type]
    except TypeError:  # some are None: the slower way
        return _present(text for text in texts if text is not None)


def _present(texts: Iterable[bytes]) -> int:
    return sum(len(text) + _OBJECT for text in texts)


def _header_weight(pair: tuple[str, bytes | None]) -> int:
    name, value = pair
    return _HEADER + len(name) + (len(value) if value is not None else 0)
