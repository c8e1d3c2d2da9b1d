"""How batches become the bytes that clients get."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kiwi_gw.model.batch import Batch


@dataclass(frozen=True, slots=True)
class Encoded:
    """Hold the fragments of one batch for one wire key: one buffer and where each event ends in it.

    ends: as long as the batch; an event that yields nothing (filtered, withheld) ends where it began.
    prefix_counts: of the events that yield something, one longer than the batch; None: all do.
    prefix_counts_by_label: the same by label, for a dialect whose fragments serve several limits at once.
    unsendable: indexes of events that were given up for their size, ascending. decode_errors: how many events
    could not be encoded or evaluated. failing: indexes of such events that end whoever comes to them
    (`on_bad_record: close`), ascending; they yield nothing, and do not count as errors before that.
    """

    buffer: bytes
    ends: Sequence[int]
    prefix_counts: Sequence[int] | None = None
    prefix_counts_by_label: Mapping[Hashable, Sequence[int]] = field(default_factory=dict)
    unsendable: tuple[int, ...] = ()
    decode_errors: int = 0
    failing: tuple[int, ...] = ()

    def prefix_counts_of(self, label: Hashable) -> Sequence[int] | None:
        """Return the prefix counts of a label, `prefix_counts` for one that has none. None: all count."""
        return self.prefix_counts_by_label.get(label, self.prefix_counts)


@dataclass(frozen=True, slots=True)
class Framing:
    """Put many fragments into one frame: what `head` makes, the fragments, `tail`.

    head: makes what stands before fragments of so many bytes. separator: how many bytes end every fragment
    and are left out behind the last one of a frame. max_bytes: of the fragments of one frame; one that is
    larger has a frame to itself.
    """

    head: Callable[[int], bytes]
    tail: bytes
    separator: int
    max_bytes: int

    def parts(self, runs: Sequence[memoryview]) -> list[memoryview | bytes]:
        """Make what is to be sent of one frame, in this order. runs: of fragments. Nothing is copied."""
        *before, last = runs
        inside = last[: len(last) - self.separator]
        return [self.head(sum(map(len, before)) + len(inside)), *before, inside, self.tail]


T = TypeVar("T")


Steps = Generator[None, None, T]
"""Work that yields where its turn is over, goes on when it is next looked at, and returns what it made."""


@dataclass(slots=True)
class TimeSlice:
    """Say how long the evaluation of a batch may go on before it gives way: until the clock says so.

    held: bytes of what was made so far, kept up by its maker. clock: monotonic seconds.
    """

    until: float = math.inf
    clock: Callable[[], float] = time.monotonic
    held: int = 0

    @property
    def over(self) -> bool:
        return self.until != math.inf and self.clock() >= self.until

    def pause(self) -> Steps[None]:
        """Give way if it is over: what comes next takes a tenth of a millisecond or more for a batch."""
        if self.over:
            yield


def at_once(steps: Steps[T]) -> T:
    """Take all the steps, one after the other."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            made: T = done.value
            return made


@dataclass(frozen=True, slots=True)
class Transformed:
    """Hold what a transform has left of a batch.

    kept: indexes of the events that stay, ascending; None: all of them. columns: those that are not as
    before, by name, each with one value for every event that stays. bad: indexes of the events that it could
    not be evaluated for; failing: of others, which end whoever comes to them. Both are of the batch that it
    was given, in any order.
    """

    kept: Sequence[int] | None = None
    columns: Mapping[str, Sequence[object]] = field(default_factory=dict)
    bad: Sequence[int] = ()
    failing: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class EventTransform:
    """Change or withhold the events of a source for some clients, as one link of a chain.

    apply: must be pure: the same batch always gives the same. It does not change the batch.
    key: clients whose links have equal keys share the encoded bytes; None shares with no other.
    steps: the same as `apply`, in turns: where what a client asks for (a query) may take long.
    """

    apply: Callable[[Batch], Transformed]
    key: Hashable | None = None
    steps: Callable[[Batch, TimeSlice], Steps[Transformed]] | None = None


@dataclass(frozen=True, slots=True)
class WireFormat:
    """Say how one dialect writes the events of one source.

    key: everything that decides the bytes, but `transform`: equal keys share them. `encode` must be pure.
    framing: None, each fragment is a whole frame; else what stands around a run of them. It is a
    subscription's own and no part of the key: the fragments are shared, the frame need not be.
    steps: the same as `encode`, in turns: where what a client asks for (patterns) may take long.
    chosen: whether a client has chosen parts of the key, so that there may be any number of them.
    transform: what the client has asked to be done to events before they are written (a query).
    """

    key: Hashable
    encode: Callable[[Batch], Encoded]
    framing: Framing | None = None
    steps: Callable[[Batch, TimeSlice], Steps[Encoded]] | None = None
    chosen: bool = False
    transform: EventTransform | None = None


Record = Mapping[str, object]
"""One event as an interceptor sees it: the batch's columns by name, with `partition` and `offset`."""


@dataclass(frozen=True, slots=True)
class Interceptor:
    """Change or withhold one event after the other: simpler than an `EventTransform`, and ten times as slow.
    It changes only columns that the batch has.

    apply: must be pure: the same record always gives the same answer. It returns the record, a changed copy,
    or None to withhold it. key: as that of a transform.
    """

    apply: Callable[[Record], Record | None]
    key: Hashable | None = None
