"""When flights are due."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pytest
import trio
import trio.testing

from kiwi_demo.flights import Flight
from kiwi_demo.producer import due_runs, replay


def flights(*departures: float | None) -> Iterator[Flight]:
    return iter([Flight("UA", departure, {}) for departure in departures])


async def collect(given: Iterator[Flight], speed: float) -> list[tuple[float, Sequence[float | None]]]:
    begun = trio.current_time()
    return [
        (round(trio.current_time() - begun, 6), [one.departure for one in run])
        async for run in due_runs(given, speed)
    ]


async def test_the_spacing_is_the_original_one_divided_by_the_speed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    assert await collect(flights(6000.0, 6000.0, 6060.0, 6600.0), speed=60) == [
        (0, [6000, 6000]),
        (1, [6060]),
        (10, [6600]),
    ]


async def test_a_flight_without_a_schedule_goes_with_the_one_before_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    assert await collect(flights(60.0, 120.0, None), speed=60) == [(0, [60]), (1, [120, None])]


async def test_who_is_late_is_caught_up_with(autojump_clock: trio.testing.MockClock) -> None:
    begun = trio.current_time()
    runs = due_runs(flights(0.0, 1.0, 2.0, 3.0, 10.0), speed=1)
    found = []
    async for run in runs:
        found.append((trio.current_time() - begun, len(run)))
        await trio.sleep(2.5)  # the broker takes its time
    assert found == [(0, 1), (2.5, 2), (5, 1), (10, 1)]


async def test_without_a_limit_nobody_waits(autojump_clock: trio.testing.MockClock) -> None:
    found = await collect(flights(*(60.0 * n for n in range(2500))), speed=math.inf)
    assert [(when, len(run)) for when, run in found] == [(0, 1000), (0, 1000), (0, 500)]


async def test_no_flights_are_no_work() -> None:
    assert await collect(flights(), speed=1) == []


@pytest.mark.parametrize("speed", [0, -1, math.nan])
async def test_a_speed_is_above_zero(speed: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        await replay("127.0.0.1:1", "flights", flights(), speed=speed)
