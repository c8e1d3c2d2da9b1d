"""How rows are written in messages: as columns, by `Rows.java`. Little-endian:

int32  number of rows
int32  1 if they have keys, else 0
int64  the place of every row, where rows have places
int32  where the value of every row ends
int32  where the key of every row ends, where they have keys
       the values, one after the other, then the keys: JSON text in UTF-8
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from kiwi_spark.protocol.messages import WireError

_HEAD: Final = struct.Struct("<ii")
_INT, _LONG = 4, 8


class PackedRows:
    """Rows as they came. count: how many. `texts` and `places` read a part of them."""

    __slots__ = ("_content", "_data", "_key_ends", "_keys", "_places", "_value_ends", "count")

    def __init__(self, data: bytes, *, placed: bool = False) -> None:
        """placed: whether rows have places. WireError: its sizes do not fit together."""
        if len(data) < _HEAD.size:
            raise WireError(f"rows of {len(data)} bytes")
        count, keyed = _HEAD.unpack_from(data)
        self._data = data
        self.count = count
        self._places = _HEAD.size
        self._value_ends = self._places + (_LONG * count if placed else 0)
        self._key_ends = self._value_ends + _INT * count
        self._content = self._key_ends + (_INT * count if keyed else 0)
        if count < 0 or len(data) < self._content:
            raise WireError(f"{count} rows in {len(data)} bytes")
        values = self._last(self._value_ends)
        self._keys = self._content + values if keyed else 0
        if values < 0 or len(data) != self._content + values + (self._last(self._key_ends) if keyed else 0):
            raise WireError(f"{count} rows, whose texts do not fill {len(data)} bytes")

    def places(self) -> array[int]:
        """Return the places of all rows."""
        return self._numbers("q", self._places, 0, self.count)

    def values(self, first: int, stop: int) -> list[bytes | None]:
        """Return the values of rows."""
        return self._texts(self._value_ends, self._content, first, stop)

    def keys(self, first: int, stop: int) -> Sequence[bytes | None]:
        """Return the keys of rows; None for each where rows have none."""
        if not self._keys:
            return (None,) * (stop - first)
        return self._texts(self._key_ends, self._keys, first, stop)

    def _texts(self, ends: int, content: int, first: int, stop: int) -> list[bytes | None]:
        data = self._data
        begin = content + (self._numbers("i", ends, first - 1, first)[0] if first else 0)
        found: list[bytes | None] = []
        for end in self._numbers("i", ends, first, stop):
            found.append(data[begin : content + end])
            begin = content + end
        return found

    def _last(self, ends: int) -> int:
        return self._numbers("i", ends, self.count - 1, self.count)[0] if self.count else 0

    def _numbers(self, kind: str, at: int, first: int, stop: int) -> array[int]:
        size = _INT if kind == "i" else _LONG
        numbers = array(kind, self._data[at + size * first : at + size * stop])
        if sys.byteorder == "big":
            numbers.byteswap()
        return numbers


def pack(
    values: Sequence[bytes], keys: Sequence[bytes] | None = None, places: Sequence[int] | None = None
) -> bytes:
    """Write rows as the driver does."""
    count = len(values)
    parts = [_HEAD.pack(count, keys is not None)]
    if places is not None:
        parts.append(struct.pack(f"<{count}q", *places))
    columns = [texts for texts in (values, keys) if texts is not None]
    parts += [struct.pack(f"<{count}i", *accumulate(map(len, texts))) for texts in columns]
    return b"".join((*parts, *values, *(keys or ())))
