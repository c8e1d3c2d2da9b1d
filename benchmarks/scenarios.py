"""What is measured: the scenarios and the systems that each of them compares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

System = Literal["gateway", "push", "ceiling", "best ceiling", "peer", "getmany"]
"""`gateway`: ours, as the scenario says. `push`: ours, with push subscribers. `ceiling`: ready-made frames
in slices as large as the gateway's mean one; `best ceiling`: in the best of several sizes. `peer`: the plain
asyncio server. `getmany`: no server, only reading from Kafka."""

SYSTEMS: tuple[System, ...] = ("gateway", "push", "ceiling", "best ceiling", "peer", "getmany")
OURS: tuple[System, ...] = ("gateway", "push")
FROM_KAFKA: tuple[System, ...] = ("gateway", "push", "peer", "getmany")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario with its sizes.

    records: how many are measured, after `warm` others. peer_part: the peer gets one peer_part-th of
    both, so that its run does not last forever (a rate is a rate). size: bytes of a record's value.
    credits: what a pull subscriber's balance is renewed to when half of it is used. batch_bytes: of a
    Kafka batch.
    """

    name: str
    says: str
    systems: tuple[System, ...]
    subscribers: int
    records: int
    warm: int = 4_000
    peer_part: int = 1
    size: int = 128
    partitions: int = 4
    batch_bytes: int = 64 * 1024
    mode: Literal["push", "pull"] = "push"
    credits: int = 10_000

    def of(self, system: System) -> Scenario:
        """What one system gets of it."""
        if system == "peer":
            part = self.peer_part
            return replace(
                self, warm=max(1, self.warm // part), records=max(1, self.records // part), mode="push"
            )
        if system == "getmany":
            return replace(self, subscribers=1, mode="push")
        return self if system == "gateway" else replace(self, mode="push")

    @property
    def total(self) -> int:
        return self.warm + self.records


SCENARIOS = (
    Scenario(
        name="fanout",
        says="every record to push subscribers, none lost",
        systems=("gateway", "ceiling", "best ceiling", "peer"),
        subscribers=100,
        records=100_000,
        peer_part=20,
    ),
    Scenario(
        name="fanout-1000",
        says="every record to push subscribers, none lost",
        systems=("gateway", "ceiling", "best ceiling", "peer"),
        subscribers=1_000,
        records=10_000,
        peer_part=20,
        warm=1_000,
    ),
    Scenario(
        name="pull",
        says="every record to pull subscribers, whose credits are renewed at half",
        systems=("gateway", "push", "ceiling"),
        subscribers=100,
        records=100_000,
        mode="pull",
    ),
    Scenario(
        name="single",
        says="every record to one push subscriber, none lost",
        systems=("gateway", "ceiling", "peer", "getmany"),
        subscribers=1,
        records=400_000,
        peer_part=4,
    ),
)
