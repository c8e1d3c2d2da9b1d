"""The process for large queries: it dies, takes too long, is asked too much, and is gone in the end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from structlog.typing import EventDict
from trio.testing import MockClock

from kiwi_gw.core.notices import Offloaded, Unanswered
from kiwi_gw.core.round_budget import RoundBudget
from kiwi_gw.query.worker import QUESTION_SECONDS
from kiwi_gw.runtime.loop_rounds import renew_in_each_round
from kiwi_gw.runtime.offload_queue import MOST_OF_ONE, OffloadQueue
from kiwi_gw.runtime.offloads import COMMAND, MOST, PAUSE_SECONDS, Offloads
from tests.unit.runtime.fakes import endless_round

PROGRAM = """
import os, signal, sys, time
from kiwi_gw.query.worker import serve
def answer(asked):
    word, _, path = asked.decode().partition(" ")
    if path:  # a pipe: it waits until the test reads it, which is told so that it has begun
        with open(path, "w") as pipe:
            pipe.write(str(os.getpid()))
    if word == "spin":
        while True:
            pass
    if word == "once" and not os.path.exists("died"):
        open("died", "w").close()
        word = "die"
    if word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "wait":
        time.sleep(1000)
    return asked.upper()
serve(answer, 0.05)
"""

Answer = bytes | Unanswered


class Asker:
    """answers: what came, in order. seconds: what each is charged for."""

    def __init__(self, offloads: Offloads) -> None:
        self.answers: list[tuple[bytes, Answer]] = []
        self.seconds: list[float] = []
        self._offloads = offloads
        self._came = trio.lowlevel.ParkingLot()

    def ask(self, question: bytes) -> Callable[[], None] | None:
        def done(answer: Answer, seconds: float) -> None:
            self.answers.append((question, answer))
            self.seconds.append(seconds)
            self._came.unpark_all()

        return self._offloads.ask(question, done)

    async def wait(self, count: int = 1) -> list[tuple[bytes, Answer]]:
        with trio.fail_after(20):
            while len(self.answers) < count:
                await self._came.park()
        return self.answers


@asynccontextmanager
async def running(command: tuple[str, ...] = (sys.executable, "-P", "-c", PROGRAM)) -> AsyncIterator[Asker]:
    offloads = Offloads(budget := RoundBudget(), command)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(renew_in_each_round, budget)
        nursery.start_soon(offloads.run)
        asker = Asker(offloads)
        yield asker
        pid = offloads.pid
        nursery.cancel_scope.cancel()
    assert offloads.pid is None
    if pid is not None:  # no process is left behind
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def begun(pipe: Path) -> int:
    """Wait until it is at the question that names this pipe. Its pid."""
    return int(await trio.to_thread.run_sync(pipe.read_text))


async def test_it_answers_and_is_started_when_it_is_needed() -> None:
    async with running() as asker:
        await trio.testing.wait_all_tasks_blocked()
        assert asker._offloads.pid is None
        asker.ask(b"a")
        assert await asker.wait() == [(b"a", b"A")]
        assert asker._offloads.known(b"a") == b"A"


async def test_one_that_is_killed_is_replaced_and_the_question_asked_again() -> None:
    async with running() as asker:
        asker.ask(b"once")
        asker.ask(b"b")
        assert await asker.wait(2) == [(b"once", b"ONCE"), (b"b", b"B")]


async def test_one_that_dies_while_it_rests_is_replaced() -> None:
    async with running() as asker:
        asker.ask(b"a")
        await asker.wait()
        pid = asker._offloads.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        asker.ask(b"b")
        assert await asker.wait(2) == [(b"a", b"A"), (b"b", b"B")]
        assert asker._offloads.pid != pid


async def test_a_question_of_which_two_died_is_given_up_and_remembered() -> None:
    async with running() as asker:
        asker.ask(b"die")
        asker.ask(b"b")
        assert await asker.wait(2) == [(b"die", Unanswered.FATAL), (b"b", b"B")]
        assert asker._offloads.known(b"die") is Unanswered.FATAL
        assert asker.seconds[0] == QUESTION_SECONDS > asker.seconds[1]


async def test_a_question_that_takes_too_long_is_given_up_at_once_and_remembered() -> None:
    async with running() as asker:
        asker.ask(b"spin")
        asker.ask(b"b")
        assert await asker.wait(2) == [(b"spin", Unanswered.TOO_LONG), (b"b", b"B")]
        assert asker._offloads.known(b"spin") is Unanswered.TOO_LONG


async def test_one_that_does_not_start_leaves_nobody_waiting(log_lines: list[EventDict]) -> None:
    async with running((sys.executable, "-P", "-c", "raise SystemExit(3)")) as asker:
        asker.ask(b"a")
        assert await asker.wait() == [(b"a", Unanswered.BUSY)]
        assert asker._offloads.known(b"a") is None  # it may be asked again
    assert [line["event"] for line in log_lines] == ["no process for queries"]


async def test_one_that_does_not_start_is_not_started_again_and_again(autojump_clock: MockClock) -> None:
    tried_at: list[float] = []

    class Broken(Offloads):
        def _process(self) -> AbstractAsyncContextManager[trio.Process]:  # type: ignore[override]
            tried_at.append(trio.current_time())
            raise OSError("no memory")

    offloads = Broken(endless_round())
    left = 20

    def ask(answer: Answer, seconds: float) -> None:
        nonlocal left
        left -= 1
        if left:
            offloads.ask(b"%d" % left, ask)

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(offloads.run)
        offloads.ask(b"20", ask)
        await trio.sleep(3.5 * PAUSE_SECONDS)
        nursery.cancel_scope.cancel()
    assert [at - began for at in tried_at] == pytest.approx([number * PAUSE_SECONDS for number in range(4)])


async def test_one_that_does_not_start_answers_those_who_leave_and_ask_again_while_others_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kiwi_gw.runtime.offloads.PAUSE_SECONDS", 0)
    async with running(("/nowhere/python",)) as asker:

        def done(answer: Answer, seconds: float) -> None:
            asker.answers.append((b"a", answer))
            for take_back in taken:
                assert take_back is not None
                take_back()
            asker.ask(b"b")

        asker._offloads.ask(b"a", done)
        taken = [asker.ask(b"gone"), asker.ask(b"b")]
        asker.ask(b"c")
        assert await asker.wait(3) == [(which, Unanswered.BUSY) for which in (b"a", b"c", b"b")]


async def test_one_that_cannot_be_found_leaves_nobody_waiting() -> None:
    async with running(("/nowhere/python",)) as asker:
        asker.ask(b"a")
        assert await asker.wait() == [(b"a", Unanswered.BUSY)]


async def test_equal_questions_are_asked_once_and_share_the_costs() -> None:
    shares: list[float] = []
    offloads = Offloads(endless_round())
    for _ in range(4):
        offloads.ask(b"a", lambda answer, seconds: shares.append(seconds))
    (job,) = offloads._jobs.values()
    await offloads._over(job, b"A", 1.0)
    assert shares == [0.25] * 4


async def test_no_more_than_so_many_wait(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    async with running() as asker:
        asker.ask(b"wait %b" % bytes(pipe))
        await begun(pipe)
        taken = [asker.ask(b"%d" % number) for number in range(MOST)]
        assert [take_back is None for take_back in taken] == [False] * (MOST - 1) + [True]
        assert asker.ask(b"1") is not None  # an equal one takes no place
        assert taken[0] is not None
        taken[0]()
        assert asker.ask(b"another") is not None


async def test_what_is_taken_back_is_not_asked_and_not_answered(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    async with running() as asker:
        question = b"once %b" % bytes(pipe)
        first = asker.ask(question)
        die = asker.ask(b"die")
        assert first is not None
        assert die is not None
        die()
        while not asker._offloads.is_at(question):
            await trio.lowlevel.checkpoint()
        first()  # while it is being answered: it dies of it, and nobody asks again
        assert await begun(pipe)
        asker.ask(b"b")
        assert await asker.wait() == [(b"b", b"B")]


async def test_the_process_that_reads_queries_is_nice_and_bounded() -> None:
    from kiwi_gw.query.errors import QueryError
    from kiwi_gw.query.worker_messages import decode_answer, sql_question

    async with running(COMMAND) as asker:
        asker.ask(sql_question("value.a >", None))
        asker.ask(sql_question("value.a > 1", "value.b"))
        (_, refusal), (_, found) = await asker.wait(2)
        assert isinstance(refusal, bytes)
        with pytest.raises(QueryError, match="where: it ends too early"):
            decode_answer(refusal)
        assert isinstance(found, bytes)
        query, bytecode = decode_answer(found)
        assert query.where is not None
        assert len(bytecode) == 2
        pid = asker._offloads.pid
        assert pid is not None
        assert os.getpriority(os.PRIO_PROCESS, pid) >= min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
        bounds = (Path("/proc") / str(pid) / "limits").read_text()
        assert f"Max address space         {256 << 20} " in bounds


# What one connection has offloaded


class Recorded(Offloads):
    """Answers nothing by itself. asked: what it was asked, in order."""

    def __init__(self) -> None:
        super().__init__(endless_round())
        self.asked: list[bytes] = []

    def ask(self, question: bytes, done: Callable[[Answer, float], None]) -> Callable[[], None] | None:
        self.asked.append(question)
        return super().ask(question, done)

    async def answer(self, answer: Answer = b"!") -> None:
        await self._over(next(iter(self._jobs.values())), answer, 1.0)


def errands(offloads: Offloads) -> tuple[OffloadQueue, list[Offloaded]]:
    told: list[Offloaded] = []
    return OffloadQueue(offloads, lambda notice, asked_at: told.append(notice)), told


async def test_a_connection_asks_one_at_a_time_in_order() -> None:
    offloads = Recorded()
    mine, told = errands(offloads)
    for number in range(3):
        mine.add(number, b"%d" % number, 0.0)
    assert offloads.asked == [b"0"]
    await offloads.answer()
    assert offloads.asked == [b"0", b"1"]
    await offloads.answer()
    await offloads.answer()
    assert [notice.handle for notice in told] == [0, 1, 2]


async def test_a_connection_has_so_many_waiting() -> None:
    mine, told = errands(Recorded())
    for number in range(MOST_OF_ONE + 1):
        mine.add(number, b"%d" % number, 0.0)
    assert told == [Offloaded(MOST_OF_ONE, Unanswered.BUSY)]


async def test_what_is_dropped_is_not_asked_and_the_next_is() -> None:
    offloads = Recorded()
    mine, told = errands(offloads)
    for number in range(4):
        mine.add(number, b"%d" % number, 0.0)
    assert mine.drop(1)
    assert mine.drop(0)
    assert not mine.drop(0)
    assert offloads.asked == [b"0", b"2"]
    mine.clear()
    assert not offloads._jobs
    assert told == []


async def test_whoever_gives_up_what_the_process_is_at_bears_its_seconds_and_waits_for_it() -> None:
    offloads = Recorded()
    mine, told = errands(offloads)
    mine.add("a", b"dear", 0.0)
    mine.add("b", b"next", 0.0)
    (job,) = offloads._jobs.values()
    job.tries = 1
    assert mine.drop("a")
    assert not mine.drop("a")
    mine.add("a", b"another", 0.0)
    assert offloads.asked == [b"dear"]
    await offloads.answer()
    assert told == [Offloaded(None, b"!", 1.0)]
    await offloads.answer()
    assert offloads.asked == [b"dear", b"next", b"another"]
    assert [notice.handle for notice in told] == [None, "b"]


async def test_equal_questions_of_a_connection_are_answered_together_and_known_ones_at_once() -> None:
    offloads = Recorded()
    mine, told = errands(offloads)
    mine.add("a", b"same", 0.0)
    mine.add("b", b"same", 0.0)
    await offloads.answer()
    assert told == [Offloaded("a", b"!", 1.0), Offloaded("b", b"!", 0.0)]
    mine.add("c", b"same", 0.0)
    assert told[2:] == [Offloaded("c", b"!", 0.0)]
    assert offloads.asked == [b"same"]


async def test_a_full_queue_is_said_at_once() -> None:
    offloads = Recorded()
    for number in range(MOST):
        offloads.ask(b"%d" % number, lambda answer, seconds: None)
    mine, told = errands(offloads)
    mine.add("a", b"mine", 0.0)
    assert told == [Offloaded("a", Unanswered.BUSY)]
