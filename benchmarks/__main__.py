"""`python -m benchmarks`: see the top of the package."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import trio

from benchmarks import report
from benchmarks.errors import RunFailed
from benchmarks.runs import Run, Session
from benchmarks.scenarios import SCENARIOS, SYSTEMS, Scenario, System
from kiwi_gw.demo.broker import Broker

_SLICES = (16 * 1024, 64 * 1024, 128 * 1024, 256 * 1024)


@click.command(help="Runs SCENARIO, or all: " + ", ".join(scenario.name for scenario in SCENARIOS) + ".")
@click.argument("names", metavar="[SCENARIO]...", nargs=-1, type=click.Choice([s.name for s in SCENARIOS]))
@click.option("--subscribers", type=click.IntRange(1), help="Connections.")
@click.option("--records", type=click.IntRange(1), help="Records that are measured.")
@click.option("--warm", type=click.IntRange(1), help="Records before them.")
@click.option("--size", type=click.IntRange(80), help="Bytes of a record's value.")
@click.option("--partitions", type=click.IntRange(1), help="Partitions of the topic.")
@click.option("--credits", type=click.IntRange(2), help="pull: the balance that is renewed at half.")
@click.option("--batch-bytes", type=click.IntRange(1024), help="Bytes of a Kafka batch.")
@click.option(
    "--runs", type=click.IntRange(1), default=3, show_default=True, help="Rounds; medians are taken."
)
@click.option("--only", type=click.Choice(SYSTEMS), multiple=True, help="Run these systems only.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep logs and configurations in this folder.")
def main(
    names: tuple[str, ...], runs: int, only: tuple[System, ...], keep: Path | None, **sizes: int | None
) -> None:
    chosen = [scenario for scenario in SCENARIOS if not names or scenario.name in names]
    changes: dict[str, Any] = {name: size for name, size in sizes.items() if size is not None}
    void = False
    for scenario in chosen:
        changed = replace(scenario, **changes)
        if only:
            changed = replace(changed, systems=tuple(s for s in changed.systems if s in only))
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f"bench-{scenario.name}-", dir=keep))
        try:
            void |= trio.run(_measure, changed, runs, folder)
        except RunFailed as error:
            raise click.ClickException(str(error)) from None
        finally:
            if keep is None:
                shutil.rmtree(folder, ignore_errors=True)
    if void:
        raise click.ClickException("there were void runs: see the faults in their lines")


async def _measure(scenario: Scenario, runs: int, folder: Path) -> bool:
    """All rounds of a scenario. Returns whether a run was void."""
    void = False
    async with Broker(folder / "broker", heap="1g") as broker:
        session = Session(broker, folder)
        slices = await _calibrated(scenario, session)
        rounds: list[dict[System, Run]] = []
        for number in range(1, runs + 1):
            rounds.append({})
            for system in scenario.systems:
                _say(f"{scenario.name}, round {number} of {runs}: {system}")
                run = await _run(scenario.of(system), system, session, slices)
                click.echo(report.line(scenario, system, number, run, slices.get(system, 0)))
                if run.faults:
                    void = True
                    _say(f"void: {'; '.join(run.faults)}")
                else:
                    rounds[-1][system] = run
    for line in report.table(scenario, rounds):
        _say(line)
    with contextlib.suppress(ValueError):
        _say(f"  the load client could have read at least {report.headroom(rounds):.1f} times as much")
    return void


async def _calibrated(scenario: Scenario, session: Session) -> dict[System, int]:
    """The gateway's mean slice, and the one that is the best for the ceiling."""
    slices: dict[System, int] = {}
    if {"ceiling", "best ceiling"} & set(scenario.systems):
        _say(f"{scenario.name}: counting the gateway's sends")
        run = await session.gateway(scenario, counted=True)
        if run.faults:
            raise RunFailed(f"the frames of this run cannot be used: {'; '.join(run.faults)}")
        slices["ceiling"] = round(run.counts["sent"] / run.counts["sends"])
        _say(
            f"  {run.counts['sends']:,} sends of {slices['ceiling']:,} bytes in the mean, "
            f"{run.counts['refused']:,} refused"
        )
    if "best ceiling" in scenario.systems:
        rates = {size: (await session.ceiling(scenario, size)).rate for size in _SLICES}
        _say("  ceiling by slice: " + ", ".join(f"{size:,} B {rate:,.0f}/s" for size, rate in rates.items()))
        slices["best ceiling"] = max(rates, key=rates.__getitem__)
    return slices


async def _run(scenario: Scenario, system: System, session: Session, slices: dict[System, int]) -> Run:
    match system:
        case "gateway" | "push":
            return await session.gateway(scenario)
        case "ceiling" | "best ceiling":
            return await session.ceiling(scenario, slices[system])
        case "peer":
            return await session.peer(scenario)
        case "getmany":
            return await session.getmany(scenario)


def _say(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
