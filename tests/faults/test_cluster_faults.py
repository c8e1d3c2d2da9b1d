"""Three brokers, and leadership that changes: another goes on, and clients hardly notice (row R2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.cluster_faults import (
    DECOMMISSIONED,
    ISOLATED,
    LEADER_KILLED,
    MOVED,
    ROLLED,
    cluster,
    cluster_faults,
)
from tests.faults.experiment import Outcome
from tests.faults.stages import injected, kafka_scene

pytestmark = [pytest.mark.integration, pytest.mark.extended]

NEEDED_MIB = 2_000


def free_mib() -> int:
    with open("/proc/meminfo") as meminfo:
        rows = dict(line.split(":") for line in meminfo)
    return int(rows["MemAvailable"].split()[0]) // 1024


@pytest.mark.timeout(600)
async def test_leaders_come_and_go(tmp_path: Path, passed: Callable[[Outcome], None]) -> None:
    """Take leaders out of reach, move them, kill them, restart all in turn (with them the controller), and
    take one out of service."""
    free = free_mib()
    assert free >= NEEDED_MIB, f"three brokers need {NEEDED_MIB} MiB, and {free} MiB are free"
    async with (
        cluster(tmp_path) as them,
        kafka_scene(tmp_path, them.bootstrap, them.proxied, replication=3) as stage,
    ):
        faults = cluster_faults(them, stage)
        # The one that was killed is started again by the next fault, so that no test waits for it.
        for kind in (ISOLATED, MOVED, LEADER_KILLED, ROLLED, DECOMMISSIONED):
            injection, phases = faults[kind]
            passed(await injected(stage, injection, phases))
