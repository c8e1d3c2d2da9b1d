"""A broker, or the way to it, fails: nothing is lost or doubled, it ends soon, and no other client notices.

The broker killed with -9 is in tests/integration/test_broker_killed.py, with more clients and records, and in
`python -m benchmarks.faults`, which also repeats all of these.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.broker_faults import BRIEF, KILLED, LONGER, broker_faults
from tests.faults.brokers import FaultyBroker
from tests.faults.experiment import Outcome
from tests.faults.stages import injected, kafka_scene

pytestmark = pytest.mark.integration

PROMISED = ("broker stopped (SIGSTOP)", "black hole", "500 ms latency")
"""Stopped, unreachable, slow."""


@pytest.mark.parametrize(
    "kind", [kind if kind in PROMISED else pytest.param(kind, marks=pytest.mark.extended) for kind in LONGER]
)
async def test_longer_ones(
    kind: str, faulty_broker: FaultyBroker, tmp_path: Path, passed: Callable[[Outcome], None]
) -> None:
    async with (
        faulty_broker.between() as between,
        kafka_scene(tmp_path, faulty_broker.bootstrap, faulty_broker.proxied) as stage,
    ):
        injection, phases = broker_faults(faulty_broker, between)[kind]
        passed(await injected(stage, injection, phases))


@pytest.mark.extended
async def test_with_a_window_that_holds_less_than_the_outage(
    faulty_broker: FaultyBroker, tmp_path: Path, passed: Callable[[Outcome], None]
) -> None:
    """Read again from Kafka what comes at once after the outage and is more than the window holds."""
    async with (
        faulty_broker.between() as between,
        kafka_scene(
            tmp_path, faulty_broker.bootstrap, faulty_broker.proxied, rate=2_000, window={"events": 500}
        ) as stage,
    ):
        injection, phases = broker_faults(faulty_broker, between)["black hole"]
        passed(await injected(stage, injection, phases))


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.extended)])
async def test_brief_ones_one_after_the_other(
    times: int, faulty_broker: FaultyBroker, tmp_path: Path, passed: Callable[[Outcome], None]
) -> None:
    async with (
        faulty_broker.between() as between,
        kafka_scene(tmp_path, faulty_broker.bootstrap, faulty_broker.proxied) as stage,
    ):
        faults = broker_faults(faulty_broker, between)
        assert faults.keys() == {*BRIEF, *LONGER, KILLED}
        for _ in range(times):
            for kind in BRIEF:
                passed(await injected(stage, *faults[kind]))
