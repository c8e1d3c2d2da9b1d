from __future__ import annotations

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kiwi_gw.wakeup import Wakeup


async def test_what_was_set_before_it_is_waited_for_counts_once(autojump_clock: MockClock) -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.set()
    assert wakeup.is_set
    await wakeup.wait()
    assert not wakeup.is_set
    with trio.move_on_after(1) as scope:
        await wakeup.wait()
    assert scope.cancelled_caught


async def test_it_wakes_the_task_that_waits() -> None:
    wakeup, woken = Wakeup(), 0

    async def worker() -> None:
        nonlocal woken
        for _ in range(2):
            await wakeup.wait()
            woken += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker)
        for count in (1, 2):
            await wait_all_tasks_blocked()
            wakeup.set()
            await wait_all_tasks_blocked()
            assert woken == count


async def test_what_was_cleared_does_not_wake(autojump_clock: MockClock) -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.clear()
    with trio.move_on_after(1) as scope:
        await wakeup.wait()
    assert scope.cancelled_caught
