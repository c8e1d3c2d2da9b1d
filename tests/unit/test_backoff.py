from collections.abc import Iterator

import pytest

from kiwi_gw.backoff import Backoff


def ceilings(backoff: Backoff, count: int) -> Iterator[float]:
    for _ in range(count):
        yield backoff.next()


def test_the_ceiling_doubles_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 30, uniform=lambda low, high: high)
    assert list(ceilings(backoff, 9)) == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    backoff.reset()
    assert backoff.next() == 0.5


@pytest.mark.parametrize(
    ("jitter", "lows"), [(0.0, [1, 2, 4, 4]), (0.5, [0.5, 1, 2, 2]), (1.0, [0, 0, 0, 0])]
)
def test_jitter_is_how_much_of_a_wait_is_left_to_chance(jitter: float, lows: list[float]) -> None:
    backoff = Backoff(1.0, 4.0, jitter, uniform=lambda low, high: low)
    assert list(ceilings(backoff, 4)) == lows


def test_the_jitter_takes_the_whole_range_on_top_of_what_the_server_asked_for() -> None:
    assert Backoff(jitter=1.0, uniform=lambda low, high: low).next(at_least=10) == 10
    backoff = Backoff(jitter=1.0)
    waits = [backoff.next(at_least=5) for _ in range(5_000)]  # also: no overflow after thousands
    assert min(waits) >= 5
    assert max(waits) <= 35
    assert max(waits) - min(waits) > 25
