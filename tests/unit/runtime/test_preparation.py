"""When that is loaded which is not needed for the start."""

from __future__ import annotations

import trio

from kiwi_gw.runtime.preparation import SOON_SECONDS, Preparation


async def test_it_is_loaded_soon(autojump_clock: object) -> None:
    loaded: list[str] = []
    preparation = Preparation(lambda: loaded.append("it"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(preparation.run)
        await trio.sleep(SOON_SECONDS / 2)
        assert (loaded, preparation.done) == ([], False)
        await preparation.wait()
        assert (loaded, preparation.done) == (["it"], True)
    await preparation.wait()


async def test_it_is_loaded_without_anybody_who_waits(autojump_clock: object) -> None:
    began = trio.current_time()
    preparation = Preparation(lambda: None)
    await preparation.run()
    assert preparation.done
    assert trio.current_time() - began >= SOON_SECONDS


async def test_who_waits_has_it_loaded_at_once(mock_clock: trio.testing.MockClock) -> None:
    """The clock stands still."""
    preparation = Preparation(lambda: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(preparation.run)
        await preparation.wait()
