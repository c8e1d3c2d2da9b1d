"""What queries see of a batch: its columns as values, made when they are first read.

Theory of operation. The queries of all clients read the same batch, one after the other, while it is the
newest one. So what was decoded is kept with the batch, for the last few batches. An older one that is read
again (for a subscription that is behind, or in history) is decoded again, once for all that read it then.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import repeat
from typing import Final, TypeVar, cast

from kiwi_gw.model import Batch, Decode, Steps, TimeSlice, at_once
from kiwi_gw.query.decode import decoded_column, headers, objects
from kiwi_gw.query.values import Value

T = TypeVar("T")

MAX_RESULT_BYTES: Final = 32 * 1024 * 1024
"""Of what the queries of clients have made of all batches."""

MAX_BATCHES: Final = 32
MOST_BYTES: Final = 16 * 1024 * 1024
"""Of the batches that are kept decoded, as they weigh themselves. What is decoded weighs a few times that."""

_DECODED_AT_ONCE: Final = 125, 16 * 1024
"""Events, and bytes of them, that are decoded between two looks at the clock: less than a turn even of
JSON that is nothing but empty lists. One event is decoded in one go, whatever its size."""

_NO_COLUMN: Final = ("key", "headers", "timestamp")
"""Roots that are null where the source has no such column."""

_SIZES: Final = {"key_size": "key", "value_size": "value"}


class DecodedBatch:
    """Show one batch to queries. `decode` says how its bytes are read."""

    __slots__ = ("_columns", "_decode", "_decoded", "_memo", "_query_results", "batch")

    def __init__(self, batch: Batch, decode: Decode) -> None:
        self.batch = batch
        self._decode = decode
        self._columns: dict[str, Sequence[Value]] = {}
        self._decoded: dict[str, list[Value]] = {}  # columns of which only the beginning is
        self._memo: dict[Hashable, object] = {}
        self._query_results = _query_results

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def key(self) -> tuple[int, Decode]:
        return id(self.batch), self._decode

    def column(self, root: str) -> Sequence[Value]:
        """Return the values of a root, one per event. Roots: `key`, `value`, `partition`, `offset`,
        `timestamp` (ms), `headers`, `key_size`, `value_size` (bytes, 0 for null). Raises KeyError for another
        one.

        The value of a source whose events have no column `value` is an object of the columns that they have.
        """
        if root not in self._columns:
            at_once(self.decoded((root,), TimeSlice()))
        return self._columns[root]

    def decoded(self, roots: Iterable[str], turn: TimeSlice) -> Steps[None]:
        """Make these columns, in turns. Two that do so at a time share what each has done."""
        for root in roots:
            while root not in self._columns:
                self._make_some(root)
                if root not in self._columns and turn.over:
                    yield

    def memo(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what was derived from this batch before under the same key, or make it. Nothing is kept if
        that raises. For a small number of keys: not for any that clients make."""
        if key not in self._memo:
            self._memo[key] = make()
        return cast(T, self._memo[key])

    def query_result(
        self, key: Hashable, make: Callable[[], Steps[T]], weigh: Callable[[T], int]
    ) -> Steps[T]:
        """Return what a client's query makes of the batch, made in turns. It is made again if it was not
        needed while others were. weigh: the bytes that it holds."""
        found = self._query_results.get(self, key)
        if found is not None:
            return cast(T, found)
        made = yield from make()
        self._query_results.keep(self, key, made, weigh(made))
        return made

    def _make_some(self, root: str) -> None:
        columns, decode = self.batch.columns, self._decode
        if root not in ("key", "value") or root not in columns:
            self._columns[root] = self._made(root)
            return
        column, done = columns[root], self._decoded.setdefault(root, [])
        part = slice(len(done), _upto(column, len(done)))
        done += decoded_column(decode, root, columns, part)
        if len(done) == len(column):
            self._columns[root] = self._decoded.pop(root)

    def _made(self, root: str) -> Sequence[Value]:
        columns = self.batch.columns
        if root in ("partition", "offset"):
            return self.batch.column(root)
        if root == "value" and root not in columns:
            return objects(list(columns), columns.values())
        if root in _SIZES:
            return [_size(value) for value in columns.get(_SIZES[root], repeat(None, len(self.batch)))]
        if root not in columns and root in _NO_COLUMN:
            return [None] * len(self.batch)
        match root:
            case "timestamp":
                return [None if moment == -1 else moment for moment in columns[root]]
            case "headers":
                return headers(columns[root])
        raise KeyError(root)


