from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest
import trio

from tests.stalls import within


async def _block(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251  (that is what is looked for)
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("late", [trio.sleep, _block], ids=["waits", "blocks"])
async def test_who_is_late_is_found(late: Callable[[float], Awaitable[None]]) -> None:
    with within(10):
        await late(0.1)
    with pytest.raises(AssertionError), within(0.1):
        await late(0.1)
