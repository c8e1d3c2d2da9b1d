"""Where the time goes: samples of the real gateway under load; the hot path alone, timed and counted.

python -m benchmarks profile [SCENARIO]   # by function, by module and by line
python -m benchmarks hot-path             # CPU time by protocol, and of REQUESTs
python -m benchmarks instructions         # callgrind (valgrind), the same on a busy machine
"""

from __future__ import annotations

import json
import linecache
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import trio

from benchmarks.errors import RunFailed
from benchmarks.hot_path import WAYS, send
from benchmarks.lab import Lab, Note
from benchmarks.requests import N, ask
from benchmarks.results import FOLDER
from benchmarks.scenario import Scenario
from benchmarks.scenarios import SCENARIOS
from kiwi_demo.broker import Broker

_TOP = 25
_EVERYTHING = 0.99
"""Functions in so many samples say nothing: they are the way from the start to the event loop."""
_LONGER = 4
"""So many times the records of the scenario: a sample comes every 4 ms or so, as the kernel's clock ticks."""
_BATCHES = 10
_EVENTS = 400
_SUBSCRIBERS = 100
_REQUESTS = 20
"""Of each client in a round."""
_COLLECTED = re.compile(r"Collected : (\d+)")

Sample = tuple[int, Sequence[tuple[str, int, str]]]
"""How often, and (file, line, function) of every frame, innermost first."""

_PROFILED = ("fanout", "single")


@click.command(help="Samples the gateway while SCENARIO runs, by default " + " and ".join(_PROFILED) + ".")
@click.argument("names", metavar="[SCENARIO]...", nargs=-1, type=click.Choice([s.name for s in SCENARIOS]))
@click.option("--save", is_flag=True, help="Write the tables to benchmarks/results, too.")
def profile(names: tuple[str, ...], save: bool) -> None:
    for scenario in SCENARIOS:
        if scenario.name in (names or _PROFILED):
            with tempfile.TemporaryDirectory(prefix="bench-profile-") as folder:
                samples = trio.run(_sampled, scenario, Path(folder))
            text = "\n".join(table(scenario.name, samples)) + "\n"
            click.echo(text, nl=False)
            if save:
                (FOLDER / f"profile-{scenario.name}.txt").write_text(text)


async def _sampled(scenario: Scenario, folder: Path) -> list[Sample]:
    sizes = replace(scenario.sizes, records=scenario.sizes.records * _LONGER)
    async with Broker(folder / "broker", heap="1g") as broker:
        note = Note(lambda line: None, lambda text: click.echo(text, err=True))
        files = folder / "samples"
        files.mkdir()
        module = ("benchmarks.workers.profiled_gateway", str(files))
        lab = Lab(broker, folder, note, only=("gateway",), module=module)
        await scenario.measure(lab, sizes)
    found = [json.loads(file.read_text()) for file in files.iterdir()]
    return [(count, stack) for each in found for count, stack in each["samples"] if _runs(stack)]


def _runs(stack: Sequence[tuple[str, int, str]]) -> bool:
    """Return whether a sample is of the event loop's time: what was before is the start."""
    return any(function == "unrolled_run" for _, _, function in stack)


def table(name: str, samples: Sequence[Sample]) -> list[str]:
    """Report the processor time by module, by function (alone, and with what it calls) and by line."""
    total = sum(count for count, _ in samples) or 1
    modules, alone, whole, lines = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for count, stack in samples:
        names = [f"{_module(file)}:{function}" for file, _, function in stack]
        if not names:
            continue
        modules[_module(stack[0][0])] += count
        alone[names[0]] += count
        for one in set(names):
            whole[one] += count
        file, line, _ = stack[0]
        lines[f"{_module(file)}:{line}  {linecache.getline(file, line).strip()[:70]}"] += count
    parts = [f"{name}: {total:,} samples of processor time"]
    parts += _part("by module", modules, total)
    parts += _part("by function, without what it calls", alone, total)
    parts += _part("by function, with what it calls", whole, total)
    parts += _part("by line (a call into compiled code counts for its line)", lines, total)
    return parts


