"""What sources count for themselves."""

from __future__ import annotations

import pytest

from kiwi_gw.api import MetricSpec, PluginError
from kiwi_gw.edge.metrics.catalog import CATALOG, MergeRule, MetricKind, declare
from kiwi_gw.runtime.meters import SourceMeter
from kiwi_gw.runtime.source_metrics import SourceMetricValues

FIGURES = (
    MetricSpec("test_up", "gauge", "Up.", "smallest"),
    MetricSpec("test_things_total", "counter", "Things."),
    MetricSpec("test_seconds", "histogram", "How long.", bounds=(1.0, 2.0)),
)


def test_what_is_counted_outlives_the_source_and_its_gauges_do_not() -> None:
    meter = SourceMeter("a")
    for _ in range(2):
        metrics = SourceMetricValues(FIGURES, meter)
        assert metrics.gauges == {}
        metrics.set("test_up", 1)
        metrics.add("test_things_total", 3)
        metrics.observe("test_seconds", 1.5)
    assert metrics.gauges == {"test_up": 1}
    assert meter.metrics == {"test_things_total": 6}
    assert meter.histograms["test_seconds"].counts == [0, 2, 0]


def test_nothing_is_counted_where_nothing_is_measured() -> None:
    metrics = SourceMetricValues(FIGURES, None)
    metrics.add("test_things_total")
    metrics.observe("test_seconds", 1)


@pytest.mark.parametrize("name", ["test_things_total", "nobody"])
def test_only_what_was_declared_is_counted(name: str) -> None:
    with pytest.raises(KeyError, match="declares no gauge"):
        SourceMetricValues(FIGURES, SourceMeter("a")).set(name, 1)


def test_declared_metrics_are_in_the_catalog() -> None:
    declare(FIGURES)
    declare(FIGURES)
    found = CATALOG["kiwigw_test_up"]
    assert (found.kind, found.merge, found.labels) == (MetricKind.GAUGE, MergeRule.MIN, ("source",))


@pytest.mark.parametrize(
    "figure",
    [
        MetricSpec("source_up", "gauge", "Another meaning."),
        MetricSpec("test_things", "counter", "No _total."),
        MetricSpec("test_gauge_total", "gauge", "No counter."),
        MetricSpec("Test-9", "gauge", "No name."),
    ],
)
def test_a_name_must_be_one_and_its_own(figure: MetricSpec) -> None:
    with pytest.raises(PluginError, match="cannot be the name of a"):
        declare([figure])
