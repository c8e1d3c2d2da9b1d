"""The plots of a sweep, as PNG and SVG: needs matplotlib (dependency group `bench`)."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLOTS = {
    "throughput": "Deliveries per second over the number of subscribers",
    "delays": "Delay from produce to receive over the rate, p50 and p99",
}

Line = Mapping[str, Any]
Points = Mapping[int, float]

_NAMES = {
    "gateway": "gateway",
    "best ceiling": "only sending ready-made frames",
    "peer": "plain asyncio server",
}
_SIZE = (7.0, 4.2)


def drawn(folder: Path) -> list[tuple[str, str]]:
    """Name and title of the plots that are there."""
    return [(name, title) for name, title in PLOTS.items() if (folder / f"{name}.svg").exists()]


def draw(lines: Sequence[Line], folder: Path) -> None:
    """Draw both plots of these lines of a sweep; nothing where there are none."""
    runs = [line for line in lines if "system" in line]
    if not runs:
        return
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "kiwi-gw"  # the same file for the same figures
    from matplotlib import pyplot

    for name, fill in (("throughput", _throughput), ("delays", _delays)):
        figure, axes = pyplot.subplots(figsize=_SIZE, layout="constrained")
        fill(axes, runs)
        axes.set_title(PLOTS[name], fontsize=10)
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend(fontsize=8)
        figure.savefig(folder / f"{name}.png", dpi=110)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        pyplot.close(figure)


def throughput(runs: Iterable[Line]) -> Mapping[str, Points]:
    """Return, by system, the median deliveries per second by number of subscribers."""
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if not run["delays"]:
            found[run["system"]][run["subscribers"]].append(run["deliveries_per_s"])
    return {system: _medians(points) for system, points in found.items()}


def delays(runs: Iterable[Line], percentile: str) -> Mapping[int, Points]:
    """Return, by number of subscribers, the median of a percentile (ms) by rate."""
    found: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run["delays"]:
            found[run["subscribers"]][run["rate"]].append(run["delays"][percentile])
    return {subscribers: _medians(points) for subscribers, points in found.items()}


def _medians(points: Mapping[int, Sequence[float]]) -> Points:
    return {at: statistics.median(points[at]) for at in sorted(points)}


def _throughput(axes: Axes, runs: Sequence[Line]) -> None:
    for system, points in throughput(runs).items():
        axes.plot(list(points), list(points.values()), marker="o", label=_NAMES.get(system, system))
    axes.set(xscale="log", yscale="log", xlabel="subscribers", ylabel="deliveries / s")


def _delays(axes: Axes, runs: Sequence[Line]) -> None:
    upper = delays(runs, "p99")
    for index, (subscribers, points) in enumerate(delays(runs, "p50").items()):
        colour, name = f"C{index}", f"{subscribers:,} subscriber{'s' * (subscribers > 1)}"
        axes.plot(list(points), list(points.values()), color=colour, ls="--", label=f"{name}, p50")
        p99 = upper[subscribers]
        axes.plot(list(p99), list(p99.values()), color=colour, marker="o", label=f"{name}, p99")
    axes.set(xscale="log", yscale="log", xlabel="records / s", ylabel="ms")
