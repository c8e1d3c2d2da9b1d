"""The values of all metrics at one moment: of this process, sent between workers, or of all of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kiwi_gw.edge.metrics.catalog import CATALOG, PREFIX, MergeRule, MetricKind

Labels = tuple[str, ...]
"""Values in the order of `Metric.labels`."""


class HistogramBuckets(msgspec.Struct):
    """One histogram: `runtime.meters.Histogram` as it was."""

    bounds: list[float]
    counts: list[int]
    sum: float


class MetricsSnapshot:
    """Give it values with `put`; what is put twice for the same labels is merged as the catalog says."""

    def __init__(self) -> None:
        self.values: dict[str, dict[Labels, float]] = {}
        self.histograms: dict[str, dict[Labels, HistogramBuckets]] = {}

    def put(self, name: str, value: float, *labels: str) -> None:
        """One value of a counter or a gauge. name: as in the catalog, the prefix may be left out."""
        full = _checked(name, labels)
        rows = self.values.setdefault(full, {})
        known = rows.get(labels)
        rows[labels] = value if known is None else _merged(CATALOG[full].merge, known, value)

    def put_histogram(
        self, name: str, bounds: Sequence[float], counts: Sequence[int], total: float, *labels: str
    ) -> None:
        full = _checked(name, labels)
        rows = self.histograms.setdefault(full, {})
        known = rows.get(labels)
        if known is None or known.bounds != list(bounds):  # other bounds: another version of us
            rows[labels] = HistogramBuckets(list(bounds), list(counts), total)
        else:
            known.counts = [a + b for a, b in zip(known.counts, counts, strict=True)]
            known.sum += total

    def add(self, other: MetricsSnapshot) -> None:
        """Merge another one into this one."""
        for name, rows in other.values.items():
            for labels, value in rows.items():
                self.put(name, value, *labels)
        for name, histograms in other.histograms.items():
            for labels, item in histograms.items():
                self.put_histogram(name, item.bounds, item.counts, item.sum, *labels)

    def counted(self) -> MetricsSnapshot:
        """Only what adds up over time: counters and histograms."""
        kept = MetricsSnapshot()
        kept.values = {
            n: dict(rows) for n, rows in self.values.items() if CATALOG[n].kind is MetricKind.COUNTER
        }
        kept.add(_histograms_of(self))
        return kept

    def dump(self) -> bytes:
        """As JSON, for another process of the same version."""
        return msgspec.json.encode(
            _Dumped(
                {name: list(rows.items()) for name, rows in self.values.items()},
                {name: list(rows.items()) for name, rows in self.histograms.items()},
            )
        )

    @classmethod
    def load(cls, data: bytes) -> MetricsSnapshot:
        """Read what `dump` wrote. ValueError for anything else; metrics that are unknown here are left
        out."""
        dumped = msgspec.json.decode(data, type=_Dumped)
        made = cls()
        made.values = {name: dict(rows) for name, rows in dumped.values.items() if name in CATALOG}
        made.histograms = {name: dict(rows) for name, rows in dumped.histograms.items() if name in CATALOG}
        return made


class _Dumped(msgspec.Struct):
    values: dict[str, list[tuple[Labels, float]]]
    histograms: dict[str, list[tuple[Labels, HistogramBuckets]]]


def _histograms_of(snapshot: MetricsSnapshot) -> MetricsSnapshot:
    only = MetricsSnapshot()
    only.histograms = snapshot.histograms
    return only


def _checked(name: str, labels: Labels) -> str:
    full = name if name in CATALOG else PREFIX + name
    if len(CATALOG[full].labels) != len(labels):
        raise ValueError(f"{full} has the labels {CATALOG[full].labels}, not {labels}")
    return full


def _merged(merge: MergeRule, one: float, other: float) -> float:
    if merge is MergeRule.SUM:
        return one + other
    return max(one, other) if merge is MergeRule.MAX else min(one, other)
