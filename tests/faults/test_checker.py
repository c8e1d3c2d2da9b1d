"""The checker itself: it must see every kind of fault, and none where there is none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.checker import (
    Closed,
    Facts,
    Item,
    Lag,
    Resumed,
    Run,
    Verdict,
    announced,
    judge,
    produced,
    received,
)
from tests.faults.offsets import Offsets, Places, places

PRODUCED = produced({0: 10, 1: 4})
ALL = [Run(0, 0, 4), Run(1, 0, 3), Run(0, 5, 9)]
TOLD = Lag(behind=0, dropped=3, count=3, ranges={0: (5, 7)})


def test_all_in_order_is_faultless() -> None:
    assert judge(ALL, PRODUCED) == Verdict()


def test_a_gap_that_was_announced_in_time_is_faultless() -> None:
    history: list[Item] = [Run(0, 0, 4), Run(1, 0, 3), TOLD, Run(0, 8, 9)]
    assert judge(history, PRODUCED) == Verdict()
    assert announced(history) == {0: Offsets([(5, 7)])}
    assert received(history) == {0: Offsets([(0, 4), (8, 9)]), 1: Offsets([(0, 3)])}


def test_holes_in_the_topic_are_no_gaps() -> None:
    places = {0: Offsets([(0, 4), (6, 9)])}
    assert judge([Run(0, 0, 4), Run(0, 6, 9)], places) == Verdict()
    told = Lag(behind=0, dropped=2, count=2, ranges={0: (4, 6)})
    assert judge([Run(0, 0, 3), told, Run(0, 7, 9)], places) == Verdict()


@pytest.mark.parametrize(
    ("history", "verdict"),
    [
        pytest.param(ALL[:2], Verdict(lost={0: Offsets([(5, 9)])}), id="lost at the end"),
        pytest.param(
            [Run(0, 0, 4), Run(1, 0, 3), Run(0, 8, 9)],
            Verdict(lost={0: Offsets([(5, 7)])}, skip_unannounced={0: Offsets([(5, 7)])}),
            id="lost in the middle",
        ),
        pytest.param(
            [Run(0, 0, 4), Run(1, 0, 3), Run(0, 8, 9), TOLD],
            Verdict(skip_unannounced={0: Offsets([(5, 7)])}),
            id="announced too late",
        ),
        pytest.param([*ALL, Run(0, 9, 9)], Verdict(duplicate={0: Offsets([(9, 9)])}), id="duplicate"),
        pytest.param(
            [Run(0, 5, 9), Run(1, 0, 3), Run(0, 0, 4)],
            Verdict(reorder={0: Offsets([(0, 4)])}, skip_unannounced={0: Offsets([(0, 4)])}),
            id="reorder",
        ),
        pytest.param(
            [TOLD, *ALL],
            Verdict(announced_but_delivered={0: Offsets([(5, 7)])}),
            id="announced but delivered",
        ),
        pytest.param([*ALL, Run(0, 10, 11)], Verdict(invented={0: Offsets([(10, 11)])}), id="invented"),
        pytest.param(
            [*ALL[:2], Lag(behind=0, dropped=4, count=4, ranges={0: (5, 9)})],
            Verdict(miscounted=4),
            id="miscounted",
        ),
    ],
)
def test_every_fault_is_seen(history: Sequence[Item], verdict: Verdict) -> None:
    assert judge(history, PRODUCED) == verdict


def test_values_are_compared_with_what_was_produced() -> None:
    facts = Facts(values={(0, 0): b"a", (0, 1): b"b"}, failed=frozenset({b"perhaps"}))
    right = Run(0, 0, 1, values=(b"a", b"b"))
    assert judge([right], produced({0: 2}), facts) == Verdict()
    wrong = Run(0, 0, 1, values=(b"a", b"a"))
    assert judge([wrong], produced({0: 2}), facts) == Verdict(altered={0: Offsets([(1, 1)])})


def test_a_record_whose_production_failed_may_come_or_not() -> None:
    facts = Facts(values={(0, 0): b"a"}, failed=frozenset({b"perhaps"}))
    came = [Run(0, 0, 1, values=(b"a", b"perhaps"))]
    assert judge(came, produced({0: 1}), facts) == Verdict()
    assert judge(came[:1], produced({0: 1}), Facts(facts.values)) == Verdict(
        invented={0: Offsets([(1, 1)])}
    ), "one of which the producer knows nothing was invented"


def test_times() -> None:
    facts = Facts(sent_at={(0, n): 100.0 + n for n in range(4)})
    history = [Run(0, 0, 0, at=100.5), Run(0, 1, 2, at=105.0)]
    verdict = judge(history, produced({0: 4}), facts, until=110.0)
    assert verdict == Verdict(lost={0: Offsets([(3, 3)])}, stuck=7.0)
    assert verdict.worst_lag == 4.0
    assert judge([*history, Run(0, 3, 3, at=110.0)], produced({0: 4}), facts, until=110.0) == Verdict()


def test_what_comes_again_after_resuming_is_no_duplicate() -> None:
    history: list[Item] = [Run(0, 0, 6), Run(1, 0, 3), Resumed({0: 5, 1: 4}), Run(0, 5, 9)]
    assert judge(history, PRODUCED) == Verdict()
    # What it did not ask for is one.
    history[-1] = Run(0, 4, 9)
    assert judge(history, PRODUCED) == Verdict(duplicate={0: Offsets([(4, 4)])})


def test_a_later_subscription_that_leaves_something_out() -> None:
    history: list[Run | Lag | Closed | Resumed] = [
        Run(0, 0, 4),
        Run(1, 0, 3),
        Resumed({0: 7, 1: 4}),
        Run(0, 7, 9),
    ]
    gap = {0: Offsets([(5, 6)])}
    assert judge(history, PRODUCED) == Verdict(lost=gap, skip_unannounced=gap)


_ranges = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 8)).map(lambda r: (r[0], r[0] + r[1])))


@given(_ranges, _ranges)
def test_offsets_are_sets(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    def members(offsets: Offsets) -> set[int]:
        return {offset for first, last in offsets for offset in range(first, last + 1)}

    a, b = Offsets(left), Offsets(right)
    assert len(a) == len(members(a))
    assert members(a.common(b)) == members(a) & members(b)
    assert members(a.without(b)) == members(a) - members(b)
    assert a.common(b) == b.common(a)


@st.composite
def histories(draw: st.DrawFn) -> list[Item]:
    """Draw a faultless history of two partitions with announced losses, and then anything done to it."""
    history: list[Item] = []
    at = {0: 0, 1: 0}
    while any(at[p] < SIZE for p in at):
        partition = draw(st.sampled_from([p for p in at if at[p] < SIZE]))
        last = draw(st.integers(at[partition], SIZE - 1))
        ends = (at[partition], last)
        at[partition] = last + 1
        lost = draw(st.integers(0, 3)) == 0
        history.append(Lag(0, last + 1 - ends[0], 0, {partition: ends}) if lost else Run(partition, *ends))
    for _ in range(draw(st.integers(0, 3))):
        index = draw(st.integers(0, max(0, len(history) - 1)))
        match draw(st.sampled_from(["leave out", "repeat", "swap", "close"])):
            case "leave out" if history:
                del history[index]
            case "repeat" if history:
                history.insert(draw(st.integers(0, len(history))), history[index])
            case "swap" if index + 1 < len(history):
                history[index : index + 2] = history[index : index + 2][::-1]
            case "close":
                history.append(Closed("removed", 0, {}))
    return history


SIZE = 12


@given(histories())
def test_the_checker_agrees_with_a_model_that_goes_event_by_event(history: list[Item]) -> None:
    everything = {(p, offset) for p in (0, 1) for offset in range(SIZE)}
    came: list[tuple[int, int]] = []
    told: set[tuple[int, int]] = set()
    newest = {0: -1, 1: -1}
    duplicate, reorder, skipped = set(), set(), set()
    for item in history:
        if isinstance(item, Lag):
            told |= {(p, n) for p, (first, last) in item.ranges.items() for n in range(first, last + 1)}
        elif isinstance(item, Run):
            before = set(came)
            for n in range(item.first, item.last + 1):
                place = (item.partition, n)
                if place in before:
                    duplicate.add(place)
                elif n < newest[item.partition]:
                    reorder.add(place)
                gap = {(item.partition, m) for m in range(newest[item.partition] + 1, n)}
                skipped |= gap - told
                newest[item.partition] = max(newest[item.partition], n)
                came.append(place)
    dropped = sum(item.dropped or 0 for item in history if isinstance(item, Lag))
    expected = Verdict(
        lost=_of(everything - set(came) - told),
        duplicate=_of(duplicate),
        reorder=_of(reorder),
        skip_unannounced=_of(skipped),
        announced_but_delivered=_of(set(came) & told),
        miscounted=None if dropped == len(told) else dropped,
    )
    assert judge(history, produced({0: SIZE, 1: SIZE})) == expected


def _of(found: set[tuple[int, int]]) -> Places:
    return places((partition, offset, offset) for partition, offset in found)
