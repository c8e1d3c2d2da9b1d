"""The table of metrics in docs/reference/metrics.md, made from the catalog and the plugins.

`python -m tests.metrics_reference` writes it anew; a test says when to.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kiwi_gw.edge.metrics.catalog import OWN, Metric, metric_of
from kiwi_gw.plugin_manager import shipped
from tests.doc_blocks import rewrite

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "metrics.md"
PART = "metrics"


def documented() -> Iterator[Metric]:
    """Yield the gateway's own, and those of the sources that come with it."""
    yield from OWN
    for kind in shipped().source_types().values():
        yield from map(metric_of, kind.metrics)


def table() -> str:
    """One row per metric."""
    rows = ["| metric | type | labels | meaning | of several workers |", "|---|---|---|---|---|"]
    for metric in documented():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(
            f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.meaning} | {metric.merge.value} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    rewrite(PAGE, PART, table())
