"""A snapshot as the text that scrapers read: Prometheus' format, or OpenMetrics for those who ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from kiwi_gw.edge.metrics.catalog import CATALOG, Kind
from kiwi_gw.edge.metrics.snapshot import Snapshot


def expose(snapshot: Snapshot, accept: str) -> tuple[bytes, str]:
    """The text and its content type. accept: the request's `Accept` header, empty for none."""
    encode, content_type = choose_encoder(accept)
    return encode(_Families(snapshot)), content_type


class _Families(Collector):
    """What the encoders of prometheus-client read."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        for name, metric in CATALOG.items():
            if metric.kind is Kind.HISTOGRAM:
                histograms = self._snapshot.histograms.get(name, {})
                histogram = HistogramMetricFamily(name, metric.meaning, labels=metric.labels)
                for labels, item in sorted(histograms.items()):
                    bounds = [*map(floatToGoString, item.bounds), "+Inf"]
                    cumulated = zip(bounds, accumulate(item.counts), strict=True)
                    histogram.add_metric(labels, list(cumulated), item.sum)
                if histogram.samples:
                    yield histogram
                continue
            kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
            family = kind(name, metric.meaning, labels=metric.labels)
            for labels, value in sorted(self._snapshot.values.get(name, {}).items()):
                family.add_metric(labels, value)
            if family.samples:
                yield family
