"""The queries that are measured in Spark, and what their results must be for the records of `records`.

Record `n` has the members `n`, `carrier`, `dest`, `delay` (`n % 61 - 10`) and, where delays are measured,
`t`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

_MOST_FAULTS = 5
_SECONDS = 3600


class Value(msgspec.Struct):
    """Hold a row of a result: the columns of all queries."""

    n: int = 0
    t: int = 0
    delay: int = 0
    carrier: str = ""
    hour: int = 0
    flights: int = 0
    last: int = 0


class Row(msgspec.Struct):
    """Hold an event of a Spark source. batch: None in real time; there partition and offset say which record
    it comes from."""

    batch: int | None
    row: int
    timestamp: int
    value: Value
    partition: int | None = None
    offset: int | None = None


Faults = list[str]

Trigger = Mapping[str, object]
"""What a source of the configuration has as `trigger`."""


def every(time: str) -> Trigger:
    """Run in micro-batches, at most one in that time: `500 ms`. `0 ms`: one after the other."""
    return {"processing_time": time}


def real_time(seconds: float) -> Trigger:
    """Run in real time, with a checkpoint every so many seconds: 5 at least, says Spark."""
    return {"real_time": True, "checkpoint_interval": f"{round(seconds * 1000)} ms"}


AT_ONCE = every("0 ms")


@dataclass(frozen=True, slots=True)
class SparkQuery:
    """Describe one query.

    schema, sql: as in the gateway's configuration, over the input `flights`. watermark: column and delay.
    rows: how many rows of results so many records have; None: that depends on the batches, as rows say how
    many records they stand for (`flights`) until a later one of the same group does.
    check: what is wrong with all rows that came of so many records.
    """

    name: str
    schema: str
    sql: str
    rows: Callable[[int], int] | None
    check: Callable[[Sequence[Value], int], Faults]
    output_mode: str = "append"
    watermark: tuple[str, str] | None = None
    key: tuple[str, ...] = ()


def faults_of_places(rows: Iterable[Row]) -> Faults:
    """Check whether batches came one after the other, and the rows of each in their order; in real time
    whether those of each partition came in its order."""
    batch, expected = -1, 0
    places: dict[int, tuple[int, int]] = {}
    for one in rows:
        if one.batch is None:
            partition, place = one.partition or 0, (one.offset or 0, one.row)
            if place <= places.get(partition, (-1, 0)):
                return [f"record and row {place} of partition {partition} came behind {places[partition]}"]
            places[partition] = place
            continue
        if one.batch > batch:
            batch, expected = one.batch, 0
        if one.batch != batch or one.row != expected:
            return [f"batch {one.batch}, row {one.row} came where batch {batch}, row {expected} was to come"]
        expected += 1
    return []


def _exactly(wanted: Callable[[int], Iterable[int]]) -> Callable[[Sequence[Value], int], Faults]:
    """Check that the rows are those of these records, each once, with their content."""

    def check(values: Sequence[Value], records: int) -> Faults:
        numbers = sorted(value.n for value in values)
        faults = [
            f"record {value.n} has the delay {value.delay} and the carrier {value.carrier!r}"
            for value in values
            if value.delay != value.n % 61 - 10 or value.carrier != "UA"
        ]
        if numbers != list(wanted(records)):
            faults.append(
                f"{len(numbers)} rows came, {len(set(numbers))} of them different, and others were due"
            )
        return faults[:_MOST_FAULTS]

    return check


def _groups(records: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Return by hour and delay how many records there are, and the last of them."""
    counts: Counter[tuple[int, int]] = Counter()
    last = {}
    for n in range(records):
        group = n // _SECONDS, n % 61 - 10
        counts[group] += 1
        last[group] = n
    return {group: (count, last[group]) for group, count in counts.items()}


def _final_groups(values: Sequence[Value], records: int) -> Faults:
    final = {(value.hour, value.delay): (value.flights, value.last) for value in values}
    expected = _groups(records)
    wrong = [group for group, figures in expected.items() if final.get(group) != figures]
    faults = [f"group {group} ends with {final.get(group)}, not {expected[group]}" for group in wrong]
    if len(final) > len(expected):
        faults.append(f"{len(final) - len(expected)} groups too many")
    return faults[:_MOST_FAULTS]


_SCHEMA = "n BIGINT, carrier STRING, dest STRING, delay INT"

FILTER = SparkQuery(
    "filter",
    _SCHEMA,
    "SELECT n, carrier, delay FROM flights WHERE n % 10 = 3",
    rows=lambda records: (records + 6) // 10,
    check=_exactly(lambda records: range(3, records, 10)),
)
ALL = SparkQuery(
    "all",
    _SCHEMA,
    "SELECT n, carrier, dest, delay FROM flights",
    rows=lambda records: records,
    check=_exactly(range),
)
WINDOW = SparkQuery(
    "window",
    # Spark's JSON reads a number as a time in seconds: a record a second, 3,600 of them in a window.
    "n TIMESTAMP, carrier STRING, delay INT",
    "SELECT unix_seconds(window.start) DIV 3600 AS hour, delay, count(*) AS flights,"
    " unix_seconds(max(n)) AS last FROM flights GROUP BY window(n, '1 hour'), delay",
    rows=None,
    check=_final_groups,
    output_mode="update",
    watermark=("n", "1 day"),
    key=("hour", "delay"),
)
FRESH = SparkQuery(
    "fresh",
    f"{_SCHEMA}, t BIGINT",
    "SELECT n, coalesce(t, 0) AS t, carrier, delay FROM flights",
    rows=lambda records: records,
    check=_exactly(range),
)
FRESH_WINDOW = replace(
    WINDOW,
    name="fresh-window",
    schema=f"{WINDOW.schema}, t BIGINT",
    # A row says when the newest of its records was made.
    sql=WINDOW.sql.replace(" AS last", " AS last, coalesce(max(t), 0) AS t"),
)
BUSY = SparkQuery(
    "busy",
    _SCHEMA,
    # Some hundred microseconds of work for every row.
    "SELECT n, carrier, delay FROM flights"
    " WHERE aggregate(sequence(0, 4999), 0L, (a, x) -> (a + x * n) % 1000003) >= 0",
    rows=lambda records: records,
    check=_exactly(range),
)

QUERIES = {query.name: query for query in (FILTER, ALL, WINDOW, FRESH, FRESH_WINDOW, BUSY)}


def source(query: SparkQuery, topic: str, per_batch: int, trigger: Trigger) -> dict[str, Any]:
    """Return the source of type `spark` that runs the query over a topic from its beginning. It is called as
    the query and the topic are."""
    wanted: dict[str, Any] = {
        "type": "spark",
        "id": f"{query.name}-of-{topic}",
        "inputs": {
            "flights": {
                "source": topic,
                "schema": query.schema,
                "start": "earliest",
                "max_offsets": per_batch,
            }
        },
        "sql": query.sql,
        "output_mode": query.output_mode,
        "trigger": dict(trigger),
        "key": list(query.key),
        # All results must come: a slow client holds the query up.
        "subscriber": {"overflow": "block"},
    }
    if query.watermark is not None:
        column, delay = query.watermark
        wanted["watermarks"] = {"flights": {"column": column, "delay": delay}}
    return wanted
