"""The faults of a broker, and of the way to it, that can be done and undone (rows R1 to R4)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from tests.faults.brokers import FaultyBroker
from tests.faults.experiment import Injection, Phases
from tests.faults.proxy import BLACKHOLE, PAUSE, Proxy, Way

AWAY = "kafka broker away"

DAMAGED = Way(corrupt_every=500, corrupt_in=b"x")
"""Bits turned over in the values: Kafka's checksum covers a record, not its offset, its partition, or the
length of an answer. Where those are at risk, TLS is needed."""

Step = Callable[[], Awaitable[None]]


def broker_faults(broker: FaultyBroker, between: Proxy) -> dict[str, tuple[Injection, Phases]]:
    """Return the faults by kind, each with the phases that CI can afford."""

    def applied(both: Way | None = None, *, up: Way | None = None, down: Way | None = None) -> Step:
        async def strike() -> None:
            between.apply(both, up=up, down=down)
            await trio.lowlevel.checkpoint()

        return strike

    async def heal() -> None:
        between.heal()
        await trio.lowlevel.checkpoint()

    async def reset() -> None:
        between.reset()
        await trio.lowlevel.checkpoint()

    def half_closed(side: str) -> Step:
        async def strike() -> None:
            between.half_close("up" if side == "up" else "down")
            await trio.lowlevel.checkpoint()

        return strike

    async def nothing() -> None:
        await trio.lowlevel.checkpoint()

    def accepted() -> int:
        return between.accepted

    def turned() -> int:
        return between.corrupted

    slowly = Way(bytes_per_second=10_000, piece=500)
    moment = Phases(steady=0.2, impacted=0.1, recovering=0.1)
    half = Phases(steady=0.2, impacted=0.5, recovering=0.1)
    second = Phases(steady=0.2, impacted=1.0, recovering=0.2)
    ten_seconds = Phases(steady=0.2, impacted=10.0, recovering=0.2)
    found = [
        (Injection(KILLED, "R1", broker.kill, broker.start, AWAY, notice_within=5), Phases()),
        (Injection("broker stopped (SIGSTOP)", "R2", broker.freeze, broker.thaw, AWAY), Phases()),
        (Injection("black hole", "R3", applied(BLACKHOLE), heal, AWAY), Phases()),
        (Injection("answers vanish", "R3", applied(down=BLACKHOLE), heal, AWAY), Phases()),
        (Injection("500 ms latency", "R3", applied(Way(delay=0.25)), heal), Phases()),
        (Injection("10 kB/s", "R3", applied(down=slowly), heal), Phases()),
        (Injection("connections paused", "R3", applied(PAUSE), heal), second),
        (Injection("fetches hang for 10 s", "R16", applied(PAUSE), heal, AWAY), ten_seconds),
        (Injection("one byte at a time", "R3", applied(down=Way(piece=1)), heal), second),
        (Injection("values damaged", "R7", applied(down=DAMAGED), heal, count=turned), half),
        (Injection("connections reset", "R3", reset, nothing, count=accepted), moment),
        (Injection("broker's end half closed", "R3", half_closed("down"), nothing, count=accepted), moment),
        (Injection("gateway's end half closed", "R3", half_closed("up"), nothing, count=accepted), moment),
    ]
    return {injection.kind: (injection, phases) for injection, phases in found}


KILLED = "broker killed (-9)"
BRIEF = ("values damaged", "connections reset", "broker's end half closed", "gateway's end half closed")
"""Those that take less than a second."""
LONGER = (
    "broker stopped (SIGSTOP)",
    "black hole",
    "answers vanish",
    "500 ms latency",
    "10 kB/s",
    "connections paused",
    "fetches hang for 10 s",
    "one byte at a time",
)
"""Those that take a few seconds; with KILLED they are all."""
