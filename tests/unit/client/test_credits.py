import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_gw.client.credits import Credits


def test_half_used_is_filled_up() -> None:
    credit = Credits(10)
    assert credit.tick() == 10
    assert [credit.received() for _ in range(10)] == [0, 0, 0, 0, 5, 0, 0, 0, 0, 5]
    assert credit.outstanding == 10


def test_a_window_of_one_goes_on() -> None:
    credit = Credits(1)
    assert credit.tick() == 1
    assert [credit.received() for _ in range(3)] == [1, 1, 1]


@given(window=st.integers(1, 50), limit=st.integers(1, 200))
def test_exactly_the_limit_is_asked_for(window: int, limit: int) -> None:
    credit = Credits(window, limit=limit)
    asked = credit.tick()
    for received in range(1, limit + 1):
        assert credit.outstanding > 0, "the events of the limit must all be asked for"
        asked += credit.received()
        assert credit.outstanding == asked - received
    assert asked == limit
    assert credit.tick() == 0


@pytest.mark.parametrize("rate", [0.5, 1, 3, 7, 9.9, 15, 100, 1234.5])
def test_a_rate_is_reached_and_never_passed(rate: float) -> None:
    credit = Credits(1000, rate)
    assert credit.interval is not None
    ticks = int(60 / credit.interval)
    grants = []
    for _ in range(ticks):
        grants.append(credit.tick())
        for _ in range(credit.outstanding):
            assert credit.received() == 0
    second = max(1, int(1 / credit.interval))
    for begin in range(ticks - second):
        span = second * credit.interval
        # One more than the rate allows: the fraction that was saved up before.
        assert sum(grants[begin : begin + second]) <= rate * span + 1
    assert sum(grants) >= rate * ticks * credit.interval - 1


def test_a_quiet_time_does_not_end_in_a_burst() -> None:
    credit = Credits(1000, 50)
    assert credit.tick() == 5
    assert [credit.tick() for _ in range(100)] == [0] * 100
    assert credit.outstanding == 5
