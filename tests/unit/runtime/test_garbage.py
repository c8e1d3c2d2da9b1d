"""When garbage in cycles is looked for."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import trio

from kiwi_gw.runtime.garbage import NEW_OBJECTS, collect_while_idle
from kiwi_gw.testing import open_gateway


class _Cycle:
    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def only_when_asked() -> Iterator[None]:
    """Have Python itself not look for any."""
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(1_000_000, 1_000, 1_000)
    yield
    gc.enable()
    gc.set_threshold(*before)


def _left() -> weakref.ref[_Cycle]:
    return weakref.ref(_Cycle())


def _new(count: int) -> list[list[int]]:
    return [[] for _ in range(count)]


async def _while_looked(objects: int, *, idle: bool) -> bool:
    """Return whether garbage was found while so many new objects were there."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect_while_idle)
        await trio.sleep(0.001)
        garbage, new = _left(), _new(objects)
        if idle:
            await trio.sleep(0.001)
        else:
            for _ in range(10):
                await trio.lowlevel.checkpoint()
        found = garbage() is None
        del new
        nursery.cancel_scope.cancel()
    return found


async def test_it_is_looked_for_before_the_loop_waits() -> None:
    assert await _while_looked(NEW_OBJECTS, idle=True)


async def test_nobody_looks_at_old_objects() -> None:
    """With many connections that would take long."""
    old = _Cycle()
    gone = weakref.ref(old)
    gc.collect()
    del old
    assert await _while_looked(NEW_OBJECTS, idle=True)
    assert gone() is not None


async def test_who_is_woken_by_a_finalizer_runs_at_once() -> None:
    woken = trio.Event()

    class Waking(_Cycle):
        def __del__(self) -> None:
            woken.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect_while_idle)
        await trio.sleep(0.001)
        Waking()
        new = _new(NEW_OBJECTS)
        began = trio.current_time()
        with trio.move_on_after(5):  # the loop would wait until then
            await woken.wait()
        assert trio.current_time() - began < 5
        del new
        nursery.cancel_scope.cancel()


async def test_a_gateway_does_so() -> None:
    async with open_gateway("{}"):
        garbage, new = _left(), _new(NEW_OBJECTS)
        with trio.fail_after(10):
            while garbage() is not None:  # noqa: ASYNC110  (its tasks may be ready at first)
                await trio.sleep(0.001)
        del new


async def test_it_is_not_while_somebody_is_ready() -> None:
    assert not await _while_looked(NEW_OBJECTS, idle=False)


async def test_it_is_not_while_there_is_little_that_is_new() -> None:
    assert not await _while_looked(NEW_OBJECTS // 2, idle=True)


async def test_it_is_not_where_that_is_switched_off() -> None:
    gc.disable()
    assert not await _while_looked(NEW_OBJECTS, idle=True)


async def test_it_is_not_any_longer_once_that_is_over() -> None:
    await _while_looked(0, idle=True)
    garbage, new = _left(), _new(NEW_OBJECTS)
    await trio.sleep(0.001)
    assert garbage() is not None
    del new
