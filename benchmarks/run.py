"""What one run gave."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

System = Literal[
    "gateway",
    "push",
    "plain",
    "bare gateway",
    "ceiling",
    "best ceiling",
    "peer",
    "getmany",
    "target",
    "plain Spark",
]
"""`gateway`: ours, as the scenario says. `push`, `plain`, `bare gateway`: ours with push subscribers, without
TLS, without metrics and limits. `ceiling`: ready-made frames in slices as large as the gateway's mean one;
`best ceiling`: in the best of several sizes. `peer`: the plain asyncio server. `getmany`: no server, only
reading from Kafka. `target`: a server that was started elsewhere. `plain Spark`: the query of a Spark
source without the gateway, its rows going nowhere."""

SYSTEMS: tuple[System, ...] = System.__args__  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Run:
    """Hold what one run gave. seconds: from before the first record to the last event of the last client.

    cpu: seconds of processor time of the server (gateway, peer, ceiling, or what reads with getmany) and of
    the client; where Kafka is in the loop, of producer and broker, too. faults: what is wrong with what was
    read; a run that has any is void. control: frames that were not events, by type. frame: mean bytes of an
    event on the wire. receive: mean bytes of what the load client received at a time. delays: from produce to
    receive, ms, by percentile, and `periods` with the p99 of equal parts of the run. late: how late the
    producer was, likewise. counts: whatever else was counted.
    """

    deliveries: int
    records: int
    seconds: float
    cpu: dict[str, float]
    faults: list[str]
    control: dict[str, int]
    frame: float
    receive: float
    delays: dict[str, Any] = field(default_factory=dict)
    late: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Return deliveries per second."""
        return self.deliveries / self.seconds

    @property
    def records_rate(self) -> float:
        """Return records per second, of all topics."""
        return self.records / self.seconds

    @property
    def per_cpu(self) -> float:
        """Return deliveries per second of the server's processor time: comparable while others are busy,
        too."""
        return self.deliveries / max(self.cpu.get("server", 0.0), 0.01)

    @property
    def records_per_cpu(self) -> float:
        """Return records per second of the server's processor time."""
        return self.records / max(self.cpu.get("server", 0.0), 0.01)

    @property
    def cpu_each(self) -> float:
        """Return the server's processor time for one delivery, in microseconds."""
        return 1e6 / self.per_cpu

    @property
    def per_client_cpu(self) -> float:
        """Return deliveries per second of the load client's processor time: the most that it could read."""
        return self.deliveries / max(self.cpu.get("client", 0.0), 0.01)

    def said(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "deliveries_per_s": round(self.rate),
            "records_per_s": round(self.records_rate),
            "deliveries_per_server_cpu_s": round(self.per_cpu),
            **asdict(self),
            "seconds": round(self.seconds, 4),
        }
