"""What sources count for themselves."""

from __future__ import annotations

import pytest

from kiwi_gw.api import Figure, PluginError
from kiwi_gw.edge.metrics.catalog import CATALOG, Kind, Merge, declare
from kiwi_gw.runtime.figures import SourceFigures
from kiwi_gw.runtime.meters import SourceMeter

FIGURES = (
    Figure("test_up", "gauge", "Up.", "smallest"),
    Figure("test_things_total", "counter", "Things."),
    Figure("test_seconds", "histogram", "How long.", bounds=(1.0, 2.0)),
)


def test_what_is_counted_outlives_the_source_and_its_gauges_do_not() -> None:
    meter = SourceMeter("a")
    for _ in range(2):
        figures = SourceFigures(FIGURES, meter)
        assert figures.gauges == {}
        figures.set("test_up", 1)
        figures.add("test_things_total", 3)
        figures.observe("test_seconds", 1.5)
    assert figures.gauges == {"test_up": 1}
    assert meter.figures == {"test_things_total": 6}
    assert meter.histograms["test_seconds"].counts == [0, 2, 0]


def test_nothing_is_counted_where_nothing_is_measured() -> None:
    figures = SourceFigures(FIGURES, None)
    figures.add("test_things_total")
    figures.observe("test_seconds", 1)


@pytest.mark.parametrize("name", ["test_things_total", "nobody"])
def test_only_what_was_declared_is_counted(name: str) -> None:
    with pytest.raises(KeyError, match="declares no gauge"):
        SourceFigures(FIGURES, SourceMeter("a")).set(name, 1)


def test_declared_metrics_are_in_the_catalog() -> None:
    declare(FIGURES)
    declare(FIGURES)
    found = CATALOG["kiwigw_test_up"]
    assert (found.kind, found.merge, found.labels) == (Kind.GAUGE, Merge.MIN, ("source",))


@pytest.mark.parametrize(
    "figure",
    [
        Figure("source_up", "gauge", "Another meaning."),
        Figure("test_things", "counter", "No _total."),
        Figure("test_gauge_total", "gauge", "No counter."),
        Figure("Test-9", "gauge", "No name."),
    ],
)
def test_a_name_must_be_one_and_its_own(figure: Figure) -> None:
    with pytest.raises(PluginError, match="cannot be the name of a"):
        declare([figure])
