"""The faults inside a gateway's process: its clock jumps, a plugin stands in the way (rows R12, R13)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from tests.faults.experiment import Injection, Phases, Scene
from tests.faults.mischief import Words

HELD = "event loop is held up"
RAISED = "source raised; it is restarted"
_HOUR = 3_600.0
_HOLD_SECONDS = 1.5
_PATIENCE = 15.0

KINDS = (
    "a plugin holds the loop for 1.5 s, then fails",
    "the clock an hour ahead",
    "the clock an hour behind",
)


def gateway_faults(stage: Scene, words: Words) -> dict[str, tuple[Injection, Phases]]:
    """Return the faults by kind, in a gateway with the source `mischief`."""

    def lines(event: str) -> int:
        return sum(line["event"] == event for line in stage.gateway.log)

    async def hold_and_fail() -> None:
        held, raised = lines(HELD), lines(RAISED)
        words.hold = _HOLD_SECONDS
        with trio.fail_after(_PATIENCE):
            line = await stage.gateway.logged(HELD, count=held + 1)
            assert "stand_still" in line["stack"]
            words.fail = True
            await stage.gateway.logged(RAISED, count=raised + 1)

    def clock(seconds: float) -> Callable[[], Awaitable[None]]:
        async def put() -> None:
            words.ahead = seconds
            await trio.lowlevel.checkpoint()

        return put

    async def nothing() -> None:
        await trio.lowlevel.checkpoint()

    moment = Phases(steady=0.3, impacted=0.3, recovering=0.3)
    second = Phases(steady=0.3, impacted=1.0, recovering=1.0)
    held, ahead, behind = KINDS
    return {
        held: (
            Injection(
                held,
                "R12",
                hold_and_fail,
                nothing,
                blocked_within=2 * _HOLD_SECONDS,
                count=lambda: lines(HELD),
            ),
            moment,
        ),
        ahead: (Injection(ahead, "R13", clock(_HOUR), clock(0)), second),
        behind: (Injection(behind, "R13", clock(-_HOUR), clock(0)), second),
    }
