"""Encode once, send the same bytes to everyone: the memo of fragments by entry and wire key.

Fragments are kept only while a reader inside the window may need them, in one least-recently-used order
of bounded bytes over all sources. What was dropped is made again when it is asked for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from kiwi_gw.core.evaluation import Evaluations
from kiwi_gw.core.window import Budget, Entry
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import Batch, Encoded, Interceptor, Record, Steps, TimeSlice, WireFormat

_NUMBER = 40
"""Bytes of an integer in a list; an array has its own size."""

_REDUCED = 8
"""Batches that are kept as interceptors have left them."""


@dataclass(frozen=True, slots=True)
class Wire:
    """A wire format with what comes before it. `key` decides the bytes, whole."""

    key: Hashable
    format: WireFormat
    interceptor: Interceptor | None = None


def wire(format: WireFormat, interceptor: Interceptor | None) -> Wire:  # noqa: A002
    """Put an interceptor before a format. One without a key shares with nobody."""
    if interceptor is None:
        return Wire(format.key, format)
    reader = object() if interceptor.key is None else interceptor.key
    return Wire((format.key, reader), format, interceptor)


class EncodingMemo:
    """Makes fragments, and keeps those that may be needed again, at most `max_bytes` of them or what the
    budget has for them.

    mistake: told of what a format raises that it should not. evaluations: see there; None: every query is
    evaluated at once.
    """

    def __init__(
        self,
        max_bytes: int,
        budget: Budget,
        mistake: Callable[[Exception], None] = lambda error: None,
        evaluations: Evaluations | None = None,
    ) -> None:
        self.evaluations = evaluations
        self._mistake = mistake
        self._reserved = budget.reserve(max_bytes)
        self._max_bytes = self._reserved
        self._budget = budget
        self._order: OrderedDict[tuple[Entry, Hashable], int] = OrderedDict()
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self.events_encoded = 0
        # What interceptors have left of the last batches, so that all formats behind one find the same batch.
        self._reduced: OrderedDict[tuple[int, Hashable], tuple[Batch, list[int], Batch]] = OrderedDict()

    def found(self, entry: Entry, item: Wire) -> Encoded | None:
        """The fragments of an entry, if they are kept."""
        found = entry.encodings.get(item.key)
        if found is not None:
            self.hits += 1
            self._order.move_to_end((entry, item.key))
        return found

    def encoded(self, entry: Entry, item: Wire, *, keep: bool = True) -> Encoded:
        """The fragments of an entry. keep: false, where no reader is expected to come back for them."""
        found = self.found(entry, item)
        if found is not None:
            return found
        self.misses += 1
        self.events_encoded += len(entry.batch)
        made = self._made(entry.batch, item)
        if keep:
            self._put(entry, item.key, made)
        return made

    def steps(self, entry: Entry, item: Wire, turn: TimeSlice) -> Steps[Encoded]:
        """The same of one with a query, in turns. Nothing is kept."""
        self.misses += 1
        self.events_encoded += len(entry.batch)
        try:
            kept, reduced = self._before(entry.batch, item.interceptor)
            if item.format.steps is None:
                made = item.format.encode(reduced)
            else:
                made = yield from item.format.steps(reduced, turn)
            return made if len(kept) == len(entry.batch) else spread(made, kept, len(entry.batch))
        except EncodingFailed:
            raise
        except Exception as error:
            raise self._mistaken(error) from error

    def _made(self, batch: Batch, item: Wire) -> Encoded:
        try:
            return self._encode(batch, item)
        except EncodingFailed:
            raise
        except Exception as error:
            raise self._mistaken(error) from error

    def _mistaken(self, error: Exception) -> EncodingFailed:
        # A mistake of a protocol's. It ends the subscriptions that have this format, and not the source,
        # whose batch this is about.
        self._mistake(error)
        return EncodingFailed("internal error: its events could not be encoded")

    def _encode(self, batch: Batch, item: Wire) -> Encoded:
        if item.interceptor is None:
            return item.format.encode(batch)
        kept, reduced = self._before(batch, item.interceptor)
        made = item.format.encode(reduced)
        return made if len(kept) == len(batch) else spread(made, kept, len(batch))

    def _before(self, batch: Batch, interceptor: Interceptor | None) -> tuple[Sequence[int], Batch]:
        """The indexes that an interceptor leaves, and a batch of just those."""
        if interceptor is None:
            return range(len(batch)), batch
        key = id(batch), interceptor.key
        found = self._reduced.get(key) if interceptor.key is not None else None
        if found is None:
            # It holds the batch, so that its id means no other one.
            found = batch, *_intercepted(batch, interceptor)
            if interceptor.key is not None:
                self._reduced[key] = found
                if len(self._reduced) > _REDUCED:
                    self._reduced.popitem(last=False)
        return found[1], found[2]

    def keep(self, entry: Entry, item: Wire, made: Encoded) -> None:
        """A reader turned out to need these again."""
        if item.key not in entry.encodings:
            self._put(entry, item.key, made)

    def forget(self, entry: Entry) -> None:
        """The entry has left the window."""
        if self.evaluations is not None:
            self.evaluations.forget(entry)
        for key in entry.encodings:
            self._drop(self._order.pop((entry, key)))
        entry.encodings.clear()

    def _put(self, entry: Entry, key: Hashable, made: Encoded) -> None:
        size = weight(made)
        entry.encodings[key] = made
        self._order[entry, key] = size
        self.bytes += size
        self._budget.used += size
        self._trim(1)

    def shrink(self, share: float) -> None:
        """Keep at most this share of the bytes that were set aside, from now on; 1: all of them."""
        self._max_bytes = int(self._reserved * share)
        self._trim(0)

    def _trim(self, least: int) -> None:
        """Keep to the bound, but the newest so many."""
        while self.bytes > self._max_bytes and len(self._order) > least:
            (oldest, old_key), old_size = self._order.popitem(last=False)
            del oldest.encodings[old_key]
            self._drop(old_size)

    def _drop(self, size: int) -> None:
        self.bytes -= size
        self._budget.used -= size


def weight(made: Encoded) -> int:
    """Bytes that an encoding holds: its buffer, and its numbers (in a list: a reference and an object)."""
    numbers = [made.ends, *((made.tally,) if made.tally is not None else ()), *made.tallies.values()]
    return len(made.buffer) + sum(getattr(item, "itemsize", _NUMBER) * len(item) for item in numbers)


def _intercepted(batch: Batch, interceptor: Interceptor) -> tuple[list[int], Batch]:
    """What the interceptor leaves of a batch: the indexes that stay, and a batch of just those."""
    names = list(batch.columns)
    columns = [batch.columns[name] for name in names]
    kept: list[int] = []
    records: list[Record] = []
    for index, values in enumerate(zip(batch.partitions, batch.offsets, *columns, strict=True)):
        record: dict[str, object] = dict(zip(names, values[2:], strict=True))
        record["partition"], record["offset"] = values[0], values[1]
        changed = interceptor.apply(record)
        if changed is not None:
            kept.append(index)
            records.append(changed)
    try:
        reduced = {name: [record[name] for record in records] for name in names}
    except KeyError as error:
        raise EncodingFailed(f"an interceptor returned an event without its {error}") from error
    return kept, Batch(
        starts=batch.starts,
        partitions=[batch.partitions[i] for i in kept],
        offsets=[batch.offsets[i] for i in kept],
        columns=reduced,
        cost=batch.cost,
    )


def spread(encoded: Encoded, kept: Sequence[int], length: int) -> Encoded:
    """The fragments of a reduced batch, put back in the places that they have in the whole one."""
    present = [0] * length
    for index in kept:
        present[index] = 1
    places = list(accumulate(present, initial=0))
    bounds = [0, *encoded.ends]

    def lifted(prefix: Sequence[int]) -> list[int]:
        return [prefix[place] for place in places]

    return Encoded(
        buffer=encoded.buffer,
        ends=[bounds[place] for place in places[1:]],
        tally=lifted(encoded.tally) if encoded.tally is not None else places,
        tallies={label: lifted(prefix) for label, prefix in encoded.tallies.items()},
        unsendable=tuple(kept[index] for index in encoded.unsendable),
        bad=encoded.bad,
    )
