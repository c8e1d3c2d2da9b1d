"""A steady stream of numbered records into a topic, and what the checker wants to know of them."""

from __future__ import annotations

import time

import trio

from tests.faults.checker import Facts, Place, produced
from tests.faults.offsets import Places
from tests.integration.feeder import PARTITIONS, Feeder

_STEP_S = 0.05


class Flow:
    """Send records at a rate while it is on, some `every` so many seconds. A step that the broker does not
    acknowledge is waited for, and what was due meanwhile is left out: the rate is what the producer wants,
    not what it gets."""

    def __init__(self, feeder: Feeder, rate: float, every: float = _STEP_S) -> None:
        self._feeder = feeder
        self._every = every
        self._step = max(1, round(rate * every))
        self._sent_at: dict[Place, float] = {}
        self._on = trio.Event()
        self._idle = trio.Event()
        self._idle.set()
        self._stopping = False

    async def run(self) -> None:
        while True:
            await self._on.wait()
            while not self._stopping:
                await self._send(self._step)
                await trio.sleep(self._every)
            self._on = trio.Event()
            self._idle.set()

    async def _send(self, count: int) -> None:
        now = time.monotonic()
        for number in range(self._feeder.sent, self._feeder.sent + count):
            self._sent_at[number % PARTITIONS, number // PARTITIONS] = now
        await self._feeder.send(count)

    def start(self) -> None:
        """Start from a standstill: what was produced before is forgotten."""
        self._sent_at.clear()
        self._stopping = False
        self._idle = trio.Event()
        self._on.set()

    async def stop(self) -> None:
        """Wait until everything that was sent is acknowledged."""
        self._stopping = True
        await self._idle.wait()

    @property
    def ends(self) -> dict[int, int]:
        """Return the next offset of every partition, once it stands still."""
        sent = self._feeder.sent
        return {p: (sent - p + PARTITIONS - 1) // PARTITIONS for p in range(PARTITIONS)}

    def produced(self, starts: dict[int, int]) -> tuple[Places, Facts]:
        """Return what was produced from `starts` on. The producer is idempotent: nothing is there twice."""
        values = {(p, n): n * PARTITIONS + p for p, n in self._sent_at}
        return produced(self.ends, starts), Facts(values, dict(self._sent_at))
