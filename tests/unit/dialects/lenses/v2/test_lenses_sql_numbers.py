"""What STATS say, and where limits and thresholds end a statement: against a count by hand."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.core.publishing import publish
from kiwi_gw.dialects.lenses.v2.messages import PartitionStats
from kiwi_gw.dialects.lenses.v2.records import BYTES, SCANNED
from kiwi_gw.dialects.lenses.v2.statistics import Counters, PartitionTally
from kiwi_gw.model import Batch, Encoded, OffsetRange
from tests.effort import examples
from tests.unit.core.desk import Gateway
from tests.unit.dialects.lenses.bench import Json
from tests.unit.dialects.lenses.v2.caller import SqlCaller, data, replayable

LARGE = 8 * 1024 * 1024

# --- the tally -------------------------------------------------------------------------------------


def encoded(counted: Sequence[bool], sizes: Sequence[int]) -> Encoded:
    """What an interceptor has left of a batch: the events that are counted, and their bytes."""
    records, size = [0], [0]
    for there, length in zip(counted, sizes, strict=True):
        records.append(records[-1] + there)
        size.append(size[-1] + length * there)
    return Encoded(b"", [0] * len(counted), None, {SCANNED: records, BYTES: size})


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.integers(0, 9), st.integers(1, 3)), max_size=12),
    st.lists(st.integers(0, 12), max_size=3),
    st.none() | st.dictionaries(st.integers(0, 2), st.integers(0, 40)),
)
def test_the_tally_counts_what_a_count_by_hand_does(
    events: list[tuple[int, bool, int, int]], cuts: list[int], until: dict[int, int] | None
) -> None:
    """events: partition, whether it is left, its size, how far its offset is from the one before."""
    begin = {0: 5, 1: 0, 2: 7}
    offsets, here = [], dict(begin)
    for partition, _, _, step in events:
        here[partition] += step
        offsets.append(here[partition] - 1)
    partitions = [each[0] for each in events]
    made = encoded([each[1] for each in events], [each[2] for each in events])
    tally = PartitionTally()
    tally.opened(begin, until)
    batch = Batch(begin, partitions, offsets, {}, 0)
    places = sorted({0, len(events), *(min(cut, len(events)) for cut in cuts)})
    for first, stop in [(0, 0), *pairwise(places)]:
        tally.passed(batch, made, first, stop)
        for name, found in tally.of_partitions().items():
            partition = int(name)
            mine = [
                (offset, size)
                for offset, (p, there, size, _) in zip(offsets[:stop], events, strict=False)
                if there and p == partition
            ]
            begins = begin[partition]
            bound = None if until is None else max(until.get(partition, 0), begins) - 1
            end = mine[-1][0] if mine else begins - 1
            assert found == PartitionStats(begins, bound, sum(size for _, size in mine), len(mine), end)
    assert [*tally.of_partitions()] == ["0", "1", "2"]


def test_partitions_that_alternate_take_no_longer_than_others() -> None:
    size = 20_000
    made = encoded([True] * size, [1] * size)
    batch = Batch({0: 0, 1: 0}, [n % 2 for n in range(size)], range(size), {}, 0)
    began = time.thread_time()
    tally = PartitionTally()
    tally.opened({0: 0, 1: 0}, None)
    tally.passed(batch, made, 0, size)
    assert time.thread_time() - began < 0.5
    assert [found.records_scanned for found in tally.of_partitions().values()] == [size // 2] * 2


def test_counters_count_what_limits_have_used() -> None:
    counters = Counters.begin(3, None)
    counters.limits["results"].left -= 2
    counters.limits["bytes"].left -= 7
    assert [counters.count(label) for label in ("results", "bytes", "scanned", "bad")] == [2, 7, 0, 0]


# --- statements ------------------------------------------------------------------------------------


def published(gateway: Gateway, *values: bytes | None) -> None:
    """Publish values as events of partitions 0 and 1, in turns, with holes in the offsets."""
    hub = gateway.hubs["cars"]
    starts = dict(hub.positions)
    here, partitions, offsets = dict(starts), [], []
    for number in range(len(values)):
        partition = number % 2
        partitions.append(partition)
        offsets.append(here[partition] + number % 3)
        here[partition] = offsets[-1] + 1
    for _ in publish(hub, Batch(starts, partitions, offsets, {"value": values}, 0)):
        pass


def cars() -> Gateway:
    gateway = Gateway()
    hub = gateway.add("cars", started=False)
    hub.started({0: 0, 1: 0})
    return gateway


VALUES = st.sampled_from([b'{"n":1}', b'{"n":22}', b"{", None, b'"' + b"x" * 40 + b'"'])


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.lists(VALUES, min_size=1, max_size=6), max_size=4),
    st.none() | st.integers(1, 8),
    st.none() | st.integers(1, 120),
    st.booleans(),
    st.booleans(),
)
def test_limits_and_thresholds_across_batches(
    batches: list[list[bytes | None]], limit: int | None, most: int | None, shown: bool, live: bool
) -> None:
    gateway = cars()
    if not live:
        for values in batches:
            published(gateway, *values)
    caller = SqlCaller(gateway)
    settings_ = f"SET show.bad.records={str(shown).lower()}; " + (f"SET max.size={most}; " if most else "")
    ends = f" LIMIT {limit}" if limit else ""
    sql = "".join([settings_, "SELECT * FROM cars WHERE n > 0 OR n IS NULL", ends])
    caller.ask(sql, live=live, stats=60_000)
    if live:
        for values in batches:
            published(gateway, *values)
    # By hand: `max.size` is not heeded by what is live, and neither counts what comes behind its end.
    counted: Counter[str] = Counter()
    expected, why = ["METADATA"], ""
    for value in (value for values in batches for value in values):
        counted.update(scanned=1, bytes=len(value or b""))
        bad = value == b"{"
        counted.update(bad=bad, results=not bad)
        expected += ["BADRECORD"] * (bad and shown) + ["RECORD"] * (not bad)
        if limit and counted["results"] == limit:
            why = "limit"
        elif most and not live and counted["bytes"] >= most:
            why = "size"
        if why:
            break
    heard = caller.heard()
    if live and not why:
        assert [message["type"] for message in heard] == expected
        assert caller.executions.count == 1
        return
    ending = {"size": ["STATS", "SENTINEL", "END"]}.get(why, ["STATS", "END"])
    assert [message["type"] for message in heard] == [*expected, *ending]
    (stats,) = data(heard, "STATS")
    names = {
        "recordsScanned": "scanned",
        "bytesRead": "bytes",
        "badRecordsTotal": "bad",
        "results": "results",
    }
    assert {name: stats[name] for name in names} == {name: counted[label] for name, label in names.items()}
    assert sums(stats, "recordsScanned") == counted["scanned"]
    assert sums(stats, "bytesRead") == counted["bytes"]
    assert caller.executions.count == 0


def sums(stats: Json, name: str) -> int:
    (partitions,) = stats["sourcesStats"].values()
    total: int = sum(each[name] for each in partitions.values())
    return total


def test_it_has_read_all_where_it_says_that_it_ends() -> None:
    gateway = cars()
    published(gateway, *[b"1"] * 7)
    caller = SqlCaller(gateway)
    caller.ask("SELECT * FROM cars", stats=1)
    (stats,) = data(caller.heard(), "STATS")
    (partitions,) = stats["sourcesStats"].values()
    assert partitions == {
        name: {
            "begin": 0,
            "offsetBound": gateway.hubs["cars"].positions[int(name)] - 1,
            "bytesRead": read,
            "recordsScanned": read,
            "end": gateway.hubs["cars"].positions[int(name)] - 1,
        }
        for name, read in (("0", 4), ("1", 3))
    }


@pytest.mark.parametrize("live", [False, True])
def test_records_that_are_too_large_are_lost_and_counted(live: bool) -> None:
    """Else a topic of them is read for ever: neither its size nor that it goes on would be seen."""
    gateway = cars()
    large = b'"' + b"x" * LARGE + b'"'
    published(gateway, b"1", large, b"3", large)
    caller = SqlCaller(gateway)
    caller.ask("SELECT * FROM cars LIMIT 2" if live else "SELECT * FROM cars", live=live, stats=60_000)
    heard = caller.heard()
    kinds = [message["type"] for message in heard]
    lost = [each["reason"]["amount"] for each in data(heard, "SENTINEL")]
    (stats,) = data(heard, "STATS")
    if live:
        assert kinds == ["METADATA", "RECORD", "SENTINEL", "RECORD", "STATS", "END"]
        assert (lost, stats["recordsScanned"], stats["recordsSkipped"]) == ([1], 3, 1)
    else:
        assert kinds == ["METADATA", "RECORD", "SENTINEL", "RECORD", "SENTINEL", "STATS", "END"]
        assert (lost, stats["recordsScanned"], stats["recordsSkipped"]) == ([1, 1], 4, 2)
        assert stats["bytesRead"] == sums(stats, "bytesRead") == 2 + 2 * len(large)


def test_a_threshold_of_size_is_reached_by_records_that_are_too_large() -> None:
    gateway = cars()
    large = b'"' + b"x" * LARGE + b'"'
    published(gateway, *[large] * 4)
    caller = SqlCaller(gateway)
    caller.ask("SET max.size=10m; SELECT * FROM cars")
    heard = caller.heard()
    reasons = [each["reason"]["type"] for each in data(heard, "SENTINEL")]
    assert reasons[-1] == "MAX_SIZE"
    assert sum(each["reason"]["amount"] for each in data(heard, "SENTINEL")[:-1]) == 2


def test_what_lies_beyond_the_end_is_not_lost() -> None:
    """A record that is too large, behind the last of its partition that is asked for: its origin was further
    than what had come from it."""
    gateway = Gateway()
    hub = replayable(gateway, {0: 0, 1: 0})
    caller = SqlCaller(gateway)
    caller.ask("SELECT * FROM cars", stats=60_000)
    (subscription,) = hub.unresolved
    hub.resolved(subscription, OffsetRange({0: 0, 1: 0}, {0: 1, 1: 1}))
    hub.effects.hand_out()
    values = [b"1", b'"' + b"x" * LARGE + b'"', b"3", b"4"]
    for _ in publish(hub, Batch({0: 0, 1: 0}, [0, 0, 1, 1], [0, 1, 0, 1], {"value": values}, 0)):
        pass
    heard = caller.heard()
    assert [each["value"] for each in data(heard, "RECORD")] == [1, 3]
    assert [message["type"] for message in heard[3:]] == ["STATS", "END"]
    assert data(heard, "STATS")[0]["recordsSkipped"] == 0
    assert sums(data(heard, "STATS")[0], "recordsScanned") == 2
