"""Compare what was produced with the events and notices that one client got. Pure: no I/O, no clock.

One checker for simulated, integration and long runs. A history is what one client received, in order: runs
of consecutive offsets of a partition, LAG notices, SUBSCRIPTION_CLOSED, and, where it came back, where its
next subscription began. `judge` looks at sets and order of (partition, offset), never at counts alone; a
history without a fault means: received and given up are disjoint, together they are what was produced, every
gap was announced before the first event behind it, and every value is the one that was produced there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.faults.offsets import Offsets, Places, both, minus, places

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True)
class Run:
    """Hold events with the offsets `first` to `last` of a partition, received one after the other.

    at: when the last of them came, in seconds. values: of each event, where the client kept them.
    """

    partition: int
    first: int
    last: int
    at: float | None = None
    values: tuple[object, ...] | None = None


@dataclass(frozen=True, slots=True)
class Lag:
    """Hold a LAG notice. ranges: first and last offset given up, per partition; dropped: how many events."""

    behind: int
    dropped: int | None
    count: int
    ranges: Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Closed:
    """Hold a SUBSCRIPTION_CLOSED notice. positions: next offset per partition; dropped: not given."""

    reason: str
    dropped: int | None
    positions: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Resumed:
    """Note that the client has subscribed again, from these positions (next offset per partition) on.

    What it had received behind them comes again by its own wish, and is not a duplicate.
    """

    positions: Mapping[int, int]


Item = Run | Lag | Closed | Resumed


@dataclass(frozen=True, slots=True)
class Facts:
    """Hold what the producer knows beside the offsets.

    values: of each record that was acknowledged. sent_at: when it was handed to the producer, in seconds on
    the clock of the runs' `at`. failed: values of records whose production failed: each may be in the topic,
    or not, and no client needs to have it.
    """

    values: Mapping[Place, object] = field(default_factory=dict)
    sent_at: Mapping[Place, float] = field(default_factory=dict)
    failed: frozenset[object] = frozenset()


NO_FACTS = Facts()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Say what is wrong with one history; empty members where nothing is.

    lost: produced, neither received nor announced as given up. duplicate: received twice. reorder:
    received after a later one of its partition. skip_unannounced: passed over before any notice said so.
    announced_but_delivered: announced as given up, and received. invented: received, but never produced.
    altered: received with another value than the produced one. miscounted: the sum of `dropped`, where it is
    not the number of events that the ranges held. stuck: seconds that the oldest record still missing at the
    end has been waited for; 0 where none is. worst_lag: longest time in seconds from producing a record to
    receiving it; a figure, not a fault.
    """

    lost: Places = field(default_factory=dict)
    duplicate: Places = field(default_factory=dict)
    reorder: Places = field(default_factory=dict)
    skip_unannounced: Places = field(default_factory=dict)
    announced_but_delivered: Places = field(default_factory=dict)
    invented: Places = field(default_factory=dict)
    altered: Places = field(default_factory=dict)
    miscounted: int | None = None
    stuck: float = 0.0
    worst_lag: float = field(default=0.0, compare=False)


def produced(ends: Mapping[int, int], starts: Mapping[int, int] | None = None) -> Places:
    """Return the records of a topic without holes: `ends` and `starts` are next offsets per partition."""
    starts = starts or {}
    return {p: Offsets([(starts.get(p, 0), end - 1)]) for p, end in ends.items() if end > starts.get(p, 0)}


def received(history: Sequence[Item]) -> Places:
    """Return all that came."""
    return places((item.partition, item.first, item.last) for item in history if isinstance(item, Run))


def announced(history: Sequence[Item]) -> Places:
    """Return all that LAG notices said was given up (their ranges may hold offsets without a record)."""
    return places((p, *ends) for item in history if isinstance(item, Lag) for p, ends in item.ranges.items())


