"""How often fan-out gives way to others, and for how long."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.runtime.fan_out_pace import ROUNDS, SHORT_SLICE_SECONDS, WRITING_SECONDS, FanOutPace

CONFIGURED = HubLimits().slice_seconds


class Rounds(trio.abc.Instrument):
    """Counts the rounds of the event loop."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


class Setting:
    """A pace with a clock that is set by hand, and something that contends. rounds: of the event loop."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waiting: list[str] = []
        self.pace = FanOutPace(lambda: self.now, (), self.waiting)
        self.rounds = Rounds()

    async def given(self) -> tuple[float, int]:
        """Find the slice of a batch, and the rounds that others have after it."""
        before = self.rounds.count
        await self.pace.give_way()
        return self.pace.slice_seconds(CONFIGURED), self.rounds.count - before


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    setting = Setting()
    trio.lowlevel.add_instrument(setting.rounds)
    yield setting
    trio.lowlevel.remove_instrument(setting.rounds)


async def test_a_batch_is_sent_in_the_slices_that_are_configured(setting: Setting) -> None:
    assert await setting.given() == (CONFIGURED, 1)


async def test_it_gives_way_more_often_and_longer_while_clients_write(setting: Setting) -> None:
    setting.pace.record_written()
    assert await setting.given() == (SHORT_SLICE_SECONDS, ROUNDS)
    assert setting.pace.slice_seconds(0.0) == 0.0, "shorter ones that are configured stay"
    setting.now += WRITING_SECONDS
    assert await setting.given() == (CONFIGURED, 1)


async def test_it_does_not_while_something_waits_that_would_use_it_up(setting: Setting) -> None:
    setting.pace.record_written()
    setting.waiting.append("a query")
    assert await setting.given() == (CONFIGURED, 1)
    setting.waiting.clear()
    assert await setting.given() == (SHORT_SLICE_SECONDS, ROUNDS)
