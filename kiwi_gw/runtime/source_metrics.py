"""What a source counts for itself."""

from __future__ import annotations

from collections.abc import Iterable

from kiwi_gw.api import MetricSpec
from kiwi_gw.runtime.meters import Histogram, SourceMeter


class SourceMetricValues:
    """`api.SourceMetrics` of one source: its gauges are here, the rest is in its meter, which outlives it.

    gauges: those that were set, by name. meter: None where nothing is measured.
    """

    def __init__(self, declared: Iterable[MetricSpec], meter: SourceMeter | None) -> None:
        self.gauges: dict[str, float] = {}
        self._kinds = {spec.name: spec for spec in declared}
        self._meter = meter
        if meter is None:
            return
        for spec in declared:  # so that a series is there before there is anything to count
            if spec.grows:
                meter.metrics.setdefault(spec.name, 0)
            elif spec.kind == "histogram":
                meter.histograms.setdefault(spec.name, Histogram(spec.bounds))

    def set(self, name: str, value: float) -> None:
        self._check(name, "gauge")
        self.gauges[name] = value

    def add(self, name: str, amount: float = 1) -> None:
        if not self._check(name).grows:
            raise KeyError(f"{name!r} is not added to: it is a {self._kinds[name].kind}")
        if self._meter is not None:
            self._meter.metrics[name] += amount

    def observe(self, name: str, value: float) -> None:
        self._check(name, "histogram")
        if self._meter is not None:
            self._meter.histograms[name].observe(value)

    def _check(self, name: str, kind: str = "") -> MetricSpec:
        spec = self._kinds.get(name)
        if spec is None or (kind and spec.kind != kind):
            raise KeyError(f"the type of this source declares no {kind or 'figure'} {name!r}")
        return spec
