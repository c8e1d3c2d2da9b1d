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
        self._names: dict[str, frozenset[str]] = {
            kind: frozenset(figure.name for figure in declared if figure.kind == kind)
            for kind in ("gauge", "counter", "histogram")
        }
        self._meter = meter
        if meter is None:
            return
        for figure in declared:  # so that a series is there before there is anything to count
            if figure.kind == "counter":
                meter.figures.setdefault(figure.name, 0)
            elif figure.kind == "histogram":
                meter.histograms.setdefault(figure.name, Histogram(figure.bounds))

    def set(self, name: str, value: float) -> None:
        self._check("gauge", name)
        self.gauges[name] = value

    def add(self, name: str, amount: float = 1) -> None:
        self._check("counter", name)
        if self._meter is not None:
            self._meter.figures[name] += amount

    def observe(self, name: str, value: float) -> None:
        self._check("histogram", name)
        if self._meter is not None:
            self._meter.histograms[name].observe(value)

    def _check(self, kind: str, name: str) -> None:
        if name not in self._names[kind]:
            raise KeyError(f"the type of this source declares no {kind} {name!r}")
