"""What the rounds of a scenario say: medians beside targets, as text and as the table of the documentation.

python -m benchmarks report            # what was saved, as text; writes results/report.md and the plots
python -m benchmarks report --docs     # and the marked block of docs/explanation/benchmarks.md
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from benchmarks import plots, results
from benchmarks.scenario import Figures, Goal, Scenario, times
from benchmarks.scenarios import SCENARIOS
from tests.doc_blocks import rewrite

PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "benchmarks.md"
ELSEWHERE = Path(__file__).parent / "elsewhere.md"
"""The figures of servers that cannot run here, which stand below ours."""
PART = "benchmarks"
_HEADS = ("scenario", "figure", "target", "measured (least to most)", "reached", "peer", "of the peer's")

Row = tuple[str, ...]
"""Scenario, figure, target, median with least and most, whether it was reached; the median of the peer's, and
of the ratios to it."""


def rows(scenario: Scenario, rounds: Sequence[Figures]) -> list[Row]:
    """Return a row for each goal that was measured."""
    found: list[Row] = []
    for goal in scenario.goals:
        counted = [figures for figures in rounds if goal.figure in figures]
        if counted:
            values = [figures[goal.figure] for figures in counted]
            peer = f"{goal.figure} of the peer"
            beside = [(figures[goal.figure], figures[peer]) for figures in counted if peer in figures]
            ratio = statistics.median(one / other for one, other in beside) if beside else None
            found.append(
                (
                    scenario.name,
                    goal.figure,
                    goal.target,
                    _shown(goal, values),
                    _reached(goal, values, ratio),
                    goal.shown(statistics.median(other for _, other in beside)) if beside else "",
                    "" if ratio is None else times(ratio),
                )
            )
    return found


def _shown(goal: Goal, values: Sequence[float]) -> str:
    median = goal.shown(statistics.median(values))
    if len(values) == 1:
        return median
    return f"{median} ({goal.shown(min(values))} to {goal.shown(max(values))})"


def _reached(goal: Goal, values: Sequence[float], ratio: float | None) -> str:
    reached = goal.reached(statistics.median(values), ratio)
    return {None: "", True: "yes", False: "no"}[reached]


def text(measured: Sequence[tuple[Scenario, Sequence[Figures]]]) -> list[str]:
    """Return lines for a terminal: what was measured, then one table of it."""
    says = [f"{scenario.name}: {scenario.says}; medians of {len(rounds)}" for scenario, rounds in measured]
    found = [_HEADS, *(row for scenario, rounds in measured for row in rows(scenario, rounds))]
    widths = [max(map(len, column)) for column in zip(*found, strict=True)]
    lines = ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in found]
    return [*says, *(lines if len(found) > 1 else [])]


def markdown(measured: Iterable[tuple[Scenario, Sequence[Figures]]]) -> str:
    """Return one table of all scenarios that were measured."""
    lines = [f"| {' | '.join(_HEADS)} |", "|---" * len(_HEADS) + "|"]
    for scenario, rounds in measured:
        for index, (_, *cells) in enumerate(rows(scenario, rounds)):
            name = f"`{scenario.name}`: {scenario.says}" if index == 0 else ""
            lines.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join(lines) + "\n"


def write() -> str:
    """Make the report and the plots of what was saved. Returns the table."""
    measured = [(one, results.of_rounds(results.saved(one.name))) for one in SCENARIOS]
    table = (
        markdown((scenario, rounds) for scenario, rounds in measured if rounds) + "\n" + ELSEWHERE.read_text()
    )
    results.FOLDER.mkdir(exist_ok=True)
    (results.FOLDER / "report.md").write_text(table)
    try:
        plots.draw(results.saved("sweep"), results.FOLDER)
    except ModuleNotFoundError as error:
        click.echo(f"no plots were drawn: {error.name} is not installed (dependency group `bench`)", err=True)
    return table


@click.command(help="Table and plots of what was saved.")
@click.option("--docs", is_flag=True, help="Rewrite the marked block of the documentation.")
def main(docs: bool) -> None:
    table = write()
    click.echo(table, nl=False)
    if docs:
        shown = "".join(
            f"\n![{title}](../../benchmarks/results/{name}.svg)\n"
            for name, title in plots.drawn(results.FOLDER)
        )
        rewrite(PAGE, PART, f"{shown}\n{table}")
