"""The faults of clients, each a visit to a gateway that serves others meanwhile (rows P, S and C)."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from tests.faults import attackers
from tests.faults.attackers import attack, attacker
from tests.faults.experiment import Injection, Phases, UnexpectedError

Found = dict[str, Any]
Step = Callable[[], Awaitable[None]]


async def _nothing() -> None:
    await trio.lowlevel.checkpoint()


def client_faults(port: int) -> dict[str, tuple[Injection, Phases]]:
    """Return the faults by kind, against the gateway on that port, which must have a source `beat`."""

    def at_once(work: Callable[..., Found], right: Callable[[Found], bool], **settings: object) -> Step:
        """Attack in a thread of ours: too short to be worth a process."""

        async def strike() -> None:
            found = await trio.to_thread.run_sync(partial(work, port, **settings))
            if not right(found):
                raise UnexpectedError(f"{work.__name__}: {found}")

        return strike

    def by_process(name: str, right: Callable[[Found], bool], **settings: object) -> Step:
        async def strike() -> None:
            found = await attack(name, port, **settings)
            if not right(found):
                raise UnexpectedError(f"{name}: {found}")

        return strike

    async def stop_a_client() -> None:
        async with trio.open_nursery() as nursery:
            one = await nursery.start(attacker, "reader", port, {"seconds": 3})
            await one.says("subscribed")
            os.kill(one.pid, signal.SIGSTOP)
            await trio.sleep(2)
            os.kill(one.pid, signal.SIGCONT)
            told = await one.result()
        if told["lags"] or told["gaps"] or told["closed"]:
            raise UnexpectedError(f"the client that was stopped: {told}")

    moment = Phases(steady=0.1, impacted=0.1, recovering=0.1)
    found = [
        ("clients reset, 50 at every stage", "C5", at_once(attackers.drops, bool, count=50)),
        ("declared lengths of 10 GB to 2^64-1", "P4", at_once(attackers.lengths, _refused)),
        ("hostile JSON", "P9", at_once(attackers.texts, _answered, repeat=1)),
        (
            "100 cycles of SUBSCRIBE and UNSUBSCRIBE",
            "S6",
            at_once(attackers.churn, _even, cycles=100, clients=2),
        ),
        ("20 floods of fragments", "P5", by_process("fragments", _thrown_out, seconds=2, attackers=20)),
        ("20 floods of pings", "P6", by_process("pings", _thrown_out, seconds=5, attackers=20)),
        ("300 heads, one byte a second", "C5", by_process("slow", _cut, count=300, what="head", seconds=8)),
        ("2,000 opened and dropped", "C5", by_process("drops", bool, count=2_000)),
        ("300 drop and return at once", "C7", by_process("storm", bool, count=300, rounds=1)),
        ("a client stopped (SIGSTOP)", "C4", stop_a_client),
    ]
    return {kind: (Injection(kind, row, strike, _nothing), moment) for kind, row, strike in found}


BRIEF = (
    "clients reset, 50 at every stage",
    "declared lengths of 10 GB to 2^64-1",
    "hostile JSON",
    "100 cycles of SUBSCRIBE and UNSUBSCRIBE",
)
"""Those that take less than a second."""


def _refused(found: Found) -> bool:
    return found == {"2^63": 1002, "2^64-1": 1002, "10 GB": 1009, "2^63-1": 1009}


def _answered(found: Found) -> bool:
    return set(found.values()) <= {1008, 1009, "NOTICE", "SUBSCRIBE_ERROR"}


def _even(found: Found) -> bool:
    return bool(found["answers"] == {"SUBSCRIBE_OK": found["cycles"], "UNSUBSCRIBE_OK": found["cycles"]})


def _thrown_out(found: Found) -> bool:
    return bool(found["codes"].get("1008", 0) >= 20 and set(found["codes"]) <= {"1008", "none"})


def _cut(found: Found) -> bool:
    return bool(found["left"] == 0 and found["longest"] <= 6)