def _size(value: object) -> int:
    match value:
        case bytes():
            return len(value)
        case str():
            return len(value.encode())
    return 0


def _upto(column: Sequence[object], first: int) -> int:
    """Return where to stop: behind the last event that is decoded at once."""
    events, left = _DECODED_AT_ONCE
    for index in range(first, min(first + events, len(column))):
        value = column[index]
        left -= len(value) if isinstance(value, bytes) else 0
        if left < 0:
            return index + 1
    return min(first + events, len(column))


class _QueryResults:
    """Keep what queries made of batches: what was needed last, within bounds of bytes."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[DecodedBatch, Hashable], tuple[object, int]] = OrderedDict()
        self._keys: dict[DecodedBatch, dict[Hashable, None]] = {}
        self.bytes = 0

    def get(self, of: DecodedBatch, key: Hashable) -> object | None:
        found = self._entries.get((of, key))
        if found is None:
            return None
        self._entries.move_to_end((of, key))
        return found[0]

    def keep(self, of: DecodedBatch, key: Hashable, made: object, size: int) -> None:
        """Keep a result. Two may have made the same, in turns; of a batch that is not new any more none is
        kept."""
        if (of, key) in self._entries or not _newest.has(of):
            return
        self._entries[of, key] = made, _ENTRY + size
        self._keys.setdefault(of, {})[key] = None
        self.bytes += _ENTRY + size
        while self.bytes > MAX_RESULT_BYTES and len(self._entries) > 1:
            (view, old_key), (_, gone) = self._entries.popitem(last=False)
            self.bytes -= gone
            keys = self._keys[view]
            del keys[old_key]
            if not keys:
                del self._keys[view]

    def forget(self, of: DecodedBatch) -> None:
        """Give up the results of a batch that is not one of the newest any more."""
        for key in self._keys.pop(of, ()):
            _, size = self._entries.pop((of, key))
            self.bytes -= size


_ENTRY: Final = 500
_query_results: Final = _QueryResults()


class _NewestBatches:
    """Keep the last few batches, decoded. They hold their batches, so an id means one batch while in here."""

    def __init__(self) -> None:
        self._views: OrderedDict[tuple[int, Decode], DecodedBatch] = OrderedDict()
        self._bytes = 0

    def has(self, seen: DecodedBatch) -> bool:
        return self._views.get(seen.key) is seen

    def view(self, batch: Batch, decode: Decode) -> DecodedBatch:
        key = id(batch), decode
        found = self._views.get(key)
        if found is not None:
            self._views.move_to_end(key)
            return found
        found = self._views[key] = DecodedBatch(batch, decode)
        self._bytes += batch.cost
        while len(self._views) > MAX_BATCHES or (self._bytes > MOST_BYTES and len(self._views) > 1):
            _, oldest = self._views.popitem(last=False)
            self._bytes -= oldest.batch.cost
            _query_results.forget(oldest)
        return found

    def forget_all(self) -> None:
        for item in self._views.values():
            _query_results.forget(item)
        self._views.clear()
        self._bytes = 0


_newest: Final = _NewestBatches()


def decoded(batch: Batch, decode: Decode) -> DecodedBatch:
    """Return the batch as queries see it: the same object for all while it is one of the newest."""
    return _newest.view(batch, decode)


def forget_all() -> None:
    """Give up every decoded batch, and what queries made of them: memory is short."""
    _newest.forget_all()
