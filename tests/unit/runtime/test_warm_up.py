"""When that is loaded which is not needed for the start."""

from __future__ import annotations

import errno
import itertools
import os

import pytest
import trio

from kiwi_gw.runtime.warm_up import AGAIN_SECONDS, SOON_SECONDS, WarmUp


async def test_it_is_loaded_soon(autojump_clock: object) -> None:
    loaded: list[str] = []
    warm_up = WarmUp(lambda: loaded.append("it"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(warm_up.run)
        await trio.sleep(SOON_SECONDS / 2)
        assert (loaded, warm_up.done) == ([], False)
        await warm_up.wait()
        assert (loaded, warm_up.done) == (["it"], True)
    await warm_up.wait()


async def test_it_is_loaded_without_anybody_who_waits(autojump_clock: object) -> None:
    began = trio.current_time()
    warm_up = WarmUp(lambda: None)
    await warm_up.run()
    assert warm_up.done
    assert trio.current_time() - began >= SOON_SECONDS


async def test_who_waits_has_it_loaded_at_once(mock_clock: trio.testing.MockClock) -> None:
    """The clock stands still."""
    warm_up = WarmUp(lambda: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(warm_up.run)
        await warm_up.wait()


@pytest.mark.parametrize(
    "failure",
    [
        OSError(errno.EMFILE, os.strerror(errno.EMFILE), "parser.py"),
        OSError(errno.ENFILE, os.strerror(errno.ENFILE), "parser.py"),
        ImportError(f"libre2.so: cannot open shared object file: {os.strerror(errno.EMFILE)}"),
    ],
)
async def test_without_a_descriptor_for_its_files_it_is_tried_again(
    failure: Exception, autojump_clock: object
) -> None:
    tries: list[float] = []

    def load() -> None:
        tries.append(trio.from_thread.run_sync(trio.current_time))
        if len(tries) < 3:
            raise failure

    warm_up = WarmUp(load)
    await warm_up.run()
    assert warm_up.done
    assert [later - sooner for sooner, later in itertools.pairwise(tries)] == pytest.approx(
        [AGAIN_SECONDS] * 2
    )


@pytest.mark.parametrize("failure", [FileNotFoundError(errno.ENOENT, "it is not there"), ImportError("re2")])
async def test_what_is_broken_is_raised(failure: Exception, autojump_clock: object) -> None:
    def load() -> None:
        raise failure

    warm_up = WarmUp(load)
    with pytest.raises(type(failure)):
        await warm_up.run()
    assert not warm_up.done
