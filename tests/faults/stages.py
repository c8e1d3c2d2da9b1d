"""The scenes of the faults: a gateway process, a topic that is written to, and who watches."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.faults.experiment import BEAT, Injection, Outcome, Phases, Result, Scene, scene
from tests.faults.flow import Flow
from tests.faults.mischief import SOURCE, VARIABLE, Words
from tests.faults.watcher import Wish
from tests.integration.feeder import PARTITIONS, feeder
from tests.integration.gateway import GatewayProcess, gateway
from tests.topics import Topics

ROOT = Path(__file__).parent.parent.parent
PLUGINS = ["tests.faults.beat:plugin", "tests.faults.mischief:plugin"]
WORDS = "mischief"
"""The name of the file with the words for mischief, in the folder of the gateway."""

_STEP = 5_000
_count = itertools.count()


def configuration(sources: Sequence[dict[str, object]] = (BEAT,), **sections: object) -> dict[str, object]:
    """Configure a gateway with the beat on a free port."""
    return {
        "server": {"address": "127.0.0.1:0"},
        "plugins": PLUGINS,
        "sources": [*sources],
        **sections,
    }


@asynccontextmanager
async def faulted_gateway(
    folder: Path, config: dict[str, object], expected_errors: Collection[str] = ()
) -> AsyncIterator[GatewayProcess]:
    """Run a gateway that finds the beat, and the file with the words for mischief (`words`)."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {"PYTHONPATH": path, VARIABLE: str(folder / WORDS)}
    (folder / WORDS).unlink(missing_ok=True)
    Words.new(folder / WORDS)
    async with gateway(folder, config, env=environment, expected_errors=expected_errors) as running:
        yield running


def wishes(
    topic: str, each: int, policy: dict[str, object] | None = None, resume: bool = False
) -> list[Wish]:
    """Return so many push and so many pull watchers. policy: further members of SUBSCRIBE."""
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
    backlog: int = 0,
    every: float | None = None,
    expected_errors: Collection[str] = (),
) -> AsyncIterator[Scene]:
    """Open a topic of its own, with `each` push and pull watchers of it, and four of the beat.

    policy: what watchers ask for in SUBSCRIBE (`{"overflow": "drop_oldest"}`); without it they have Kafka's
    default, `replay`. window: of the gateway; a small one makes them read from Kafka's history. backlog: how
    many records are there before they come. every: seconds between the steps of the flow.
    """
    topic = f"afflicted-{os.getpid()}-{next(_count)}"
    await Topics(direct).create(topic, PARTITIONS, replication=replication)
    kafka: dict[str, object] = {"type": "kafka", "topic": topic}
    sources = [BEAT, SOURCE, kafka]
    config = configuration(sources, kafka={"bootstrap_servers": gateways_way}, window=window or {})
    async with (
        faulted_gateway(folder, config, expected_errors) as running,
        feeder(direct, topic, answer_within_ms=2_000) as producer,
    ):
        for _ in range(0, backlog, _STEP):
            await producer.send(_STEP)
        flow = Flow(producer, rate) if every is None else Flow(producer, rate, every)
        # Behind all that is there, also where the gateway has not read that yet.
        ends = {str(p): offset for p, offset in flow.ends.items()}
        begin: dict[str, object] = {"from": {"positions": ends}} if backlog else {}
        async with scene(running, topic, flow, wishes(topic, each, {**(policy or {}), **begin})) as stage:
            yield stage


async def injected(stage: Scene, injection: Injection, phases: Phases) -> Outcome:
    """Return what came of a fault; of a second one if in the first a step of the loop took too long.

    On a shared machine a hypervisor may take as much, unseen. What the gateway itself does, it does again.
    """
    outcome = await stage.inject(injection, phases)
    if outcome.result is Result.PASSED and outcome.held_up and injection.restore is None:
        outcome = await stage.inject(injection, phases)
    return outcome
