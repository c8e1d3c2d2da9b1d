"""Whether a client is read while it waits for what was offloaded; processes for queries that misbehave."""

from __future__ import annotations

import sys

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kiwi_gw.core.notices import Offloaded, Unanswered
from kiwi_gw.core.round_budget import RoundBudget
from kiwi_gw.runtime import offloads as module
from kiwi_gw.runtime.offload_queue import OffloadQueue
from kiwi_gw.runtime.offloads import Offloads
from tests.unit.runtime.test_offloads import Recorded, errands, running


class Reading:
    """A client that is read when it may be. reads: how often it was."""

    def __init__(self, queue: OffloadQueue, nursery: trio.Nursery) -> None:
        self.reads = 0
        self._queue, self._nursery = queue, nursery

    async def read(self) -> int:
        async def wait() -> None:
            await self._queue.wait_room()
            self.reads += 1

        self._nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        return self.reads


async def test_a_client_that_is_to_pause_is_read_when_it_has_its_answer() -> None:
    offloads = Recorded()
    mine, told = errands(offloads)
    async with trio.open_nursery() as nursery:
        client = Reading(mine, nursery)
        mine.add("a", b"a", 0.0)
        assert await client.read() == 1, "this one is not waited for"
        mine.add("b", b"b", 0.0, pause=True)
        mine.add("c", b"c", 0.0, pause=True)
        assert await client.read() == 1
        await offloads.answer()
        await offloads.answer()
        assert await client.read() == 1, "there is one more"
        await offloads.answer()
        await wait_all_tasks_blocked()
        assert client.reads == 3
    assert [notice.handle for notice in told] == ["a", "b", "c"]


async def test_a_client_that_gives_up_what_it_pauses_for_is_read() -> None:
    offloads = Recorded()
    mine, _ = errands(offloads)
    async with trio.open_nursery() as nursery:
        client = Reading(mine, nursery)
        mine.add("a", b"a", 0.0, pause=True)
        assert await client.read() == 0
        mine.drop("a")
        await wait_all_tasks_blocked()
        assert client.reads == 1
        mine.add("b", b"b", 0.0, pause=True)
        assert await client.read() == 1
        mine.clear()
        await wait_all_tasks_blocked()
        assert client.reads == 2
        mine.clear()  # there is nothing to give up any more
        assert await client.read() == 3


async def test_who_was_answered_has_nothing_to_take_back() -> None:
    offloads = Recorded()
    told: list[object] = []
    take_back = offloads.ask(b"a", lambda answer, seconds: told.append(answer))
    await offloads.answer()
    offloads.ask(b"a", lambda answer, seconds: told.append(answer))
    assert take_back is not None
    take_back()
    await offloads.answer()
    assert told == [b"!", b"!"]


async def test_who_is_told_waits_for_a_round_that_has_time() -> None:
    budget = RoundBudget()
    budget.left = 0
    offloads = Offloads(budget)
    mine, told = errands(offloads)
    mine.add("a", b"a", 0.0)
    async with trio.open_nursery() as nursery:
        (job,) = offloads._jobs.values()
        nursery.start_soon(offloads._over, job, b"A", 0.5)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        assert told == []
        budget.left = 1
    assert told == [Offloaded("a", b"A", 0.5)]


def program(text: str) -> tuple[str, ...]:
    head = "import os, sys, time\nfrom kiwi_gw.query.worker import ANSWER_HEAD\nout = sys.stdout.buffer\n"
    return sys.executable, "-P", "-c", head + text


READY = "out.write(ANSWER_HEAD.pack(0, 0.0))\nout.flush()\n"


async def test_one_that_does_not_become_ready_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START_SECONDS", 0.1)
    async with running(program("time.sleep(1000)")) as asker:
        asker.ask(b"a")
        assert await asker.wait() == [(b"a", Unanswered.BUSY)]
        assert asker._offloads.known(b"a") is None


async def test_an_answer_that_does_not_come_may_come_another_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may have had no processor: that says nothing of the question."""
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.1)
    async with running(program(READY + "time.sleep(1000)")) as asker:
        asker.ask(b"a")
        asker.ask(b"b")
        assert await asker.wait(2) == [(b"a", Unanswered.BUSY), (b"b", Unanswered.BUSY)]
        assert asker._offloads.known(b"a") is None


@pytest.mark.parametrize(
    "text",
    [
        "os.close(0)\n" + READY + "time.sleep(1000)",
        READY + f"out.write(ANSWER_HEAD.pack({(1 << 20) + 1}, 0.0))\nout.flush()\ntime.sleep(1000)",
        READY + "os.close(1)\ntime.sleep(1000)",
    ],
    ids=["it reads nothing", "its answer is too large", "it writes nothing"],
)
async def test_one_that_does_not_keep_to_the_rules_is_replaced_and_its_question_given_up(text: str) -> None:
    async with running(program(text)) as asker:
        asker.ask(b"a")
        assert await asker.wait() == [(b"a", Unanswered.FATAL)]
