"""`python -m benchmarks`: see the top of the package."""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import trio

from benchmarks import report, results
from benchmarks.configuration import can
from benchmarks.errors import RunFailed
from benchmarks.profile import hot_path, instructions, profile
from benchmarks.rounds import rounds
from benchmarks.run import SYSTEMS, System
from benchmarks.scenario import Scenario
from benchmarks.scenarios import SCENARIOS
from benchmarks.target import Target
from kiwi_demo.broker import Broker

_NAMES = [scenario.name for scenario in SCENARIOS]
_GROUPS = list(dict.fromkeys(scenario.group for scenario in SCENARIOS if scenario.group))
_REPEAT = 5
_WARM_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _Wish:
    """Hold what the command line asks for. changes: of sizes. keep: where logs stay."""

    changes: Mapping[str, Any]
    repeat: int | None
    only: tuple[System, ...]
    keep: Path | None
    save: bool
    target: Target | None


@click.command(
    help=f"""Runs SCENARIO, or all: {", ".join(_NAMES)}; together: {", ".join(_GROUPS)}.

    One JSON line a run on stdout, everything for people on stderr. `python -m benchmarks report`,
    `profile`, `hot-path` and `instructions` are commands of their own: see their --help."""
)
@click.argument("names", metavar="[SCENARIO]...", nargs=-1, type=click.Choice(_NAMES + _GROUPS))
@click.option("--subscribers", type=click.IntRange(1), help="Connections.")
@click.option("--stalled", type=click.IntRange(0), help="Further connections that do not read.")
@click.option("--attackers", type=click.IntRange(0), help="Further connections that use all they may.")
@click.option("--records", type=click.IntRange(1), help="Records that are measured.")
@click.option("--warm", type=click.IntRange(1), help="Records before them.")
@click.option(
    "--rate", type=click.IntRange(1), help="Records per second, where it is not all that fit through."
)
@click.option("--seconds", type=click.FloatRange(0.1), help="How long records come at the rate.")
@click.option("--size", type=click.IntRange(110), help="Bytes of a record's value.")
@click.option("--partitions", type=click.IntRange(1), help="Partitions of a topic.")
@click.option("--topics", type=click.IntRange(1), help="Topics, which subscribers are dealt to.")
@click.option("--mode", type=click.Choice(["push", "pull", "mixed"]), help="How subscribers subscribe.")
@click.option("--credits", type=click.IntRange(2), help="pull: the balance that is renewed at half.")
@click.option("--churn", type=click.FloatRange(0), help="Subscribers that go and come per second.")
@click.option("--tls/--no-tls", default=None, help="Encrypted connections.")
@click.option("--pin/--no-pin", default=None, help="The server alone on one core, the rest on the others.")
@click.option("--batch-bytes", type=click.IntRange(1024), help="Bytes of a Kafka batch.")
@click.option("--repeat", type=click.IntRange(1), help=f"Rounds; medians are taken. [default: {_REPEAT}]")
@click.option("--only", type=click.Choice(SYSTEMS), multiple=True, help="Run these systems only.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep logs and configurations in this folder.")
@click.option("--save", is_flag=True, help="Keep the lines in benchmarks/results for the report.")
@click.option("--target", metavar="WS_URL", help="Measure this server (Kiwi protocol) instead of ours.")
@click.option("--source", help="--target: the name of its source.")
@click.option("--topic", help="--target: the topic behind that source (default: its name).")
@click.option("--bootstrap", help="--target: its Kafka, HOST:PORT.")
def main(
    names: tuple[str, ...],
    repeat: int | None,
    only: tuple[System, ...],
    keep: Path | None,
    save: bool,
    target: str | None,
    source: str | None,
    topic: str | None,
    bootstrap: str | None,
    **sizes: object,
) -> None:
    found: Target | None = None
    if target is not None:
        if source is None or bootstrap is None:
            raise click.UsageError("--target needs --source and --bootstrap")
        found = Target.at(target, source, topic or source, bootstrap)
        only = ("target",)
        if not names:
            raise click.UsageError("--target needs a SCENARIO")
    changes = {name: size for name, size in sizes.items() if size is not None}
    wish = _Wish(changes, repeat, only, keep, save, found)
    chosen = [one for one in SCENARIOS if not names or one.name in names or one.group in names]
    groups = itertools.groupby(chosen, key=lambda one: one.group or one.name)
    failed = [name for _, group in groups for name in _run(list(group), wish)]
    if save:
        report.write()
    if failed:
        raise click.ClickException(f"void runs, or none, in: {', '.join(failed)}")


def _run(scenarios: Sequence[Scenario], wish: _Wish) -> list[str]:
    """Run scenarios on one broker. Returns the names of those of which not every round counts."""
    able = [replace(one, sizes=replace(one.sizes, **wish.changes)) for one in scenarios if _possible(one)]
    if not able:
        return []
    if wish.keep is not None:
        wish.keep.mkdir(parents=True, exist_ok=True)
    name = able[0].group or able[0].name
    folder = Path(tempfile.mkdtemp(prefix=f"bench-{name}-", dir=wish.keep))
    try:
        measured = trio.run(_measured, able, wish, folder)
    finally:
        if wish.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    for line in report.text([(one, results.of_rounds(lines)) for one, lines in measured]):
        _say(line)
    return [one.name for one, lines in measured if any("void" in line for line in lines)]


def _possible(scenario: Scenario) -> bool:
    if scenario.needs is None or can(scenario.needs):
        return True
    _say(f"{scenario.name}: not run, as this gateway cannot do that yet ({scenario.needs})")
    return False


async def _measured(
    scenarios: Sequence[Scenario], wish: _Wish, folder: Path
) -> list[tuple[Scenario, list[results.Line]]]:
    found: list[tuple[Scenario, list[results.Line]]] = []
    async with Broker(folder / "broker", heap="1g") as broker:
        for one in scenarios:
            with closing(results.Log(one.name, wish.save, sys.stdout)) as kept:
                try:
                    await rounds(
                        one,
                        wish.repeat or one.repeat or _REPEAT,
                        broker,
                        folder / one.name,
                        kept.add,
                        _say,
                        only=wish.only,
                        target=wish.target,
                        warm_seconds=0.0 if found else _WARM_SECONDS,
                    )
                except RunFailed as error:
                    _say(f"{one.name}: {error}")
                    kept.add({"scenario": one.name, "void": str(error)})
            found.append((one, kept.lines))
    return found


def _say(text: str) -> None:
    click.echo(text, err=True)


_COMMANDS: Mapping[str, click.Command] = {
    "report": report.main,
    "profile": profile,
    "hot-path": hot_path,
    "instructions": instructions,
}


def _chosen(words: Sequence[str]) -> Callable[[], None]:
    """Return a command of its own, or the scenarios."""
    if words and words[0] in _COMMANDS:
        command = _COMMANDS[words[0]]
        return lambda: command.main(list(words[1:]), prog_name=f"python -m benchmarks {words[0]}")
    return lambda: main.main(list(words), prog_name="python -m benchmarks")


if __name__ == "__main__":
    _chosen(sys.argv[1:])()
