"""The bounds of one source, the states of its life, and what is granted to those who subscribe to it."""

from __future__ import annotations

import enum
from collections.abc import Set
from dataclasses import dataclass
from functools import lru_cache

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.commands import Open
from kiwi_gw.core.overflow import OverflowTerms
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import OverflowPolicy


@dataclass(frozen=True, slots=True)
class HubLimits:
    """Bounds of one source. Times in seconds; `buffer_capacity` 0 means the window's events,
    `lag_threshold` 0 half of a subscription's capacity. `overflow_words`: why one ends whose policy is
    `close`; empty: as it is so many events behind."""

    window_events: int = 65_536
    window_bytes: int = 64 * 1024 * 1024
    buffer_capacity: int = 0
    lag_threshold: int = 0
    lag_interval: float = 1.0
    overflow: OverflowPolicy = OverflowPolicy.DROP_OLDEST
    overflow_words: str = ""
    subscribe_timeout: float = 5.0
    max_wire_keys: int = 1_000
    wire_keys_identity: int = 250
    wire_keys_connection: int = 64
    direct_bytes: int = 256 * 1024
    slice_seconds: float = 0.005
    history_readers: int = 4
    history_events: int = 65_536
    history_bytes: int = 16 * 1024 * 1024
    allow: Set[OverflowPolicy] = frozenset(OverflowPolicy) - {OverflowPolicy.BLOCK}
    block_timeout: float = 30.0
    block_fallback: OverflowPolicy = OverflowPolicy.DROP_OLDEST
    last_values: bool = False
    last_values_keys: int = 100_000
    last_values_bytes: int = 16 * 1024 * 1024


class HubState(enum.Enum):
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    REMOVED = "removed"
    FAILED = "failed"


def policies(limits: HubLimits, *, replayable: bool) -> set[OverflowPolicy]:
    """List what a subscription may ask for: what is allowed, and the source can do."""
    found = {limits.overflow, *limits.allow}
    if not replayable:
        found.discard(OverflowPolicy.REPLAY)
    if not limits.last_values:
        found.discard(OverflowPolicy.LATEST)
    return found


def grant(command: Open, limits: HubLimits, offered: set[OverflowPolicy]) -> OverflowTerms:
    """Clamp what is asked for to what there is. Raises SubscribeRefused."""
    policy = command.overflow or limits.overflow
    if policy not in offered:
        there = ", ".join(item.value for item in OverflowPolicy if item in offered)
        raise SubscribeRefused(
            RefusalCode.OVERFLOW, f"{policy.value} is not available here; there is {there}"
        )
    most = min(limits.buffer_capacity or limits.window_events, limits.window_events)
    capacity = max(1, min(command.buffer_capacity or most, most))
    threshold = min(limits.lag_threshold or max(1, capacity // 2), capacity)
    acting = limits.block_fallback if policy is OverflowPolicy.BLOCK else policy
    return _shared_terms(policy, acting, capacity, threshold)


_shared_terms = lru_cache(maxsize=256)(OverflowTerms)
"""One object for all that were granted the same."""
