"""A query before a wire format: the events that pass, in the form that their format gives them.

The format sees a batch of just those events; its fragments then go back to the places that they have in the
whole batch, where an event that does not pass ends where it began. So the core counts what passes against
credits and limits, and knows nothing of queries.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from kiwi_gw.core.encoding import spread
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import (
    Batch,
    Encoded,
    Field,
    Kind,
    Shape,
    SourceInfo,
    Steps,
    TimeSlice,
    WireFormat,
    at_once,
)
from kiwi_gw.query import effort
from kiwi_gw.query.tree import Query
from kiwi_gw.query.values import Value
from kiwi_gw.query.views import View, view

if TYPE_CHECKING:
    from kiwi_gw.query.compiler import Compiled

_NUMBER: Final = 40
"""Bytes of an integer in a list."""

PROJECTION: Final = "value of the query"
"""The column with the JSON text of a projection."""


def filtered(format: WireFormat, query: Query, compiled: Compiled, info: SourceInfo) -> WireFormat:  # noqa: A002
    """The format for the events that pass. With a projection it must be one for `projected(info)`.

    Raises EncodingFailed for an event that the query cannot be evaluated for, if the source says so.
    """
    decode, selects, key = info.decode, query.select is not None, query.key
    # Whoever filters alike shares what passes, whatever they select.
    where = (query.where.key if query.where is not None else "", compiled.roots)

    def steps(batch: Batch, turn: TimeSlice) -> Steps[Encoded]:
        seen = view(batch, decode)
        yield from seen.decoded(compiled.roots, turn)
        columns = {root: seen.column(root) for root in compiled.roots}
        kept, bad = yield from seen.asked(
            where, lambda: compiled.keeping(columns, len(batch), turn), _numbers
        )
        made = (yield from compiled.projecting(columns, kept, turn, batch.cost)) if selects else []
        if b"" in made:  # could not be evaluated
            bad += made.count(b"")
            kept = [index for index, text in zip(kept, made, strict=True) if text]
            made = [text for text in made if text]
        if bad and decode.close:
            raise EncodingFailed(f"the query cannot be evaluated for {_first_bad(seen, compiled, selects)}")
        if len(kept) == len(batch) and not selects:
            return _whole(batch, format)
        if selects:
            reduced = _reduced(batch, kept)
            part = format.encode(replace(reduced, columns={**reduced.columns, PROJECTION: made}))
        else:
            part = _picked(seen, format, kept) or format.encode(_reduced(batch, kept))
        encoded = spread(part, kept, len(batch))
        return replace(encoded, bad=encoded.bad + bad) if bad else encoded

    return replace(
        format,
        # One string, whose hash is computed once: the key is looked up for every batch.
        key=f"{format.key!r} {key} {decode!r}",
        encode=lambda batch: at_once(steps(batch, TimeSlice())),
        steps=steps,
        chosen=True,
    )


def _numbers(made: tuple[list[int], int]) -> int:
    return _NUMBER * len(made[0])


def projected(info: SourceInfo) -> SourceInfo:
    """The source with a projection in the place of the value, which is then nowhere else."""

    def of(fields: Sequence[Field]) -> tuple[Field, ...]:
        made: list[Field] = []
        value = Field("value", Kind.JSON, PROJECTION)
        for field in fields:
            if field.kind in _ABOUT or field.source_column in _BESIDE:
                made.append(field)
            elif value not in made:
                made.append(value)
        return tuple(made if value in made else [*made, value])

    shape = info.shape
    variants = {name: of(fields) for name, fields in shape.variants.items()}
    return replace(info, shape=Shape(of(shape.fields), variants))


_ABOUT: Final = (Kind.SOURCE_ID, Kind.SOURCE_TYPE)
_BESIDE: Final = ("key", "partition", "offset", "timestamp", "headers", "batch", "row")
"""Columns beside the value of an event."""


def _picked(seen: View, format: WireFormat, kept: Sequence[int]) -> Encoded | None:  # noqa: A002
    """The fragments of these events, out of those of the whole batch; None: they are to be made.

    From the third filter of a batch on, picking them is cheaper than making them again and again.
    """
    asked: list[int] = seen.memo(("filters", format.key), list)
    asked.append(len(kept))
    if len(asked) < _FEW_FILTERS:
        return None
    whole = _whole(seen.batch, format)
    if whole.unsendable or whole.bad or whole.tally is not None:
        return None  # some events have no fragment, and somebody has to say why
    bounds, buffer = [0, *whole.ends], whole.buffer
    parts = [buffer[bounds[index] : bounds[index + 1]] for index in kept]
    return Encoded(b"".join(parts), list(accumulate(map(len, parts))))


def _whole(batch: Batch, format: WireFormat) -> Encoded:  # noqa: A002
    """All of a batch, remembered for the last few, whichever query asks. They are held, so an id means no
    other one."""
    key = id(batch), format.key
    found = _newest.get(key)
    if found is None:
        found = _newest[key] = batch, format.encode(batch)
        if len(_newest) > _WHOLE:
            _newest.popitem(last=False)
    return found[1]


_FEW_FILTERS: Final = 3
_WHOLE: Final = 4  # so many sources may publish at the same time
_newest: Final[OrderedDict[tuple[int, Hashable], tuple[Batch, Encoded]]] = OrderedDict()


def _reduced(batch: Batch, kept: Sequence[int]) -> Batch:
    if len(kept) == len(batch):
        return batch

    def of(column: Sequence[Value]) -> list[Value]:
        return [column[index] for index in kept]

    return Batch(
        starts=batch.starts,
        partitions=[batch.partitions[index] for index in kept],
        offsets=[batch.offsets[index] for index in kept],
        columns={name: of(column) for name, column in batch.columns.items()},
        cost=batch.cost,
    )


def _first_bad(seen: View, compiled: Compiled, selects: bool) -> str:
    """Looked for one by one: it is about to end a subscription."""
    began = time.thread_time()
    for index in range(len(seen)):
        columns = {root: seen.column(root)[index : index + 1] for root in compiled.roots}
        kept, bad = compiled.kept(columns, 1)
        if bad or (selects and b"" in compiled.projected(columns, kept)):
            return f"partition {seen.batch.partitions[index]}, offset {seen.batch.offsets[index]}"
        if time.thread_time() - began > effort.SECONDS:
            break
    return "an event"
