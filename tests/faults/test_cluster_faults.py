"""Three brokers, and the one that leads is killed: another goes on, and the clients hardly notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.cluster_faults import cluster, cluster_faults
from tests.faults.experiment import Outcome
from tests.faults.stages import injected, kafka_scene

pytestmark = pytest.mark.integration

NEEDED_MIB = 2_000


def free_mib() -> int:
    with open("/proc/meminfo") as meminfo:
        rows = dict(line.split(":") for line in meminfo)
    return int(rows["MemAvailable"].split()[0]) // 1024


@pytest.mark.timeout(240)
async def test_the_leader_is_killed(tmp_path: Path, passed: Callable[[Outcome], None]) -> None:
    free = free_mib()
    assert free >= NEEDED_MIB, f"three brokers need {NEEDED_MIB} MiB, and {free} MiB are free"
    async with cluster(tmp_path) as brokers:
        bootstrap = ",".join(one.bootstrap for one in brokers)
        async with kafka_scene(tmp_path, bootstrap, bootstrap, replication=3) as stage:
            injection, phases = cluster_faults(brokers, stage.topic)["leader of three killed (-9)"]
            passed(await injected(stage, injection, phases))
