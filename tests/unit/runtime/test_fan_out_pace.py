"""How often fan-out gives way to others, and for how long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import trio

from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.round_budget import RoundBudget
from kiwi_gw.runtime.fan_out_pace import (
    MANY_RECORDS,
    ROUNDS,
    SAVED_SECONDS,
    SHARE,
    SHORT_SLICE_SECONDS,
    WRITING_SECONDS,
    FanOutPace,
)

CONFIGURED = HubLimits().slice_seconds
AS_CONFIGURED = (CONFIGURED, 1)
OFTEN = (SHORT_SLICE_SECONDS, ROUNDS)


class Rounds(trio.abc.Instrument):
    """Counts the rounds of the event loop. then: called after each."""

    def __init__(self) -> None:
        self.count = 0
        self.then: Callable[[int], None] = lambda count: None

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1
        self.then(self.count)


class Queue:
    """Something that contends for the rounds, while it waits."""

    def __init__(self) -> None:
        self.waits = False

    def wants_rounds(self) -> bool:
        return self.waits


class Setting:
    """A pace with clocks that are set by hand. rounds: of the event loop."""

    def __init__(self) -> None:
        self.now, self.cpu = 100.0, 0.0
        self.queue = Queue()
        self.pace = FanOutPace(lambda: self.now, RoundBudget(), Queue(), self.queue, cpu=lambda: self.cpu)
        self.rounds = Rounds()

    async def given(self) -> tuple[float, int]:
        """Find the slice of a batch, and the rounds that others have after it."""
        before, seconds = self.rounds.count, self.pace.slice_seconds(CONFIGURED)
        await self.pace.give_way()
        return seconds, self.rounds.count - before

    def use(self, seconds: float) -> None:
        """Have each round take so much of the processor."""

        def then(count: int) -> None:
            self.cpu += seconds

        self.rounds.then = then


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    setting = Setting()
    trio.lowlevel.add_instrument(setting.rounds)
    yield setting
    trio.lowlevel.remove_instrument(setting.rounds)


async def test_a_batch_is_sent_in_the_slices_that_are_configured(setting: Setting) -> None:
    assert await setting.given() == AS_CONFIGURED


async def test_it_gives_way_more_often_and_longer_while_clients_write(setting: Setting) -> None:
    setting.pace.records_written(1)
    assert await setting.given() == OFTEN
    assert setting.pace.slice_seconds(0.0) == 0.0, "shorter ones that are configured stay"
    setting.now += WRITING_SECONDS
    assert await setting.given() == AS_CONFIGURED


async def test_it_does_not_while_something_waits_that_would_use_it_up(setting: Setting) -> None:
    setting.pace.records_written(1)
    setting.queue.waits = True
    assert await setting.given() == AS_CONFIGURED
    setting.queue.waits = False
    assert await setting.given() == OFTEN


async def test_it_gives_no_more_rounds_when_something_begins_to_wait(setting: Setting) -> None:
    setting.pace.records_written(1)
    before = setting.rounds.count

    def then(count: int) -> None:
        setting.queue.waits = count - before == 2

    setting.rounds.then = then
    assert await setting.given() == (SHORT_SLICE_SECONDS, 2)


@pytest.mark.parametrize(("times", "expected"), [(0.9, OFTEN), (2.0, AS_CONFIGURED)])
async def test_who_writes_very_many_gains_nothing(
    setting: Setting, times: float, expected: tuple[float, int]
) -> None:
    for _ in range(100):
        setting.pace.records_written(round(MANY_RECORDS * times / 100))
        setting.now += 0.01
    setting.pace.records_written(1)
    assert await setting.given() == expected
    setting.now += 2 * WRITING_SECONDS
    setting.pace.records_written(1)
    assert await setting.given() == OFTEN


async def test_what_those_rounds_take_has_a_bound(setting: Setting) -> None:
    setting.use(0.001)
    given, began = 0, setting.now
    while setting.now < began + 1.0:
        setting.pace.records_written(1)
        seconds, rounds = await setting.given()
        if seconds == SHORT_SLICE_SECONDS:
            given += rounds
        setting.now += 0.0005
    bound = SHARE * (1.0 + SAVED_SECONDS)
    assert bound / 2 < given * 0.001 <= bound + 0.001, "what a round takes is not known before"


async def test_rounds_as_configured_cost_nothing(setting: Setting) -> None:
    setting.use(1.0)
    for _ in range(3):
        assert await setting.given() == AS_CONFIGURED
    setting.use(0.0)
    setting.pace.records_written(1)
    assert await setting.given() == OFTEN
