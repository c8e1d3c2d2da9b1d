"""One fault at a time: steady, impacted, recovering, and what came of it.

Watchers of the afflicted source must lose and double nothing and keep their connection; watchers of the
beat, a source beside it, must not notice. `inject` never raises for what the gateway does wrong: that is
an `Outcome` with its reasons, so that a long run goes on and counts.
"""

from __future__ import annotations

import enum
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import trio

from tests.faults.checker import Item, Run, Verdict, announced, judge
from tests.faults.flow import Flow
from tests.faults.offsets import Offsets
from tests.faults.watcher import Watcher, Wish, kafka_value
from tests.integration.gateway import GatewayProcess

BEAT: dict[str, object] = {"type": "beat", "id": "beat", "interval_ms": 10}


class UnexpectedError(Exception):
    """Report a wrong reaction to a fault: raised by `strike`, and a reason in the outcome."""


class Result(enum.StrEnum):
    """Say how it went. HANG: what should have gone on did not; FAILED: it did, wrongly, or later than
    promised."""

    PASSED = "PASSED"
    HANG = "HANG"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Phases:
    """Hold lengths in seconds. patience: how long what should go on is waited for before it is a hang."""

    steady: float = 0.5
    impacted: float = 3.0
    recovering: float = 0.5
    patience: float = 30.0


@dataclass(frozen=True, slots=True)
class Injection:
    """Describe a fault. strike and heal do it and undo it; heal returns when the other side could answer
    again.

    notice: the line in the gateway's log that says it was noticed; None: it need not be. The others are
    bounds in seconds: until it is noticed, from `heal` to the first event at the slowest client, and of a
    step of the gateway's loop. count: something that the fault makes grow, where it could come to nothing
    unseen. restore: what is left to undo, and is not waited for; `inject` does not do it.
    """

    kind: str
    row: str
    strike: Callable[[], Awaitable[None]]
    heal: Callable[[], Awaitable[None]]
    notice: str | None = None
    notice_within: float = 15.0
    serve_within: float = 5.0
    blocked_within: float = 0.05
    count: Callable[[], int] | None = None
    restore: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Hold what came of one injection. Times in seconds; None: did not happen or was not asked.

    noticed: until the gateway's log said so. served: from `heal` to the first event at the slowest watcher.
    worst_lag: of any record. blocked: the longest step of the gateway's loop. others_late: the latest that an
    event of the source beside came, others_steady: the same before the fault. held_up: a step of the loop, of
    the task `blocker`, took too long. That is a figure and not a failure, for a hypervisor can take as much,
    unseen: tests that assert it ask twice.
    """

    kind: str
    row: str
    result: Result
    reasons: list[str]
    events: int = 0
    noticed: float | None = None
    served: float | None = None
    worst_lag: float = 0.0
    blocked: float = 0.0
    others_late: float = 0.0
    others_steady: float = 0.0

    held_up: bool = False
    blocker: str = ""

    def facts(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


@dataclass(slots=True)
class Beats:
    """Hold what the watchers of the beat have seen: when, how late, and the gateway's own figures."""

    late: list[tuple[float, float]] = field(default_factory=list)
    blocked: list[tuple[float, float, str]] = field(default_factory=list)
    last: Mapping[str, Any] = field(default_factory=dict)

    def keep(self, now: float, event: Mapping[str, Any]) -> None:
        self.late.append((now, now - event["at"]))
        self.blocked.append((event["at"], event["blockedMs"] / 1000, event["blockedBy"]))
        self.last = event

    def clear(self) -> None:
        self.late.clear()
        self.blocked.clear()


class Scene:
    """Hold a gateway with its clients. topic, flow: nothing where there is no topic that is written to."""

    def __init__(self, gateway: GatewayProcess, topic: str, flow: Flow | None) -> None:
        self.gateway = gateway
        self.topic = topic
        self.flow = flow
        self.watchers: list[Watcher] = []
        self.others: list[Watcher] = []
        self.beats = Beats()

    async def inject(self, injection: Injection, phases: Phases) -> Outcome:
        """Inject one fault, from a standstill to a standstill."""
        run = _Injecting(self, injection, phases)
        hang = None
        try:
            await run.through_the_phases()
        except trio.TooSlowError:
            hang = f"{run.doing} took longer than {phases.patience:g} s"
        return run.outcome(hang)