def judge(
    history: Sequence[Item], produced: Places, facts: Facts = NO_FACTS, *, until: float | None = None
) -> Verdict:
    """Judge the history of one client whose first subscription began with the first of `produced`.

    produced: every record that was acknowledged. until: when the history ends, if it may end too early: what
    is missing by then is what the client is stuck at. Without it, what is missing is only lost.
    """
    walk = _Walk(produced, facts)
    for item in history:
        walk.take(item)
    came, told = received(history), announced(history)
    dropped = [item.dropped for item in history if isinstance(item, Lag)]
    given_up = sum(len(offsets) for offsets in both(told, produced).values())
    counted = sum(count for count in dropped if count is not None)
    lost = minus(produced, came, told)
    return Verdict(
        lost=lost,
        duplicate=places(walk.duplicate),
        reorder=places(walk.reorder),
        skip_unannounced=places(walk.skipped),
        announced_but_delivered=both(told, came),
        invented=minus(came, produced, places(walk.uncertain)),
        altered=places(walk.altered),
        miscounted=None if None in dropped or counted == given_up else counted,
        stuck=0.0 if until is None else _waited(lost, facts, until),
        worst_lag=walk.worst_lag,
    )


def _waited(lost: Places, facts: Facts, until: float) -> float:
    firsts = ((partition, next(iter(offsets))[0]) for partition, offsets in lost.items())
    return max((until - facts.sent_at[place] for place in firsts if place in facts.sent_at), default=0.0)


class _Walk:
    """Judge what depends on the order, and on single events."""

    def __init__(self, produced: Places, facts: Facts) -> None:
        self.duplicate: list[tuple[int, int, int]] = []
        self.reorder: list[tuple[int, int, int]] = []
        self.skipped: list[tuple[int, int, int]] = []
        self.altered: list[tuple[int, int, int]] = []
        self.uncertain: list[tuple[int, int, int]] = []
        self.worst_lag = 0.0
        self._produced = produced
        self._facts = facts
        self._next = {p: next(iter(offsets))[0] for p, offsets in produced.items()}
        self._came: dict[int, list[tuple[int, int]]] = {}
        self._told: dict[int, list[tuple[int, int]]] = {}

    def take(self, item: Item) -> None:
        match item:
            case Lag():
                for partition, ends in item.ranges.items():
                    self._told.setdefault(partition, []).append(ends)
            case Run():
                self._run(item.partition, item.first, item.last)
                self._look_at_events(item)
            case Resumed():
                for partition, position in item.positions.items():
                    self._resume(partition, position)
            case Closed():
                pass

    def _run(self, partition: int, first: int, last: int) -> None:
        expected = self._next.get(partition, first)
        came = self._came.setdefault(partition, [])
        if first > expected:
            self._skip(partition, expected, first)
        elif first < expected:
            again = Offsets([(first, min(last, expected - 1))])
            before = Offsets(came)
            self.duplicate.extend((partition, *part) for part in again.common(before))
            self.reorder.extend((partition, *part) for part in again.without(before))
        came.append((first, last))
        self._next[partition] = max(expected, last + 1)

    def _skip(self, partition: int, expected: int, first: int) -> None:
        gap = self._produced.get(partition, Offsets()).within(expected, first - 1)
        for low, high in gap.without(Offsets(self._told.get(partition, ()))):
            self.skipped.append((partition, low, high))

    def _resume(self, partition: int, position: int) -> None:
        expected = self._next.get(partition, position)
        if position > expected:
            self._skip(partition, expected, position)
        kept = Offsets(self._came.get(partition, ())).within(0, position - 1)
        self._came[partition] = list(kept)
        self._next[partition] = position

    def _look_at_events(self, run: Run) -> None:
        values, sent_at = self._facts.values, self._facts.sent_at
        if run.values is None and (run.at is None or not sent_at):
            return
        for index, offset in enumerate(range(run.first, run.last + 1)):
            place = (run.partition, offset)
            if run.values is not None:
                value = run.values[index]
                if place in values and values[place] != value:
                    self.altered.append((*place, offset))
                elif place not in values and value in self._facts.failed:
                    self.uncertain.append((*place, offset))
            if run.at is not None and place in sent_at:
                self.worst_lag = max(self.worst_lag, run.at - sent_at[place])
