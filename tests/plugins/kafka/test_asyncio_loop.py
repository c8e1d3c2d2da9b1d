"""aiokafka's asyncio loop beside Trio's tasks."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace

import pytest
import trio

from kiwi_kafka.client import asyncio_loop
from kiwi_kafka.client.asyncio_loop import client_loop


def _silent(message: str, error: BaseException | None) -> None:
    raise AssertionError(message)


async def test_a_chain_of_callbacks_does_not_wait_for_trios_tasks_before_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asyncio_loop, "time", SimpleNamespace(perf_counter=lambda: 0.0))  # it takes none
    rounds = 0

    async def beside() -> None:
        nonlocal rounds
        while True:
            await trio.lowlevel.checkpoint()
            rounds += 1

    async def chain() -> int:
        began = rounds
        for _ in range(16):
            await asyncio.sleep(0)
        return rounds - began

    async with client_loop(_silent) as loop, trio.open_nursery() as nursery:
        nursery.start_soon(beside)
        assert await loop.run_aio_coroutine(chain()) <= 1
        nursery.cancel_scope.cancel()


async def test_a_chain_without_an_end_leaves_trios_tasks_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()
    monkeypatch.setattr(asyncio_loop, "time", SimpleNamespace(perf_counter=lambda: next(seconds) / 3000))

    async def endless() -> None:
        for _ in itertools.repeat(None):
            await asyncio.sleep(0)

    async with client_loop(_silent) as loop:
        with trio.fail_after(10), trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(loop.run_aio_coroutine, endless())
                for _ in range(100):
                    await trio.lowlevel.checkpoint()
                scope.cancel()
        assert scope.cancelled_caught