class _Injecting:
    def __init__(self, scene: Scene, injection: Injection, phases: Phases) -> None:
        self.doing = "nothing"
        self._scene = scene
        self._fault = injection
        self._phases = phases
        self._starts = {} if scene.flow is None else scene.flow.ends
        self._lost = sum(one.lost for one in self._everybody())
        self._struck = self._healed = 0.0
        self._counted = 0
        self._noticed: float | None = None
        self._served: float | None = None
        self._unexpected: list[str] = []

    def _everybody(self) -> Sequence[Watcher]:
        return [*self._scene.watchers, *self._scene.others]

    async def through_the_phases(self) -> None:
        scene, phases = self._scene, self._phases
        for one in self._everybody():
            one.cut()
        scene.beats.clear()
        if scene.flow is not None:
            scene.flow.start()
        await trio.sleep(phases.steady)

        lines = self._lines()
        self._counted = 0 if self._fault.count is None else self._fault.count()
        self._struck = time.monotonic()
        try:
            await self._fault.strike()
        except* UnexpectedError as group:
            self._unexpected += map(str, group.exceptions)
        began = trio.current_time()
        if self._fault.notice is not None:
            with trio.move_on_after(self._fault.notice_within):
                await scene.gateway.logged(self._fault.notice, count=lines + 1)
                self._noticed = time.monotonic() - self._struck
        await trio.sleep_until(began + phases.impacted)

        self.doing = "healing"
        with trio.fail_after(2 * phases.patience):
            await self._fault.heal()
        self._healed = time.monotonic()
        if scene.flow is not None:
            self.doing = "the first event after it"
            with trio.fail_after(phases.patience):
                for one in scene.watchers:
                    await one.until(lambda one=one: one.last_at > self._healed or one.lost > 0)  # type: ignore[misc]
            self._served = max(map(self._first_event, scene.watchers), default=0.0)
        await trio.sleep(phases.recovering)
        if scene.flow is not None:
            self.doing = "producing"
            with trio.fail_after(phases.patience):
                await scene.flow.stop()
            self.doing = "catching up"
            ends = scene.flow.ends
            with trio.fail_after(phases.patience):
                for one in scene.watchers:
                    await one.until(lambda one=one: one.next == ends or one.lost > 0)  # type: ignore[misc]

    def _first_event(self, one: Watcher) -> float:
        """Return how many seconds after `heal` the first event came."""
        came = (item.at for item in one.history if isinstance(item, Run) and item.at is not None)
        return next((at - self._healed for at in came if at > self._healed), 0.0)

    def _untold(self, one: Watcher) -> list[str]:
        """Return what a client was notified of since the strike, if not that its source fails and is back."""
        told = [(at - self._struck, kind) for at, kind in one.told if at >= self._struck]
        kinds = [kind for _, kind in told]
        if kinds[:1] + kinds[-1:] == ["SOURCE_DEGRADED", "SOURCE_RESTORED"]:
            return [] if told[0][0] <= self._fault.notice_within else ["SOURCE_DEGRADED too late"]
        return kinds or ["nothing"]

    def _lines(self) -> int:
        return sum(line["event"] == self._fault.notice for line in self._scene.gateway.log)

    def outcome(self, hang: str | None) -> Outcome:
        scene, fault = self._scene, self._fault
        until = time.monotonic()
        reasons = [*self._unexpected] if hang is None else [*self._unexpected, hang]
        verdicts = []
        if scene.flow is not None:
            everything, facts = scene.flow.produced(self._starts)
            verdicts = [judge(one.history, everything, facts, until=until) for one in scene.watchers]
            reasons += [
                f"{one.name}: {wrong(verdict)}"
                for one, verdict in zip(scene.watchers, verdicts, strict=True)
                if verdict != Verdict()
            ]
            reasons += [
                f"{one.name}: announced as lost: {announced(one.history)}"
                for one in scene.watchers
                if announced(one.history)
            ]
        for one in scene.others:
            verdict = judge(one.history, span(one.history), until=until)
            if verdict != Verdict():
                reasons.append(f"{one.name}: {wrong(verdict)}")
        reasons += [f"{one.name}: {one.complaints}" for one in self._everybody() if one.complaints]
        lost = sum(one.lost for one in self._everybody()) - self._lost
        if lost:
            reasons.append(f"{lost} connections dropped")
        held = [(held, by) for at, held, by in scene.beats.blocked if at >= self._struck]
        blocked, blocker = max(held, default=(0.0, ""))
        if fault.count is not None and fault.count() == self._counted:
            reasons.append("the fault had no effect")
        if fault.notice is not None and self._noticed is None:
            reasons.append(f"not noticed within {fault.notice_within:g} s")
        if fault.notice is not None:
            reasons += [
                f"{one.name} was told {told}" for one in scene.watchers if (told := self._untold(one))
            ]
        if self._served is not None and self._served > fault.serve_within:
            reasons.append(f"served again after {self._served:.1f} s, not {fault.serve_within:g}")
        result = Result.HANG if hang is not None else Result.FAILED if reasons else Result.PASSED
        return Outcome(
            kind=fault.kind,
            row=fault.row,
            result=result,
            reasons=reasons,
            events=sum(i.last - i.first + 1 for o in scene.watchers for i in o.history if isinstance(i, Run)),
            noticed=self._noticed,
            served=self._served,
            worst_lag=max((verdict.worst_lag for verdict in verdicts), default=0.0),
            blocked=blocked,
            others_late=_latest(late for at, late in scene.beats.late if at >= self._struck),
            others_steady=_latest(late for at, late in scene.beats.late if at < self._struck),
            held_up=blocked > fault.blocked_within,
            blocker=blocker,
        )


