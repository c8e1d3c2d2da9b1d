"""Record batches as a broker keeps them, made with aiokafka's builder and changed by hand."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
_LEADER_EPOCH, _CRC, _ATTRIBUTES, _LAST_DELTA, _COUNTED = 12, 17, 21, 23, 21
_CONTROL = 0x20
_LENGTH, _HEAD = 8, 61

Headers = Sequence[tuple[str, bytes | None]]


def batch(
    first: int,
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] = (),
    headers: Sequence[Headers] = (),
    removed: Collection[int] = (),
    codec: int = 0,
    producer: int = -1,
    epoch: int = 0,
) -> bytes:
    """Make a batch from offset `first` on. removed: which of its records compaction took, not all."""
    builder = DefaultRecordBatchBuilder(2, codec, producer >= 0, producer, 0, 0, 1 << 20)
    for n, value in enumerate(values):
        if n not in removed:
            key, pairs = (keys[n] if keys else None), (headers[n] if headers else [])
            builder.append(n, 1000 + n, key, value, list(pairs))
    return _changed(bytes(builder.build()), first, epoch, len(values) - 1)


def marker(first: int, producer: int, kind: bytes) -> bytes:
    """Make the control batch that ends a transaction: `ABORT` or `COMMIT`."""
    builder = DefaultRecordBatchBuilder(2, 0, True, producer, 0, 0, 1 << 20)
    builder.append(0, 1, kind, b"\0" * 6, [])
    return _changed(bytes(builder.build()), first, 0, 0, _CONTROL)


def emptied(data: bytes) -> bytes:
    """Take all records out of a batch, as compaction does with the last one of a producer."""
    built = bytearray(data[:_HEAD])
    struct.pack_into(">i", built, _LENGTH, _HEAD - _LENGTH - 4)
    struct.pack_into(">i", built, _HEAD - 4, 0)
    struct.pack_into(">I", built, _CRC, calc_crc32c(bytes(built[_COUNTED:])))
    return bytes(built)


def spoiled(data: bytes, at: int) -> bytes:
    """Change one bit."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _changed(data: bytes, first: int, epoch: int, last: int, attributes: int = 0) -> bytes:
    built = bytearray(data)
    struct.pack_into(">q", built, 0, first)
    struct.pack_into(">i", built, _LEADER_EPOCH, epoch)
    built[_ATTRIBUTES + 1] |= attributes
    struct.pack_into(">i", built, _LAST_DELTA, last)
    struct.pack_into(">I", built, _CRC, calc_crc32c(bytes(built[_COUNTED:])))
    return bytes(built)
