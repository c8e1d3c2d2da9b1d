"""Putting together what a subscription may be sent: from where its cursor is, as far as it may be delivered.

Theory of operation. What is prepared is a run of events of one entry and of those behind it. Before that run
there may be events that are not sent: below the resume floor, not asked for, or not to be encoded. The cursor
steps over them one run at a time, and `assemble` then says `STEPPED`: the subscription looks whether that
has brought it to an end, a limit or the head, and asks again. Beyond that nothing moves until it is
committed.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from typing import Final, Protocol

from kiwi_gw.core.delivery import NO_BOUNDS, DeliveryBounds
from kiwi_gw.core.lag_ledger import LagLedger
from kiwi_gw.core.prepared import Prepared, Segment, furthest_stop
from kiwi_gw.core.window import WindowEntry
from kiwi_gw.core.window_cursor import WindowCursor
from kiwi_gw.errors import EventFailed
from kiwi_gw.model import Encoded, Framing

_MAX_SEGMENTS: Final = 64
"""Entries joined into one send, at most (the kernel takes 1,024 buffers in a call)."""


class AssemblyOutcome(enum.Enum):
    STEPPED = "stepped"
    """The cursor has moved, or a limit that others share is used up."""


STEPPED: Final = AssemblyOutcome.STEPPED


class EncodeEntry(Protocol):
    """Gives the fragments of an entry; None: not yet. wait: wake the reader when they are there.

    Raises EncodingFailed.
    """

    def __call__(self, entry: WindowEntry, *, wait: bool) -> Encoded | None: ...


def assemble(
    cursor: WindowCursor,
    bounds: DeliveryBounds,
    ledger: LagLedger,
    encode: EncodeEntry,
    max_bytes: int,
    allowance: int,
    *,
    framing: Framing | None = None,
    ending: bool,
) -> Prepared | AssemblyOutcome | None:
    """Put together what may be sent now: at most `allowance` events and `max_bytes` bytes, or one event. None
    if nothing may. framing: of the subscription; what it adds does not count. ending: events that yield no
    bytes are passed without credit.

    Raises EventFailed where the next event ends whoever comes to it, EncodingFailed.
    """
    prepared = Prepared([], 0, 0, [])
    entry = cursor.entry
    if entry is None or (not allowance and not ending):
        return None
    most = max_bytes if framing is None else min(max_bytes, framing.max_bytes)
    found = _first(prepared, cursor, bounds, ledger, encode, entry, allowance, most)
    if not isinstance(found, Segment):
        return found
    while cursor.resume_floor is None and (prepared.events < allowance or ending):
        if (
            len(prepared.segments) >= _MAX_SEGMENTS
            or (following := _following(found, cursor, framing)) is None
        ):
            break
        entry, first = following
        if (encoded := encode(entry, wait=False)) is None:
            break
        room, left = min(most, max_bytes - prepared.size), allowance - prepared.events
        stop = _stop(prepared, bounds, encoded, entry, first, len(entry.batch), left)
        start = encoded.ends[first - 1] if first else 0
        if stop <= first or (stop := bisect_right(encoded.ends, start + room, first, stop)) <= first:
            break
        found = prepared.add(entry, encoded, first, stop)
    if framing is not None:
        prepared.put_into(framing)
    return prepared


def _following(
    found: Segment, cursor: WindowCursor, framing: Framing | None
) -> tuple[WindowEntry, int] | None:
    """Say which event comes behind a segment, by entry and index; None: nothing may be added to it. The rest
    of the same entry is what did not fit into a frame."""
    if found.last < len(found.entry.batch):
        return None if framing is None else (found.entry, found.last)
    following = found.entry.next
    return None if following is None or cursor.misses(following) else (following, 0)


def _first(
    prepared: Prepared,
    cursor: WindowCursor,
    bounds: DeliveryBounds,
    ledger: LagLedger,
    encode: EncodeEntry,
    entry: WindowEntry,
    allowance: int,
    max_bytes: int,
) -> Segment | AssemblyOutcome | None:
    """Add the run of events that the cursor is at, or step over what is not sent."""
    first, stop = cursor.seq - entry.base, len(entry.batch)
    if first >= stop:  # an entry without events
        cursor.step(entry)
        return STEPPED
    if cursor.resume_floor is not None:
        first, stop = cursor.above_floor(entry, cursor.resume_floor)
        if first == stop:
            return STEPPED
    if bounds is not NO_BOUNDS and bounds.before_until(entry, first, first + 1) == first:
        cursor.move(entry, first + 1)
        return STEPPED
    encoded = encode(entry, wait=True)
    if encoded is None:
        return None
    if first in encoded.failing:
        place = f"partition {entry.batch.partitions[first]}, offset {entry.batch.offsets[first]}"
        raise EventFailed(f"the event cannot be decoded, or its query not be evaluated: {place}")
    if first in encoded.unsendable:
        offset = entry.batch.offsets[first]
        ledger.add(1, {entry.batch.partitions[first]: (offset, offset)})
        bounds.passed(entry, encoded, first, first + 1)
        cursor.move(entry, first + 1)
        return STEPPED
    if bounds is not NO_BOUNDS and bounds.within_limits(prepared, encoded, first, stop) <= first:
        return STEPPED
    stop = _stop(prepared, bounds, encoded, entry, first, stop, allowance)
    if stop <= first:
        return None  # it has no credit for the next one
    start = encoded.ends[first - 1] if first else 0
    fitting = bisect_right(encoded.ends, start + max_bytes, first, stop)
    return prepared.add(entry, encoded, first, max(fitting, first + 1))  # one event, whatever its size


def _stop(
    prepared: Prepared,
    bounds: DeliveryBounds,
    encoded: Encoded,
    entry: WindowEntry,
    first: int,
    stop: int,
    allowance: int,
) -> int:
    """Say how far the events from `first` up to `stop` may be sent, by everything but their size."""
    stop = min(stop, furthest_stop(encoded.prefix_counts, first, allowance))
    for marked in (encoded.unsendable, encoded.failing):
        following = bisect_left(marked, first)
        if following < len(marked):
            stop = min(stop, marked[following])
    if bounds is not NO_BOUNDS:
        stop = bounds.before_until(entry, first, stop)
        stop = bounds.within_limits(prepared, encoded, first, stop)
    return stop
