from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.dialect_api.throttle import QUIET_SECONDS, Throttle, Verdict

PASS, EXCESS, FLOOD = Verdict.PASS, Verdict.EXCESS, Verdict.FLOOD


def exhausted(*, rate: float = 4, burst: int = 8, at: float = 0) -> Throttle:
    throttle = Throttle(rate, burst, flood_seconds=3)
    assert [throttle.admit(at) for _ in range(burst)] == [PASS] * burst
    return throttle


def test_a_full_bucket_is_a_burst() -> None:
    assert exhausted().admit(0) is EXCESS


def test_a_rate_of_nothing_is_no_limit() -> None:
    throttle = Throttle(0, 1, flood_seconds=3)
    assert {throttle.admit(now) for now in (5.0, 5.0, 5.5, 4.0) for _ in range(1_000)} == {PASS}


def test_it_refills_at_the_rate_and_not_above_the_burst() -> None:
    throttle = exhausted()
    assert throttle.admit(0.25) is PASS
    assert throttle.admit(0.25) is EXCESS
    assert [throttle.admit(1_000) for _ in range(9)] == [PASS] * 8 + [EXCESS]


def test_what_is_refused_costs_nothing() -> None:
    throttle = exhausted()
    assert [throttle.admit(0.125) for _ in range(100)] == [EXCESS] * 100
    assert throttle.admit(0.25) is PASS


def test_a_flood_is_told_exactly_when_the_excess_is_three_seconds_old() -> None:
    throttle = exhausted(at=10)
    for tick in range(48):  # every 1/16 s: 4 of 16 pass in a second
        assert throttle.admit(10 + tick / 16) in (PASS, EXCESS)
    assert throttle.admit(12.9990234375) is EXCESS
    assert throttle.admit(13) is PASS  # a token was due: what passes is no flood
    assert throttle.admit(13) is FLOOD
    assert throttle.admit(13) is FLOOD


def test_passing_commands_do_not_end_an_excess() -> None:
    throttle = exhausted()
    seen = [throttle.admit(tick / 8) for tick in range(25)]
    assert seen[:5] == [EXCESS, EXCESS, PASS, EXCESS, PASS]
    assert FLOOD not in seen[:24]
    assert [throttle.admit(3.125), throttle.admit(3.125)] == [FLOOD, FLOOD]


def test_a_second_without_a_refusal_ends_it() -> None:
    throttle = exhausted()
    assert throttle.admit(0) is EXCESS
    throttle = exhausted()
    assert throttle.admit(0) is EXCESS
    # Just short of a second of quiet the excess goes on...
    almost = QUIET_SECONDS - 1 / 1024
    assert [throttle.admit(almost) for _ in range(4)] == [PASS, PASS, PASS, EXCESS]
    # ... and after a whole one it begins anew, and with it the three seconds.
    later = almost + QUIET_SECONDS
    assert [throttle.admit(later) for _ in range(5)] == [PASS, PASS, PASS, PASS, EXCESS]
    assert [throttle.admit(later + step / 2) for step in range(6) for _ in range(3)].count(FLOOD) == 0
    assert [throttle.admit(later + 3) for _ in range(3)][-1] is FLOOD


@pytest.mark.parametrize(("per_second", "flooded"), [(99, False), (100, False), (100.5, False), (150, True)])
def test_who_is_a_flood_at_the_default_rate(per_second: float, *, flooded: bool) -> None:
    throttle = Throttle(100, 200, flood_seconds=3)
    verdicts = {throttle.admit(n / per_second) for n in range(int(60 * per_second))}
    assert (FLOOD in verdicts) is flooded


@given(
    st.lists(st.floats(0, 2, allow_nan=False), min_size=1, max_size=300),
    st.integers(1, 50),
    st.integers(1, 20),
)
@settings(deadline=None)
def test_never_more_than_burst_and_rate_allow(gaps: list[float], rate: int, burst: int) -> None:
    throttle, now, passed = Throttle(rate, burst, 3), 0.0, 0
    for gap in gaps:
        now += gap
        passed += throttle.admit(now) is PASS
        assert passed <= burst + now * rate + 1e-6


def test_a_clock_that_stands_still_or_goes_back_gives_nothing() -> None:
    throttle = exhausted(at=5)
    assert throttle.admit(4) is EXCESS
    assert throttle.admit(5) is EXCESS
    assert throttle.admit(5.25) is PASS


def test_a_command_may_count_for_many() -> None:
    throttle = Throttle(10, 20, 3)
    assert throttle.admit(0.0, 15) is Verdict.PASS
    assert throttle.admit(0.0, 6) is Verdict.EXCESS
    assert throttle.admit(0.0, 5) is Verdict.PASS
    assert throttle.admit(1.9, 1000) is Verdict.EXCESS
    assert throttle.admit(2.0, 1000) is Verdict.PASS  # at most all of them
    assert throttle.admit(2.0, 0) is Verdict.PASS
