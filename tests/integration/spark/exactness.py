"""What became of queries whose rows are known: what is missing, doubled, or in the wrong order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.integration.spark import numbered_records as made_of
from tests.integration.spark.following import Following
from tests.integration.spark.numbered_records import Made, Records, Row

COUNTED: Final = "SELECT a % 8 AS k, count(*) AS n, sum(a) AS total FROM flights GROUP BY a % 8"
_KEYS: Final = 8
"""As `a % 8` says: every key is in one partition, so that the order of its records is known."""

Counted = tuple[int, int, int]
"""A key, how many records it had so far, and their sum."""

_MADE: Final[Mapping[str, Made]] = {
    "exploded": made_of.exploded,
    "batches": made_of.filtered,
}


@dataclass(slots=True)
class Account:
    """What became of the queries of one mode. rows: what their clients were to have. doubled: also what
    should not be there at all. displaced: what came in the wrong order. wrong: whatever else is. served: by
    kill, seconds until all of them went on."""

    rows: int = 0
    missing: int = 0
    doubled: int = 0
    displaced: int = 0
    wrong: list[str] = field(default_factory=list)
    served: list[float] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        return not (self.missing or self.doubled or self.displaced or self.wrong)


def counts(records: Records) -> dict[int, list[Counted]]:
    """By key, what a running count is after each record."""
    found: dict[int, list[Counted]] = {key: [] for key in range(_KEYS)}
    for numbers in records.numbers.values():
        for a in numbers:
            same = found[a % _KEYS]
            n, total = (same[-1][1], same[-1][2]) if same else (0, 0)
            same.append((a % _KEYS, n + 1, total + a))
    return found


def has_all(one: Following, records: Records) -> bool:
    """Whether a client has had what it was to have, or as much."""
    if one.id == "counted":
        last: dict[int, int] = {result["value"]["k"]: result["value"]["n"] for result in one.now()}
        return sum(last.values()) >= records.next
    return one.events >= made_of.count(records.rows(_MADE[one.id]))


def judge(one: Following, records: Records, account: Account) -> None:
    """Add to an account what became of one query."""
    account.wrong += [f"{one.id}: {words}" for words in one.wrong]
    account.displaced += displaced(one.results)
    found: list[Any]
    expected: list[Any]
    if one.id == "counted":
        # Which counts are sent depends on Spark's batches; each is one of those, and the last is the last.
        values = [result["value"] for result in one.results]
        found = [(value["k"], value["n"], value["total"]) for value in values]
        every = counts(records)
        legal = {count for same in every.values() for count in same}
        expected = [*(legal & set(found) | {same[-1] for same in every.values()})]
        ordered = {key: [n for k, n, _ in found if k == key] for key in every}
        account.displaced += sum(own != sorted(own) for own in ordered.values())
    else:
        in_batches = one.id == "batches"
        found = [row_of(result, in_batches=in_batches) for result in one.results]
        expected = [row for own in records.rows(_MADE[one.id]).values() for row in own]
        if not in_sink(one.results):  # a batch that Spark repeats for a topic has its rows in another order
            account.displaced += sorted(found, key=lambda row: row[0]) != sorted(
                expected, key=lambda row: row[0]
            )
    account.rows += len(expected)
    account.missing += (Counter(expected) - Counter(found)).total()
    account.doubled += (Counter(found) - Counter(expected)).total()


def in_sink(results: Sequence[Mapping[str, Any]]) -> bool:
    return "partition" in results[0] and "row" not in results[0]


def row_of(result: Mapping[str, Any], *, in_batches: bool) -> Row:
    """Return the row of an event: as the row says itself, and by its place where that is of the record."""
    value = result["value"]
    if in_batches:
        return (value["p"], value["o"], 0, value["x"])
    assert (result["partition"], result["offset"]) == (value["p"], value["o"])
    return (result["partition"], result["offset"], result["row"], value["x"])


def displaced(results: Sequence[Mapping[str, Any]]) -> int:
    """Count the events whose place is not behind the one before, or not right behind it where there is no
    hole: in a batch, and in the topic of a sink."""
    before: dict[object, tuple[int, ...]] = {}
    found = 0
    for one in results:
        lane = one.get("partition")
        last = before.get(lane, (-1, -1))
        if "batch" in one:
            place: tuple[int, ...] = (one["batch"], one["row"])
            good = place == (last[0], last[1] + 1) or (place[0] > last[0] and place[1] == 0)
        elif "row" in one:
            place = (one["offset"], one["row"])
            good = place > last
        else:
            place = (one["offset"],)
            good = place[0] == last[0] + 1
        found += not good
        before[lane] = place
    return found
