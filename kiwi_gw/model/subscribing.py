"""How a subscription begins, is read, falls behind and ends."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class StartAt(enum.Enum):
    """Where a subscription begins, by name."""

    LATEST = "latest"  # with the next event
    EARLIEST = "earliest"  # with the first event that the source still has
    SNAPSHOT = "snapshot"  # with the newest event of every key, then the next one


@dataclass(frozen=True, slots=True)
class AtTime:
    """Begin in every partition at the first event with this timestamp (ms since the epoch) or a later one.
    partitions: in others, with the next to come; None: it is meant for all."""

    timestamp: int
    partitions: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class AtPositions:
    """Begin at `positions`, in the JSON form of the source's codec; a partition that is not named: its first
    event.

    skip_missing: events that the source no longer has are a loss that is announced; else a refusal.
    """

    positions: object
    skip_missing: bool = False


@dataclass(frozen=True, slots=True)
class AtOffset:
    """Begin in every partition with the event that has this offset, the first one behind it, or the next to
    come. partitions: in others, with the next to come; None: it is meant for all."""

    offset: int
    partitions: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """Begin where this group has committed; in a partition without a commit, with the next event. Events that
    the source no longer has are a loss that is announced."""

    group: str


Start = StartAt | AtTime | AtOffset | AtPositions | Committed


class Until(enum.Enum):
    """Where a subscription ends, by name."""

    END = "end"  # where the source's end was when that was asked for


@dataclass(frozen=True, slots=True)
class UntilOffset:
    """End in every partition before the event that has this offset or a later one, at the latest where the
    source's end was when that was asked for. partitions: others are not read at all; None: all are."""

    offset: int
    partitions: frozenset[int] | None = None


End = Until | UntilOffset
"""An end that is known only when the source has been asked where its own is."""


class Mode(enum.Enum):
    """How events come: as they are there, or as many as were asked for."""

    PUSH = "push"
    PULL = "pull"


class OverflowPolicy(enum.Enum):
    """What happens to a subscription more than `buffer_capacity` events behind."""

    REPLAY = "replay"
    DROP_OLDEST = "drop_oldest"
    LATEST = "latest"
    BLOCK = "block"
    CLOSE = "close"


class CloseReason(enum.Enum):
    """Say why a subscription ended, as `reason` in SUBSCRIPTION_CLOSED."""

    ENDED = "ended"
    REMOVED = "removed"
    ALTERED = "altered"
    CHANGED = "changed"
    FAILED = "failed"
    OVERFLOW = "overflow"
    UNAUTHORIZED = "unauthorized"
    LIMIT = "limit"
    UNTIL = "until"
    UNSUBSCRIBED = "unsubscribed"
    DISCONNECTED = "disconnected"
