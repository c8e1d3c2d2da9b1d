"""What one subscription may be sent, and what it was sent: credits, limits, its end, its counters."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Mapping
from typing import Final

from kiwi_gw.core.commands import LabelLimit, Tally
from kiwi_gw.core.prepared import Prepared, Segment, count, nearest_stop
from kiwi_gw.core.window import WindowEntry
from kiwi_gw.model import Encoded, Framing, Mode, Positions

_PULL: Final = Mode.PULL
"""A member of an enum costs as much to look up as all else that is counted for a send (CPython 3.11)."""

MAX_CREDIT = 2**53 - 1
"""Where a balance saturates: the largest integer that JSON clients hold exactly."""


class DeliveryBounds:
    """What bounds a subscription beside its balance, and who counts what it passes.

    limits: by label. until: positions, nothing at or beyond them is sent. tally: see `commands.Tally`.
    """

    __slots__ = ("limits", "tally", "until")

    def __init__(
        self, limits: Mapping[Hashable, LabelLimit], until: Positions | None, tally: Tally | None
    ) -> None:
        self.limits = dict(limits)
        self.until = until
        self.tally = tally

    def within_limits(self, prepared: Prepared, encoded: Encoded, first: int, stop: int) -> int:
        """Find where, from event `first` up to `stop`, a limit is reached behind what is prepared already."""
        for label, limit in self.limits.items():
            taken = sum(count(s.encoded.prefix_counts_of(label), s.first, s.last) for s in prepared.segments)
            stop = min(stop, nearest_stop(encoded.prefix_counts_of(label), first, limit.left - taken))
        return stop

    def before_until(self, entry: WindowEntry, first: int, stop: int) -> int:
        """Find where, from event `first` up to `stop`, the first event lies that was not asked for."""
        if self.until is None:
            return stop
        partitions, offsets = entry.batch.partitions, entry.batch.offsets
        if first < stop and partitions[first:stop].count(partition := partitions[first]) == stop - first:
            return bisect_left(offsets, self.until.get(partition, 0), first, stop)
        index = first
        while index < stop and offsets[index] < self.until.get(partitions[index], 0):
            index += 1
        return index

    def passed(self, entry: WindowEntry, encoded: Encoded, first: int, stop: int) -> None:
        """Count these events of an entry: they were sent, or cannot be."""
        for label, limit in self.limits.items():
            limit.left -= count(encoded.prefix_counts_of(label), first, stop)
        if self.tally is not None:
            self.tally.passed(entry.batch, encoded, first, stop)


NO_BOUNDS: Final = DeliveryBounds({}, None, None)
"""Shared by all that are sent everything as it is, as far as their balance goes: most are."""


class Delivery:
    """See the top of this file.

    framing: what stands around its fragments (`model.WireFormat`). credits: the balance of a pull
    subscription. stopped: a limit is used up, and nothing is sent until there are others. scanned, matched,
    decode_errors: events that were passed, that yielded bytes, that could not be decoded; bytes: of all that
    were sent.
    """

    __slots__ = (
        "bounds",
        "bytes",
        "credits",
        "decode_errors",
        "framing",
        "matched",
        "mode",
        "scanned",
        "stopped",
    )

    def __init__(
        self,
        mode: Mode,
        credits: int,  # noqa: A002
        limits: Mapping[Hashable, LabelLimit],
        until: Positions | None,
        framing: Framing | None,
        tally: Tally | None = None,
    ) -> None:
        self.mode = mode
        self.framing = framing
        self.credits = min(credits, MAX_CREDIT)
        self.bounds = _bounds(limits, until, tally)
        self.stopped = False
        self.scanned = self.matched = self.decode_errors = self.bytes = 0

    def reform(self, limits: Mapping[Hashable, LabelLimit], framing: Framing | None) -> bool:
        """Go on with other limits and other frames around fragments. Returns whether it had stopped."""
        self.bounds = _bounds(limits, self.bounds.until, self.bounds.tally)
        self.framing = framing
        stopped, self.stopped = self.stopped, False
        return stopped

    def end_at(self, until: Positions) -> None:
        """Send nothing at or beyond these positions."""
        self.bounds = _bounds(self.bounds.limits, until, self.bounds.tally)

    # --- what may be sent ------------------------------------------------------------------

    def add_credit(self, n: int) -> int:
        """Add to the balance, which saturates. Returns it."""
        self.credits = min(self.credits + n, MAX_CREDIT)
        return self.credits

    @property
    def waits_for_client(self) -> bool:
        """Whether nothing may be sent until the client grants credit, or there are other limits."""
        return self.stopped or (self.mode is Mode.PULL and self.credits <= 0)

    @property
    def unbounded(self) -> bool:
        """Whether only the balance bounds what is sent."""
        return self.bounds is NO_BOUNDS

    def allowance(self, max_events: int | None) -> int:
        """Say how many events may be sent, at most so many."""
        most = MAX_CREDIT if self.mode is Mode.PUSH else self.credits
        return most if max_events is None else min(most, max_events)

    def take_reached_limit(self) -> tuple[Hashable] | None:
        """Forget a limit that is used up, and return its label in a tuple; None: there is none. Stop, unless
        it is the limit of all events (label None)."""
        bounds = self.bounds
        if self.stopped or bounds is NO_BOUNDS:
            return None
        for label, limit in bounds.limits.items():
            if limit.left <= 0:
                rest = {other: limit for other, limit in bounds.limits.items() if other != label}
                self.bounds = _bounds(rest, bounds.until, bounds.tally)
                self.stopped = label is not None
                return (label,)
        return None

    # --- what was sent ---------------------------------------------------------------------

    def sent_whole(self, scanned: int, events: int, decode_errors: int, size: int) -> None:
        """Count all of an entry as sent. events: those that yield bytes, in all `size`. Its numbers are
        worked out once for all who are sent it."""
        self.scanned += scanned
        self.matched += events
        self.bytes += size
        if decode_errors:
            self.decode_errors += decode_errors
        if self.mode is _PULL:
            self.credits -= events

    def sent(self, segment: Segment, upto: int) -> int:
        """Count the events of a segment up to this index of its entry as sent. Returns how many have
        bytes."""
        encoded = segment.encoded
        events = count(encoded.prefix_counts, segment.first, upto)
        self.scanned += upto - segment.first
        self.matched += events
        if segment.first == 0:
            self.decode_errors += encoded.decode_errors
        if self.mode is _PULL:
            self.credits -= events
        if self.bounds is not NO_BOUNDS:
            self.bounds.passed(segment.entry, encoded, segment.first, upto)
        return events


def _bounds(
    limits: Mapping[Hashable, LabelLimit], until: Positions | None, tally: Tally | None
) -> DeliveryBounds:
    bounded = limits or until is not None or tally is not None
    return DeliveryBounds(limits, until, tally) if bounded else NO_BOUNDS
