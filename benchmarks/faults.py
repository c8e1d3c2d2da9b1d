"""Faults, again and again: `python -m benchmarks.faults`, part of `make bench`.

Every kind that takes less than a second is done 1,000 times, the others 100 times (`--brief`, `--longer`), on
real brokers, with a ledger of every event at every client: see `tests/faults`, which does a few of each. One
JSON line an injection goes to stdout, what came of each kind to `results/faults.json`, and from there with
`--docs` into the table in docs/explanation/faults.md. The whole takes about eight hours; `--kind` takes
single kinds, whose results replace those that are there.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import trio

from tests.doc_blocks import rewrite
from tests.faults import broker_faults, client_faults, crowd_faults, gateway_faults
from tests.faults.brokers import FaultyBroker
from tests.faults.cluster_faults import Cluster, cluster, cluster_faults
from tests.faults.experiment import Injection, Outcome, Phases, Result, Scene, summary
from tests.faults.mischief import Words
from tests.faults.stages import WORDS, kafka_scene

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "faults.json"
PAGE = ROOT / "docs" / "explanation" / "faults.md"
PART = "faults"
CROWD = crowd_faults.Crowd(returning=5_000, stalled=1_000, backlog=1_000_000)
_BRIEF = {*broker_faults.BRIEF, *client_faults.BRIEF}

Faults = Mapping[str, tuple[Injection, Phases]]


@click.command(help=__doc__)
@click.option("--brief", type=click.IntRange(0), default=1000, show_default=True, help="Of each brief kind.")
@click.option("--longer", type=click.IntRange(0), default=100, show_default=True, help="Of each other kind.")
@click.option("--phase", type=float, help="Seconds of each phase of the longer ones (default: as the tests).")
@click.option("--kind", "kinds", multiple=True, help="Only kinds whose name has this in it.")
@click.option("--docs", is_flag=True, help="Only put the last results into the documentation.")
def main(brief: int, longer: int, phase: float | None, kinds: tuple[str, ...], docs: bool) -> None:
    if not docs:
        run = _Run(brief, longer, phase, kinds)
        folder = Path(tempfile.mkdtemp(prefix="faults-"))
        try:
            trio.run(run.everything, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    rewrite(PAGE, PART, table(json.loads(RESULTS.read_text())))
    if not docs and run.bad:
        raise click.ClickException(f"{run.bad} injections did not pass: see `reasons` in {RESULTS.name}")


class _Run:
    def __init__(self, brief: int, longer: int, phase: float | None, kinds: Sequence[str]) -> None:
        self.found: list[dict[str, Any]] = []
        self.bad = 0
        self._brief = brief
        self._longer = longer
        self._phase = phase
        self._kinds = kinds

    async def everything(self, folder: Path) -> None:
        if self._wanted((*_one_broker_kinds(), *crowd_faults.KINDS)):
            await self._on_one_broker(folder)
        await self._on_three(folder)

    async def _on_one_broker(self, folder: Path) -> None:
        broker = FaultyBroker(folder / "broker")
        await trio.to_thread.run_sync(broker.open)
        try:
            async with broker.between() as between:

                @asynccontextmanager
                async def stage(**scene: Any) -> AsyncIterator[tuple[Scene, Faults]]:
                    errors = {gateway_faults.RAISED}
                    way = broker.bootstrap
                    gateways_way = way if scene else broker.proxied  # a crowd would be held up by the proxy
                    async with kafka_scene(folder, way, gateways_way, expected_errors=errors, **scene) as one:
                        yield (
                            one,
                            {
                                **broker_faults.broker_faults(broker, between),
                                **client_faults.client_faults(one.gateway.port),
                                **gateway_faults.gateway_faults(one, Words(folder / WORDS)),
                                **crowd_faults.crowd_faults(one, CROWD),
                            },
                        )

                await self._kinds_of(_one_broker_kinds(), stage)
                for kind in crowd_faults.KINDS:
                    await self._kinds_of((kind,), partial(stage, **crowd_faults.scene_of(kind, CROWD)))
        finally:
            await trio.to_thread.run_sync(broker.close)

    async def _on_three(self, folder: Path) -> None:
        kinds = tuple(cluster_faults(Cluster([], [])))
        if not self._wanted(kinds):
            return
        async with cluster(folder) as them:

            @asynccontextmanager
            async def stage() -> AsyncIterator[tuple[Scene, Faults]]:
                async with kafka_scene(folder, them.bootstrap, them.proxied, replication=3) as one:
                    yield one, cluster_faults(them, one)

            await self._kinds_of(kinds, stage)

    def _wanted(self, kinds: Sequence[str]) -> list[str]:
        return [
            kind
            for kind in kinds
            if (self._brief if kind in _BRIEF else self._longer)
            and (not self._kinds or any(part in kind for part in self._kinds))
        ]

    async def _kinds_of(self, kinds: Sequence[str], stage: Callable[[], Any]) -> None:
        """Make all injections of these kinds; after one that did not pass, on a new gateway."""
        for kind in self._wanted(kinds):
            outcomes: list[Outcome] = []
            count = self._brief if kind in _BRIEF else self._longer
            began = time.monotonic()
            while len(outcomes) < count:
                try:
                    async with stage() as (scene, faults):
                        while len(outcomes) < count:
                            outcomes.append(await self._inject(scene, *faults[kind]))
                            if outcomes[-1].result is not Result.PASSED:
                                break
                except* AssertionError as group:
                    # What the gateway logged, or how it ended, is not as it should be either: say so.
                    if not outcomes or outcomes[-1].result is Result.PASSED:
                        raise
                    click.echo(f"after it: {group.exceptions[0]}", err=True)
            self.found.append({**summary(outcomes), "seconds": round(time.monotonic() - began)})
            store(self.found[-1:])
            click.echo(json.dumps(self.found[-1]), err=True)

    async def _inject(self, scene: Scene, injection: Injection, phases: Phases) -> Outcome:
        if self._phase is not None and injection.kind not in _BRIEF:
            phases = replace(phases, steady=self._phase, impacted=self._phase, recovering=self._phase)
        outcome = await scene.inject(injection, phases)
        click.echo(json.dumps(outcome.facts()))
        self.bad += outcome.result is not Result.PASSED
        if injection.restore is not None:
            await injection.restore()
        return outcome


def _one_broker_kinds() -> tuple[str, ...]:
    return (
        *broker_faults.BRIEF,
        *client_faults.BRIEF,
        *broker_faults.LONGER,
        broker_faults.KILLED,
        *(kind for kind in client_faults.client_faults(0) if kind not in client_faults.BRIEF),
        *gateway_faults.KINDS,
    )


def store(found: Sequence[Mapping[str, Any]]) -> None:
    """Store new results in place of those of the same kind; the others stay."""
    kept = json.loads(RESULTS.read_text())["kinds"] if RESULTS.exists() else []
    new = {one["kind"] for one in found}
    date = time.strftime("%Y-%m-%d")
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "date": date}
    kinds = [*(one for one in kept if one["kind"] not in new), *({**one, **machine} for one in found)]
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps({"kinds": kinds}, indent=1) + "\n")


def table(results: Mapping[str, Any]) -> str:
    """Return what came of each kind, as Markdown."""
    rows = [
        "| fault | row | injected | passed, hung, failed | noticed | served again: median, worst "
        "| latest event | loop held: median, worst |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in sorted(results["kinds"], key=lambda one: (one["row"][0], int(one["row"][1:]), one["kind"])):
        outcomes = ", ".join(f"{one[result]:,}" for result in ("PASSED", "HANG", "FAILED"))
        served = f"{_s(one['served_p50_s'])}, {_s(one['served_worst_s'])}"
        rows.append(
            f"| {one['kind']} | {one['row']} | {one['injections']:,} | {outcomes} | {_s(one['noticed_s'])} | "
            f"{served} | {_s(one['worst_lag_s'])} | {one['blocked_p50_ms']:.0f} ms, "
            f"{one['blocked_ms']:.0f} ms |"
        )
    events = sum(one["events"] for one in results["kinds"])
    total = sum(one["injections"] for one in results["kinds"])
    first = (
        f"{total:,} injections, {events:,} events in the ledgers of the clients, "
        f"{min(one['date'] for one in results['kinds'])} to {max(one['date'] for one in results['kinds'])}."
    )
    return "\n".join([first, "", *rows])


def _s(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f} s"


if __name__ == "__main__":
    main()
