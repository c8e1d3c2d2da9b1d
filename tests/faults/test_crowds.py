"""Many readers at once, and one that wants everything: no reader loses anything, and others do not notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tests.faults.brokers import FaultyBroker
from tests.faults.crowd_faults import EVERYTHING, KINDS, TOGETHER, Crowd, crowd_faults, scene_of
from tests.faults.experiment import Outcome
from tests.faults.stages import injected, kafka_scene
from tests.faults.test_hostile_clients import FLOOR

pytestmark = pytest.mark.integration

OTHERS_WITHIN = 1.0
"""Seconds by which the others may be late while hundreds come at once; where one asks for everything, half as
late again as before (but always FLOOR). What it costs them it costs them every time. What else this machine
does is chance, so there are some TRIES."""

TRIES = 3
FORGOTTEN_AFTER = 6
"""Seconds after which what was read of Kafka's history is read again."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.extended) if kind == TOGETHER else kind for kind in KINDS]
)
async def test_crowds(
    kind: str,
    faulty_broker: FaultyBroker,
    tmp_path: Path,
    passed: Callable[[Outcome], None],
    figure: Callable[[str, object], None],
) -> None:
    crowd = Crowd()
    way = faulty_broker.bootstrap
    async with kafka_scene(tmp_path, way, way, **scene_of(kind, crowd)) as stage:
        injection, phases = crowd_faults(stage, crowd)[kind]
        for _ in range(TRIES):
            outcome = await injected(stage, injection, phases)
            passed(outcome)
            late, before = outcome.others_late, outcome.others_steady
            figure(f"{kind} ({crowd.returning} return, {crowd.stalled} do not read)", crowd.figures[kind])
            figure(f"{kind}: p99 of the others before and during, ms", (before * 1000, late * 1000))
            if late <= (max(1.5 * before, FLOOR) if kind == EVERYTHING else OTHERS_WITHIN):
                return
            await trio.sleep(FORGOTTEN_AFTER)
    pytest.fail(f"others were late by {late:.3f} s, before it by {before:.3f}")