def wrong(verdict: Verdict) -> str:
    """Return what is not as in a faultless verdict."""
    good = asdict(Verdict())
    found = {name: value for name, value in asdict(verdict).items() if value != good[name]}
    found.pop("worst_lag", None)
    return ", ".join(f"{name} {value}" for name, value in found.items())


def span(history: Sequence[Item]) -> dict[int, Offsets]:
    """Return all offsets from the first received to the last, per partition, of a source without holes."""
    runs = [item for item in history if isinstance(item, Run)]
    return {
        p: Offsets(
            [(min(r.first for r in runs if r.partition == p), max(r.last for r in runs if r.partition == p))]
        )
        for p in {run.partition for run in runs}
    }


def _latest(delays: Iterable[float]) -> float:
    """Return the 99th percentile."""
    found = sorted(delays)
    return found[int(len(found) * 0.99)] if found else 0.0


@asynccontextmanager
async def scene(
    gateway: GatewayProcess,
    topic: str = "",
    flow: Flow | None = None,
    wishes: Sequence[Wish] = (),
    others: int = 4,
    value: Callable[[Mapping[str, Any]], object] | None = kafka_value,
) -> AsyncIterator[Scene]:
    """Subscribe all clients; they are gone at the end of the block."""
    stage = Scene(gateway, topic, flow)
    async with trio.open_nursery() as nursery:
        for number, wish in enumerate(wishes):
            one = Watcher(f"{wish.mode} {number}", gateway.port, wish, value)
            await nursery.start(one.run)
            stage.watchers.append(one)
        for number in range(others):
            keep = stage.beats.keep if number == 0 else None
            beside = Watcher(f"beside {number}", gateway.port, Wish(source="beat"), keep=keep)
            await nursery.start(beside.run)
            stage.others.append(beside)
        if flow is not None:
            nursery.start_soon(flow.run)
        yield stage
        nursery.cancel_scope.cancel()


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the figures of many injections of one kind."""
    first = outcomes[0]
    served = [o.served for o in outcomes if o.served is not None]
    noticed = [o.noticed for o in outcomes if o.noticed is not None]
    return {
        "kind": first.kind,
        "row": first.row,
        "injections": len(outcomes),
        **{str(result): sum(o.result is result for o in outcomes) for result in Result},
        "noticed_s": round(max(noticed), 2) if noticed else None,
        "served_p50_s": round(statistics.median(served), 2) if served else None,
        "served_worst_s": round(max(served), 2) if served else None,
        "worst_lag_s": round(max(o.worst_lag for o in outcomes), 2),
        "blocked_p50_ms": round(1000 * statistics.median(o.blocked for o in outcomes), 1),
        "blocked_ms": round(1000 * max(o.blocked for o in outcomes), 1),
        "held_up": sum(o.held_up for o in outcomes),
        "others_ms": round(1000 * statistics.median(o.others_late for o in outcomes), 1),
        "others_before_ms": round(1000 * statistics.median(o.others_steady for o in outcomes), 1),
        "events": sum(o.events for o in outcomes),
        "reasons": sorted({reason for o in outcomes for reason in o.reasons})[:10],
    }
