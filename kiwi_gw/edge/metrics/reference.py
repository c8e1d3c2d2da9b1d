"""The table of metrics in `config/METRICS.md`, made from the catalog.

`python -m kiwi_gw.edge.metrics.reference config` writes it anew; a test says when to.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from kiwi_gw.edge.metrics.catalog import CATALOG, Metric

FILE = "METRICS.md"
BEGIN, END = "<!-- metrics: begin -->", "<!-- metrics: end -->"


def table(metrics: Iterable[Metric] = CATALOG.values()) -> str:
    """One row per metric."""
    rows = ["| metric | type | labels | meaning | of several workers |", "|---|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(
            f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.meaning} | {metric.merge.value} |"
        )
    return "\n".join(rows)


def with_table(text: str) -> str:
    """The document with its table made anew."""
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def write(folder: Path) -> None:
    """Write the table into the document in that folder."""
    path = folder / FILE
    path.write_text(with_table(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
