"""One run of a source that is being checked: where it is cancelled, and what its steps take."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import trio

from kiwi_gw.model import Batch, Positions
from kiwi_gw.testing.memory_publisher import MemoryPublisher


@dataclass(frozen=True, slots=True)
class CancelAt:
    """When a run is cancelled: after so many events, at that step, or before its first batch is taken."""

    events: int
    step: int = 0
    before_first: bool = False


@dataclass(slots=True)
class StagedPublisher:
    """The `Publisher` of one run: passes on to a MemoryPublisher, and cancels the run where `stop` says."""

    out: MemoryPublisher
    scope: trio.CancelScope
    stop: CancelAt
    timeout: float
    stopped_at: float | None = None
    delivered: bool = False

    def wait_on(self) -> None:
        """Give the run its time anew, as it goes on."""
        self.scope.deadline = trio.current_time() + self.timeout

    def cancel(self) -> None:
        if self.stopped_at is None:
            self.stopped_at = trio.current_time()
            self.scope.cancel()

    def expect(self, positions: Positions) -> None:
        self.out.expect(positions)

    async def ready(self, positions: Positions) -> None:
        await self.out.ready(positions)
        self.wait_on()

    async def publish(self, batch: Batch) -> None:
        if self.delivered and not self.out.closed:
            self._break("publish was called again after the run had been cancelled")
        if not self.out.subscribed:
            self._break("a batch was published before anybody had subscribed, but the source is lazy")
        try:
            if self.stop.before_first:
                self.cancel()
                await trio.lowlevel.checkpoint()
            await self.out.publish(batch)
            self.wait_on()
            if self.out.events >= self.stop.events:
                self.cancel()
                await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            self.delivered = True
            raise

    def describe(self, members: str) -> None:
        self.out.describe(members)

    def report_degraded(self, message: str) -> None:
        self.out.report_degraded(message)

    @property
    def subscribed(self) -> bool:
        return self.out.subscribed

    async def wait_subscribed(self) -> None:
        if self.out.ready_at is None:
            self._break("wait_subscribed was called before ready: nobody can subscribe until then")
        for _ in range(10):  # room for other tasks of the source to publish too early
            await trio.lowlevel.checkpoint()
        self.out.subscribe()
        await self.out.wait_subscribed()

    def _break(self, message: str) -> None:
        error = AssertionError(message)
        self.out.broken = self.out.broken or error
        raise error


@dataclass(slots=True, eq=False)  # Trio keeps instruments by their identity
class StepWatch(trio.abc.Instrument):
    """Times the steps (from checkpoint to checkpoint) of the run and of every task that it has started, and
    cancels the run at the step that `stop` names."""

    stage: StagedPublisher
    root: trio.lowlevel.Task
    count: int = 0
    longest: float = 0.0
    began: float | None = field(default_factory=time.perf_counter)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        above: trio.lowlevel.Task | None = task
        while above is not None and above is not self.root:
            above = above.parent_nursery.parent_task if above.parent_nursery is not None else None
        if above is None:
            self.began = None
            return
        self.began = time.perf_counter()
        self.count += 1
        if self.count == self.stage.stop.step:
            self.stage.cancel()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.began is not None:
            self.longest = max(self.longest, time.perf_counter() - self.began)
