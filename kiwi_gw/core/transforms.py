"""What the chain of transforms leaves of a batch, and where the fragments of that are in the whole one.

Theory of operation. A link of the chain (`model.EventTransform`) says which events stay, and which columns of
those it has changed. A `TransformStage` is what the links so far have left: the indexes of its events in the
whole batch, and a batch of just those, made when it is asked for. The format writes that one; `spread` puts
its fragments in the places that they have in the whole. If the last link has only left events out, the
fragments of those that stay can instead be picked out of the ones that there were before it (`picked`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import lt
from typing import Final, TypeVar

from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import Batch, Encoded, Record, Transformed

T = TypeVar("T")

_NUMBER: Final = 40
"""Bytes of an integer in a list."""

_REFERENCE: Final = 8

UNCHANGED: Final = Transformed()


class TransformStage:
    """See the top of this file. batch: that the last link was given. before: the stage of that.

    kept: indexes in the whole batch, None: all. decode_errors: events that some link could not be evaluated
    for. failing: those that end whoever comes to them, in the whole batch. asked: how often its fragments
    were asked for to pick from, by format.
    """

    __slots__ = ("_left", "asked", "batch", "changed", "decode_errors", "failing", "kept")

    def __init__(
        self, batch: Batch, changed: Transformed = UNCHANGED, before: TransformStage | None = None
    ) -> None:
        self.batch = batch
        self.changed = changed
        self.kept = changed.kept
        self.decode_errors: int = len(changed.bad)
        self.failing = frozenset(changed.failing)
        self.asked: Counter[Hashable] = Counter()
        self._left: Batch | None = None
        if before is None:
            return
        self.decode_errors += before.decode_errors
        if before.kept is not None:
            kept = before.kept
            self.kept = kept if changed.kept is None else [kept[index] for index in changed.kept]
            self.failing = frozenset(map(kept.__getitem__, changed.failing))
        self.failing |= before.failing

    @property
    def left(self) -> Batch:
        """The batch of what is left."""
        if self._left is None:
            self._left = _reduced(self.batch, self.changed)
        return self._left

    @property
    def size(self) -> int:
        """Bytes that it holds beside the batch that it was made from, about."""
        changed, batch = self.changed, self.batch
        columns = len(batch.columns) + 2 if changed.kept is not None else len(changed.columns)
        events = len(batch) if changed.kept is None else len(changed.kept)
        numbers = 0 if self.kept is None else _NUMBER * len(self.kept)
        return numbers + _REFERENCE * events * columns + (batch.cost if changed.columns else 0)


def check(changed: Transformed, events: int) -> None:
    """Raise ValueError where that cannot be of a batch of so many events."""
    kept = changed.kept
    if kept and (kept[0] < 0 or kept[-1] >= events or not all(map(lt, kept, kept[1:]))):
        raise ValueError("`kept` must be ascending indexes of events of the batch")
    left = events if kept is None else len(kept)
    for name, column in changed.columns.items():
        if len(column) != left:
            raise ValueError(f"the column {name!r} has {len(column)} values for {left} events")
    if not all(0 <= index < events for index in (*changed.bad, *changed.failing)):
        raise ValueError("`bad` and `failing` must be indexes of events of the batch")


def per_record(apply: Callable[[Record], Record | None]) -> Callable[[Batch], Transformed]:
    """Make of what changes one record what changes a batch (`model.Interceptor`). Raises TypeError where that
    returns something else, EncodingFailed where a column is missing."""

    def of_batch(batch: Batch) -> Transformed:
        names = list(dict.fromkeys((*batch.columns, "partition", "offset")))
        kept: list[int] = []
        records: list[Record] = []
        for index, values in enumerate(zip(*map(batch.column, names), strict=True)):
            changed = apply(dict(zip(names, values, strict=True)))
            if changed is not None:
                if not isinstance(changed, Mapping):
                    raise TypeError(f"must return a record or None, not {type(changed).__name__}")
                kept.append(index)
                records.append(changed)
        try:
            columns = {name: [record[name] for record in records] for name in batch.columns}
        except KeyError as error:
            raise EncodingFailed(f"an interceptor returned an event without its {error}") from error
        return Transformed(None if len(kept) == len(batch) else kept, columns)

    return of_batch


def _reduced(batch: Batch, changed: Transformed) -> Batch:
    kept, columns = changed.kept, batch.columns
    if kept is None:
        return replace(batch, columns={**columns, **changed.columns}) if changed.columns else batch

    def of(column: Sequence[T]) -> list[T]:
        return [column[index] for index in kept]

    return Batch(
        starts=batch.starts,
        partitions=of(batch.partitions),
        offsets=of(batch.offsets),
        columns={
            **{name: of(column) for name, column in columns.items() if name not in changed.columns},
            **changed.columns,
        },
        cost=batch.cost,
    )


def spread(encoded: Encoded, kept: Sequence[int], length: int) -> Encoded:
    """Put the fragments of these events in the places that they have in the whole batch."""
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
        prefix_counts=lifted(encoded.prefix_counts) if encoded.prefix_counts is not None else places,
        prefix_counts_by_label={
            label: lifted(prefix) for label, prefix in encoded.prefix_counts_by_label.items()
        },
        unsendable=tuple(kept[index] for index in encoded.unsendable),
        decode_errors=encoded.decode_errors,
        failing=tuple(kept[index] for index in encoded.failing),
    )


def picked(whole: Encoded, kept: Sequence[int]) -> Encoded | None:
    """Pick the fragments of these events out of those of the whole batch. None: some have none, and making
    them anew says why."""
    counts = whole.prefix_counts
    if whole.unsendable or whole.decode_errors or whole.failing or whole.prefix_counts_by_label:
        return None
    if counts is not None and not all(counts[index] < counts[index + 1] for index in kept):
        return None
    bounds, buffer = [0, *whole.ends], whole.buffer
    parts = [buffer[bounds[index] : bounds[index + 1]] for index in kept]
    return spread(Encoded(b"".join(parts), list(accumulate(map(len, parts)))), kept, len(whole.ends))
