"""`python -m benchmarks`: see the top of the package."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
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
    help=f"""Runs SCENARIO, or all: {", ".join(_NAMES)}.

    One JSON line a run on stdout, everything for people on stderr. `python -m benchmarks report`,
    `profile`, `hot-path` and `instructions` are commands of their own: see their --help."""
)
@click.argument("names", metavar="[SCENARIO]...", nargs=-1, type=click.Choice(_NAMES))
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
    failed = [one.name for one in SCENARIOS if (not names or one.name in names) and not _run(one, wish)]
    if save:
        report.write()
    if failed:
        raise click.ClickException(f"void runs, or none, in: {', '.join(failed)}")


def _run(scenario: Scenario, wish: _Wish) -> bool:
    """Run a scenario. Returns whether every round of it counts."""
    if scenario.needs is not None and not can(scenario.needs):
        _say(f"{scenario.name}: not run, as this gateway cannot do that yet ({scenario.needs})")
        return True
    changed = replace(scenario, sizes=replace(scenario.sizes, **wish.changes))
    if wish.keep is not None:
        wish.keep.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"bench-{scenario.name}-", dir=wish.keep))
    kept = results.Log(scenario.name, wish.save, sys.stdout)
    try:
        good = trio.run(_measured, changed, wish, folder, kept)
    except RunFailed as error:
        _say(f"{scenario.name}: {error}")
        return False
    finally:
        kept.close()
        if wish.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    for line in report.text(changed, results.of_rounds(kept.lines)):
        _say(line)
    return good


async def _measured(scenario: Scenario, wish: _Wish, folder: Path, kept: results.Log) -> bool:
    times = wish.repeat or scenario.repeat or _REPEAT
    async with Broker(folder / "broker", heap="1g") as broker:
        return await rounds(
            scenario,
            times,
            broker,
            folder,
            kept.add,
            _say,
            only=wish.only,
            target=wish.target,
            warm_seconds=_WARM_SECONDS,
        )


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
