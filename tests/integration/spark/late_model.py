"""What Spark makes of late rows, in plain Python: which rows a query drops and which it sends in which batch.

The rule. The watermark of batch N is the latest event time in the batches before N, less the delay; it never
goes back; over several inputs it is the least of theirs. In batch N a row is late, and dropped, if its event
time (of a row that is grouped by window: the end of the window) is not after the watermark of batch N-1; at
the end of batch N the state up to the watermark of N is given up, in mode append: sent. (Until Spark 3.3 the
watermark of N was the measure for both, and so it is still drawn in Spark's guide: SPARK-40925, SPARK-47698.)
What the guide promises is less: that nothing within the delay is dropped.

Which records are in which batch is what Spark itself noted in the query's checkpoint: `offsets/N` holds the
ends of batch N, and the watermark that it had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from tests.integration.spark.whole_result import text_of
from tests.integration.spark.whole_year import Departure

HOUR = 3600

BatchRows = Counter[tuple[int, bytes]]
"""Batch and text of every row that is sent."""


@dataclass(frozen=True, slots=True)
class Logged:
    """One batch as its checkpoint has it. ends: by topic and partition. watermark: ms since the epoch."""

    ends: Mapping[str, Mapping[int, int]]
    watermark: int


@dataclass(frozen=True, slots=True)
class Step:
    """One batch of a query. rows: by topic, what is new. late, gone: events up to these times (seconds) are
    dropped from the input, and from the state afterwards."""

    batch: int
    rows: Mapping[str, Sequence[Any]]
    late: int
    gone: int


@dataclass(slots=True)
class Modelled:
    """rows: what should be sent. dropped: how many rows came late."""

    rows: BatchRows
    dropped: int = 0


def logged(checkpoint: Path) -> list[Logged]:
    """The batches of a query, from the first."""
    files = {int(path.name): path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()}
    assert sorted(files) == list(range(len(files)))
    found = []
    for number in range(len(files)):
        version, about, *sources = files[number].read_text().splitlines()
        assert version == "v1"
        ends: dict[str, dict[int, int]] = {}
        for source in sources:
            if source != "-":
                for topic, partitions in msgspec.json.decode(source).items():
                    ends[topic] = {int(one): end for one, end in partitions.items()}
        found.append(Logged(ends, msgspec.json.decode(about)["batchWatermarkMs"]))
    return found


def steps(
    batches: Sequence[Logged],
    topics: Mapping[str, Sequence[Sequence[Departure]]],
    delay: int,
) -> Iterator[Step]:
    """The batches with their rows and limits. topics: all records, by partition. delay: in seconds. The
    watermarks are ours; that Spark had the same is checked."""
    begins = {topic: dict.fromkeys(range(len(parts)), 0) for topic, parts in topics.items()}
    newest = dict.fromkeys(topics, 0)
    before = 0
    for number, batch in enumerate(batches):
        watermark = max(before, min(newest.values()) - delay)
        assert watermark * 1000 == batch.watermark, f"batch {number}"
        rows: dict[str, list[Any]] = {}
        for topic, ends in batch.ends.items():
            rows[topic] = [
                row for one, end in ends.items() for row in topics[topic][one][begins[topic][one] : end]
            ]
            begins[topic].update(ends)
            newest[topic] = max([newest[topic], *(row.at for row in rows[topic])])
        yield Step(number, rows, before, watermark)
        before = watermark
    assert begins == {
        topic: {n: len(part) for n, part in enumerate(parts)} for topic, parts in topics.items()
    }


@dataclass(slots=True)
class _Group:
    flights: int = 0
    known: int = 0
    total: int = 0
    worst: int | None = None

    def add(self, delay: int | None) -> None:
        self.flights += 1
        if delay is not None:
            self.known += 1
            self.total += delay
            self.worst = delay if self.worst is None else max(self.worst, delay)


def delays(batches: Iterator[Step], topic: str, *, append: bool) -> Modelled:
    """The query `DELAYS`: in mode update the groups that a batch has changed, in mode append those that it
    has made final."""
    model, groups = Modelled(Counter()), dict[tuple[int, str], _Group]()
    for step in batches:
        touched = set[tuple[int, str]]()
        for flight in step.rows.get(topic, ()):
            place = (flight.at // HOUR * HOUR + HOUR, flight.carrier)
            if place[0] <= step.late:
                model.dropped += 1
                continue
            groups.setdefault(place, _Group()).add(flight.delay)
            touched.add(place)
        over = {place for place in groups if place[0] <= step.gone}
        for place in over if append else touched:
            model.rows[step.batch, _delays_row(*place, groups[place])] += 1
        for place in over:
            del groups[place]
    return model


def _delays_row(until: int, carrier: str, group: _Group) -> bytes:
    end = _text(until)
    mean = group.total / group.known if group.known else None
    value = {
        "since": _text(until - HOUR),
        "until": end,
        "carrier": carrier,
        "flights": group.flights,
        "total": group.total if group.known else None,
        "mean": mean,
        "worst": group.worst,
    }
    return text_of({"until": end, "carrier": carrier}, value)


def _text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
