"""The checker itself: it must see every kind of fault, and none where there is none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.integration.ledger import Item, Lag, Offsets, Run, Verdict, announced, judge, produced, received

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
