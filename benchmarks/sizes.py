"""How large a run is: what a scenario fixes and the command line changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from benchmarks.protocols import Protocol


@dataclass(frozen=True, slots=True)
class Sizes:
    """Hold the sizes of a run.

    subscribers: connections with one subscription each, dealt to the topics in turn. records: how many are
    measured per topic, after `warm` others; with a `rate` (records per second of each topic) they are
    those of `seconds`, and the last `steady` of the warm-up come at the rate, too: a broker that has just
    made its topics is late with their first records. size: bytes of a record's value. credits: what a pull
    subscriber's balance is renewed to when half of it is used. batch_bytes: of a Kafka batch.
    stalled: further subscribers that do not read. attackers: further clients that use all they may.
    delays: how many note when they receive (0: only the events are checked, which costs the least).
    churn: subscribers that go and come per second. tls: encrypted connections. pin: the server alone on
    the first core, everything else on the others. peer_part: the peer gets one peer_part-th of the
    records, so that its run does not last forever (a rate is a rate). per_batch: most records of a micro-
    batch of Spark. slices: bytes of a send that are tried for the best ceiling. subscribe: further
    members of SUBSCRIBE. queries: so many different ones are dealt to the subscribers, which let
    everything pass (0: none). source: further members of every source. protocol: of the subscribers; sets:
    so many of them have events of other bytes each. settings: over the gateway's defaults, nested.
    """

    subscribers: int = 100
    records: int = 100_000
    warm: int = 4_000
    steady: int = 0
    rate: int = 0
    seconds: float = 10.0
    size: int = 128
    partitions: int = 4
    topics: int = 1
    batch_bytes: int = 64 * 1024
    mode: Literal["push", "pull", "mixed"] = "push"
    credits: int = 10_000
    stalled: int = 0
    attackers: int = 0
    delays: int = 0
    periods: int = 1
    churn: float = 0.0
    tls: bool = False
    pin: bool = False
    peer_part: int = 1
    per_batch: int = 100_000
    slices: tuple[int, ...] = (16 * 1024, 64 * 1024, 128 * 1024, 256 * 1024)
    subscribe: Mapping[str, object] = field(default_factory=dict)
    queries: int = 0
    source: Mapping[str, object] = field(default_factory=dict)
    protocol: Protocol = "kiwi"
    sets: int = 1
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def measured(self) -> int:
        """Return how many records of each topic are measured."""
        return max(1, round(self.rate * self.seconds)) if self.rate else self.records

    @property
    def total(self) -> int:
        """Return the number of records of each topic, with those of the warm-up."""
        return self.warm + self.measured

    def for_peer(self) -> Sizes:
        """Return what the plain peer gets of it."""
        part = self.peer_part
        return replace(
            self, warm=max(1, self.warm // part), records=max(1, self.records // part), mode="push"
        )
