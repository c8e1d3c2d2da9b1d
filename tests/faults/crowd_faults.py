"""The faults of many readers at once, and of one that wants everything (rows C7, C8, C10)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import trio

from tests.faults.attackers import attack
from tests.faults.experiment import Injection, Phases, Scene, UnexpectedError

MEMORY_BYTES = 512 * 2**20
"""What a gateway has to get by with (C8), the unsent bytes that the kernel holds for it included."""

RETURN_WITHIN = 5.0
STALL_SECONDS = 6.0


@dataclass(frozen=True, slots=True)
class Crowd:
    """Say how many readers come. backlog: records of the topic that one asks for at once. figures: what came
    of it is put here, by name."""

    returning: int = 300
    stalled: int = 200
    backlog: int = 60_000
    figures: dict[str, Any] = field(default_factory=dict)


EVERYTHING, RETURNING, TOGETHER = (
    "one asks for everything",
    "all drop and resume at once",
    "stalled, returning and churning clients together",
)
KINDS = (EVERYTHING, RETURNING, TOGETHER)


def scene_of(kind: str, crowd: Crowd) -> dict[str, Any]:
    """Return what `kafka_scene` is to be like for it."""
    if kind == EVERYTHING:
        return {"backlog": crowd.backlog}
    if kind == RETURNING:
        return {"rate": 4, "every": 0.5}
    return {"rate": 2_000, "each": 1, "backlog": 70_000}  # more than a window holds: it is full


def crowd_faults(stage: Scene, crowd: Crowd) -> dict[str, tuple[Injection, Phases]]:
    """Return the faults by kind, each in a scene of its own (`scene_of`)."""
    port, topic = stage.gateway.port, stage.topic

    async def ask_for_everything() -> None:
        found = await attack("everything", port, topic=topic, count=crowd.backlog)
        crowd.figures[EVERYTHING] = found
        if found["gaps"] or found["given_up"]:
            raise UnexpectedError(f"the one that asked for everything: {found}")

    async def return_at_once() -> None:
        found = await attack("returning", port, topic=topic, count=crowd.returning, rounds=2)
        crowd.figures[RETURNING] = found
        if found["gaps"] or found["given_up"] or max(found["opened"]) > RETURN_WITHIN:
            raise UnexpectedError(f"those that came back: {found}")

    async def all_together() -> None:
        # Of the beat, not of this topic: what is asked here is what it costs, not what it loses.
        attacks: list[tuple[str, dict[str, object]]] = [
            ("stalled", {"topic": topic, "count": crowd.stalled, "seconds": STALL_SECONDS}),
            ("storm", {"count": crowd.returning, "rounds": 2}),
            ("churn", {"cycles": 400, "clients": 8}),
        ]
        found: dict[str, Any] = {"unsent": 0}

        async def one(name: str, settings: dict[str, object]) -> None:
            found[name] = await attack(name, port, **settings)

        async with trio.open_nursery() as watching:
            watching.start_soon(_watch_unsent, port, found)
            async with trio.open_nursery() as nursery:
                for name, settings in attacks:
                    nursery.start_soon(one, name, settings)
            watching.cancel_scope.cancel()
        _, peak = stage.gateway.memory()
        crowd.figures[TOGETHER] = {"peak_mib": peak / 2**20, "unsent_mib": found["unsent"] / 2**20}
        if found["stalled"]["closed"]:
            raise UnexpectedError(f"{found['stalled']['closed']} that did not read were thrown out")
        if peak + found["unsent"] > MEMORY_BYTES:
            raise UnexpectedError(f"it took {crowd.figures[TOGETHER]} MiB")

    async def nothing() -> None:
        await trio.lowlevel.checkpoint()

    moment = Phases(steady=1.0, impacted=0.1, recovering=0.3, patience=60)
    strikes: list[tuple[str, str, Callable[[], Awaitable[None]]]] = [
        (EVERYTHING, "C10", ask_for_everything),
        (RETURNING, "C7", return_at_once),
        (TOGETHER, "C8", all_together),
    ]
    return {
        kind: (Injection(kind, row, strike, nothing, blocked_within=0.1), moment)
        for kind, row, strike in strikes
    }


async def _connections() -> list[str]:
    return (await trio.Path("/proc/net/tcp").read_text()).splitlines()[1:]


async def _watch_unsent(port: int, found: dict[str, Any]) -> None:
    """Note the most that the kernel holds for the connections of this port of 127.0.0.1, in bytes."""
    local = f"0100007F:{port:04X}"
    while True:
        rows = (line.split() for line in await _connections())
        unsent = sum(int(row[4].split(":")[0], 16) for row in rows if row[1] == local)
        found["unsent"] = max(found["unsent"], unsent)
        await trio.sleep(0.5)