def _part(title: str, counts: Counter[str], total: int) -> Iterable[str]:
    yield f"\n  {title}"
    told = [(name, count) for name, count in counts.most_common() if count <= total * _EVERYTHING]
    for name, count in told[:_TOP]:
        yield f"  {count / total:6.1%}  {name}"


def _module(file: str) -> str:
    """Name a file as it is found below a folder of packages: `kiwi_gw/core/source_hub.py`."""
    for mark in ("/site-packages/", "/plugins/"):
        if mark in file:
            return file.rpartition(mark)[2]
    for mark in ("/kiwi_gw/", "/benchmarks/"):
        if mark in file:
            return mark[1:] + file.partition(mark)[2]
    return "/".join(Path(file).parts[-2:])


@click.command(help=f"CPU time of the hot path alone, by protocol ({'; '.join(WAYS)}), and of REQUESTs.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="The best one counts.")
@click.option("--batches", type=click.IntRange(1), default=50, show_default=True, help="Of 400 events.")
def hot_path(rounds: int, batches: int) -> None:
    seconds = dict.fromkeys(WAYS, math.inf)
    for _ in range(rounds):
        for name, form in WAYS.items():
            seconds[name] = min(seconds[name], send(form, batches, _SUBSCRIBERS, _EVENTS))
    for name, spent in seconds.items():
        rate = batches * _EVENTS * _SUBSCRIBERS / spent
        click.echo(f"{name}: {rate:,.0f}/s, {seconds['kiwi'] / spent:.2f} of kiwi")
    for events in (0, N):
        spent = min(ask(_REQUESTS, _REQUESTS * events) for _ in range(rounds))
        click.echo(f"a REQUEST that lets out {events} events: {spent * 1e6:.1f} us")


@click.command(help="Instructions that the hot path takes, counted by valgrind's callgrind.")
@click.option("--save", is_flag=True, help="Write the figures to benchmarks/results, too.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep callgrind's files in this folder.")
def instructions(save: bool, keep: Path | None) -> None:
    found = counted(keep)
    click.echo("".join(f"{name}: {value:,.0f}\n" for name, value in found.items()), nl=False)
    if save:
        (FOLDER / "instructions.json").write_text(json.dumps(found, indent=1) + "\n")


def counted(keep: Path | None = None) -> dict[str, float]:
    """Return the instructions per event and per send. They are differences of runs that are equal but for one
    thing, so that start and making the records do not count."""
    if shutil.which("valgrind") is None:
        raise RunFailed("there is no valgrind; on Debian: apt-get install valgrind")
    per_batch = {count: _per_batch(count, keep) for count in (0, 1, _SUBSCRIBERS)}
    send = (per_batch[_SUBSCRIBERS] - per_batch[1]) / (_SUBSCRIBERS - 1)
    return {
        f"batch of {_EVENTS} events to {_SUBSCRIBERS} subscribers": per_batch[_SUBSCRIBERS] - per_batch[0],
        "encoding, per event": (per_batch[1] - per_batch[0] - send) / _EVENTS,
        "one more subscriber, per batch": send,
        "delivery of one event to one subscriber": (per_batch[_SUBSCRIBERS] - per_batch[0])
        / (_EVENTS * _SUBSCRIBERS),
    }


def _per_batch(subscribers: int, keep: Path | None) -> float:
    least, most = (_instructions(count, subscribers, keep) for count in (1, 1 + _BATCHES))
    return (most - least) / _BATCHES


def _instructions(batches: int, subscribers: int, keep: Path | None) -> int:
    out = "/dev/null" if keep is None else str(keep / f"callgrind.{subscribers}.{batches}")
    command: list[Any] = [
        "valgrind", "--tool=callgrind", f"--callgrind-out-file={out}",
        sys.executable, "-m", "benchmarks.hot_path", str(batches), str(subscribers), str(_EVENTS),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONHASHSEED": "0"}
    )
    found = _COLLECTED.search(done.stderr)
    if done.returncode or found is None:
        raise RunFailed(f"callgrind failed: {done.stderr[-2_000:]}")
    return int(found[1])
