"""A loop that stands still is told of, with the line that holds it, and one that turns is not."""

from __future__ import annotations

import threading
import time

import pytest
import trio
import trio.lowlevel
from structlog.testing import capture_logs

from kiwi_gw.runtime.loop_watch import LoopWatch

HELD = 0.2


def hold(until: threading.Event) -> None:
    until.wait(10)


async def test_where_it_is_held_up_and_for_how_long() -> None:
    told = threading.Event()
    with capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            await nursery.start(LoopWatch(HELD, HELD / 10).run)
            await trio.to_thread.run_sync(lambda: None)  # it turns
            assert lines == []
            began = time.monotonic()

            def tell() -> None:
                while not lines:
                    time.sleep(0.01)
                told.set()

            threading.Thread(target=tell).start()
            hold(told)
            held = time.monotonic() - began
            with trio.fail_after(5):
                while len(lines) < 2:
                    await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    first, then = lines
    assert first["event"] == "event loop is held up"
    assert HELD <= first["seconds"] <= held + 0.1
    assert "hold(told)" in first["stack"]
    assert (then["event"], then["log_level"]) == ("event loop turns again", "warning")
    assert then["seconds"] >= first["seconds"]


@pytest.mark.slow
async def test_a_loop_that_is_busy_is_not_held_up() -> None:
    with capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            await nursery.start(LoopWatch(5 * HELD, HELD / 2).run)  # other processes may hold it up, too
            until = trio.current_time() + 7 * HELD
            while trio.current_time() < until:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    assert lines == []


async def test_it_leaves_no_thread_behind() -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(LoopWatch().run)
        assert "loop watch" in {thread.name for thread in threading.enumerate()}
        nursery.cancel_scope.cancel()
    assert "loop watch" not in {thread.name for thread in threading.enumerate()}
