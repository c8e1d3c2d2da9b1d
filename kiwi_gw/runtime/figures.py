"""What a source counts for itself."""

from __future__ import annotations

from collections.abc import Iterable

from kiwi_gw.api import Figure
from kiwi_gw.runtime.meters import Histogram, SourceMeter


class SourceFigures:
    """`api.Figures` of one source: its gauges are here, the rest is added to its meter, which outlives it.

    gauges: those that were set, by name. meter: None where nothing is measured.
    """

    def __init__(self, declared: Iterable[Figure], meter: SourceMeter | None) -> None:
        self.gauges: dict[str, float] = {}
        self._kinds = {figure.name: figure for figure in declared}
        self._meter = meter
        if meter is None:
            return
        for figure in declared:  # so that a series is there before there is anything to count
            if figure.grows:
                meter.figures.setdefault(figure.name, 0)
            elif figure.kind == "histogram":
                meter.histograms.setdefault(figure.name, Histogram(figure.bounds))

    def set(self, name: str, value: float) -> None:
        self._check(name, "gauge")
        self.gauges[name] = value

    def add(self, name: str, amount: float = 1) -> None:
        if not self._check(name).grows:
            raise KeyError(f"{name!r} is not added to: it is a {self._kinds[name].kind}")
        if self._meter is not None:
            self._meter.figures[name] += amount

    def observe(self, name: str, value: float) -> None:
        self._check(name, "histogram")
        if self._meter is not None:
            self._meter.histograms[name].observe(value)

    def _check(self, name: str, kind: str = "") -> Figure:
        figure = self._kinds.get(name)
        if figure is None or (kind and figure.kind != kind):
            raise KeyError(f"the type of this source declares no {kind or 'figure'} {name!r}")
        return figure
