"""The table of metrics in `config/METRICS.md`, made from the catalog and the plugins.

`python -m kiwi_gw.edge.metrics.reference config` writes it anew; a test says when to.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from kiwi_gw.edge.metrics.catalog import OWN, Metric, metric_of
from kiwi_gw.plugin_manager import shipped

FILE = "METRICS.md"
BEGIN, END = "<!-- metrics: begin -->", "<!-- metrics: end -->"


def documented() -> Iterator[Metric]:
    """The gateway's own, and those of the sources that come with it."""
    yield from OWN
    for kind in shipped().source_types().values():
        yield from map(metric_of, kind.figures)


def table() -> str:
    """One row per metric."""
    rows = ["| metric | type | labels | meaning | of several workers |", "|---|---|---|---|---|"]
    for metric in documented():
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
