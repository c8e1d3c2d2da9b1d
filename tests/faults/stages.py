"""The scenes of the faults: a gateway process, a topic that is written to, and who watches."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from kiwi_gw.demo.topics import Topics
from tests.faults.experiment import BEAT, Injection, Outcome, Phases, Result, Scene, scene
from tests.faults.flow import Flow
from tests.faults.watcher import Wish
from tests.integration.feeder import PARTITIONS, feeder
from tests.integration.gateway import GatewayProcess, gateway

ROOT = Path(__file__).parent.parent.parent
PLUGIN = "tests.faults.beat:plugin"
_count = itertools.count()


def configuration(sources: Sequence[dict[str, object]] = (BEAT,), **sections: object) -> dict[str, object]:
    """A gateway with the beat on a free port."""
    return {
        "server": {"address": "127.0.0.1:0"},
        "plugins": [PLUGIN],
        "sources": [*sources],
        **sections,
    }


@asynccontextmanager
async def faulted_gateway(
    folder: Path, config: dict[str, object], expected_errors: Collection[str] = ()
) -> AsyncIterator[GatewayProcess]:
    """A gateway that finds the beat."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    async with gateway(folder, config, env={"PYTHONPATH": path}, expected_errors=expected_errors) as running:
        yield running


def wishes(
    topic: str, each: int, policy: dict[str, object] | None = None, resume: bool = False
) -> list[Wish]:
    """So many push and so many pull watchers. policy: further members of SUBSCRIBE."""
    more = policy or {}
    push = [Wish(topic, more=more, resume=resume)] * each
    return push + [Wish(topic, "pull", 500, more, resume)] * each


@asynccontextmanager
async def kafka_scene(
    folder: Path,
    direct: str,
    gateways_way: str,
    *,
    replication: int = 1,
    rate: float = 400,
    each: int = 4,
    policy: dict[str, object] | None = None,
    window: dict[str, object] | None = None,
) -> AsyncIterator[Scene]:
    """A topic of its own, `each` push and pull watchers of it, and four of the beat.

    policy: what watchers ask for in SUBSCRIBE (`{"overflow": "drop_oldest"}`); without it they have Kafka's
    default, `replay`. window: of the gateway; a small one makes them read from Kafka's history.
    """
    topic = f"afflicted-{os.getpid()}-{next(_count)}"
    await Topics(direct).create(topic, PARTITIONS, replication=replication)
    kafka: dict[str, object] = {"type": "kafka", "topic": topic}
    config = configuration([BEAT, kafka], kafka={"bootstrap_servers": gateways_way}, window=window or {})
    async with (
        faulted_gateway(folder, config) as running,
        feeder(direct, topic, answer_within_ms=2_000) as producer,
        scene(running, topic, Flow(producer, rate), wishes(topic, each, policy)) as stage,
    ):
        yield stage


async def injected(stage: Scene, injection: Injection, phases: Phases) -> Outcome:
    """What came of it; of a second one if in the first a step of the loop took too long.

    On a machine that others use, too, a hypervisor may take as much, unseen. What the gateway itself does, it
    does again.
    """
    outcome = await stage.inject(injection, phases)
    if outcome.result is Result.PASSED and outcome.held_up and injection.restore is None:
        outcome = await stage.inject(injection, phases)
    return outcome
