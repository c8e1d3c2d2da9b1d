"""The process that answers what would hold the event loop for too long, and what waits for it.

One for all connections, started when it is first needed. It takes one question at a time: a connection has
at most one among those that wait, so turns are fair, and equal questions of several are asked once. A process
that takes too long for a question has ended itself (`kiwi_gw.query.worker`); one that died is replaced, and a
question of which two died is given up.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from subprocess import PIPE
from typing import Final

import structlog
import trio

from kiwi_gw.core.notices import Unanswered
from kiwi_gw.core.round_budget import RoundBudget
from kiwi_gw.query.weighted_lru import WeightedLru
from kiwi_gw.query.worker import ANSWER_HEAD, QUESTION_HEAD, QUESTION_SECONDS
from kiwi_gw.wakeup import Wakeup

log = structlog.get_logger(__name__)

COMMAND: Final = (sys.executable, "-P", "-m", "kiwi_gw.query.worker")

MOST: Final = 64
"""Questions that wait, of all connections."""

START_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 10.0
"""By the wall clock: the process is a nice one, and others may need the processor."""

PAUSE_SECONDS: Final = 1.0
"""Until another process is started where one did not become ready: each costs more than a question."""

_MOST_BYTES: Final = 1 << 20
_KEPT_BYTES: Final = 1 << 20
_TRIES: Final = 2

Done = Callable[[bytes | Unanswered, float], None]
"""Called with the answer and with what the one who asked has to bear of its seconds."""


class _ProcessGone(Exception):  # noqa: N818
    """The process has ended, or closed its pipes."""


@dataclass(eq=False, slots=True)
class _OffloadJob:
    question: bytes
    waiting: list[Done] = field(default_factory=list)
    tries: int = 0


class Offloads:
    """`run` is the life of the process. command: what it is started by. pid: None while there is none."""

    def __init__(self, round_budget: RoundBudget, command: Sequence[str] = COMMAND) -> None:
        self._round = round_budget
        self._command = command
        self._jobs: dict[bytes, _OffloadJob] = {}  # in order; the first may have been asked
        self._came = Wakeup()
        self._known: WeightedLru[bytes | Unanswered] = WeightedLru(_KEPT_BYTES)
        self.pid: int | None = None

    def known(self, question: bytes) -> bytes | Unanswered | None:
        """Return the answer, if it was given lately."""
        return self._known.known(question)

    def is_at(self, question: bytes) -> bool:
        """Say whether the process has been asked this, and has not answered."""
        job = self._jobs.get(question)
        return job is not None and job.tries > 0

    def ask(self, question: bytes, done: Done) -> Callable[[], None] | None:
        """Have it answered; gives what takes that back. `done` is called once, later. None: too many wait."""
        job = self._jobs.get(question)
        if job is None:
            if len(self._jobs) >= MOST:
                return None
            job = self._jobs[question] = _OffloadJob(question)
            self._came.set()
        job.waiting.append(done)

        def take_back() -> None:
            if done in job.waiting:
                job.waiting.remove(done)
                if not job.waiting and not job.tries and self._jobs.get(question) is job:
                    del self._jobs[question]

        return take_back

    async def run(self) -> None:
        """Have questions answered, until cancelled; the process ends with it."""
        while True:
            await self._first()
            try:
                async with self._process() as process:
                    await self._serve(process)
            except (_ProcessGone, OSError) as error:
                # None that works, just now: those who wait may ask again.
                log.error("no process for queries", error=str(error) or "it has ended")
                jobs, self._jobs = self._jobs, {}
                for job in jobs.values():
                    await self._tell(job, Unanswered.BUSY, 0.0)
                await trio.sleep(PAUSE_SECONDS)

    # --- inside ----------------------------------------------------------------------------

    async def _first(self) -> _OffloadJob:
        """Return the next one, when there is one."""
        while not self._jobs:
            await self._came.wait()
        return next(iter(self._jobs.values()))

    @asynccontextmanager
    async def _process(self) -> AsyncIterator[trio.Process]:
        """Start one, and wait until it is ready. Raises OSError or _ProcessGone if it never is."""
        process = await trio.lowlevel.open_process(
            self._command, stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        try:
            with trio.move_on_after(START_SECONDS) as start:
                await _received(process)
            if start.cancelled_caught:
                raise _ProcessGone("it did not become ready")
            self.pid = process.pid
            yield process
        finally:
            self.pid = None
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()
                for pipe in filter(None, (process.stdin, process.stdout)):
                    await pipe.aclose()

    async def _serve(self, process: trio.Process) -> None:
        """Have it answer until it ends."""
        while True:
            job = await self._first()
            job.tries += 1
            try:
                with trio.move_on_after(ANSWER_SECONDS) as patience:
                    answer, seconds = await _asked(process, job.question)
            except _ProcessGone:
                with trio.CancelScope(shield=True):
                    process.kill()  # it may have closed its pipes only
                    await process.wait()
                await self._died(job, process.returncode)
                return
            if patience.cancelled_caught:
                await self._over(job, Unanswered.BUSY)
                return
            await self._over(job, answer, seconds)

    async def _died(self, job: _OffloadJob, code: int | None) -> None:
        if code == -signal.SIGPROF:
            log.warning("a query took too long to be read", seconds=QUESTION_SECONDS)
            await self._over(job, Unanswered.TOO_LONG, QUESTION_SECONDS)
            return
        log.warning("the process for queries has ended", code=code)
        if job.tries >= _TRIES:
            await self._over(job, Unanswered.FATAL, QUESTION_SECONDS)  # two starts cost no less
        elif not job.waiting:
            del self._jobs[job.question]

    async def _over(self, job: _OffloadJob, answer: bytes | Unanswered, seconds: float = 0.0) -> None:
        """Remember the answer, and tell it."""
        del self._jobs[job.question]
        if answer is not Unanswered.BUSY:
            size = len(answer) if isinstance(answer, bytes) else 0
            self._known.keep(job.question, len(job.question) + size, answer)
        await self._tell(job, answer, seconds)

    async def _tell(self, job: _OffloadJob, answer: bytes | Unanswered, seconds: float) -> None:
        """Tell those who wait, as the rounds of the loop have time for what each does then. The job must not
        be among those to be answered."""
        share = seconds / max(1, len(job.waiting))
        while job.waiting:
            if self._round.left > 0:
                began = time.monotonic()
                job.waiting.pop(0)(answer, share)
                self._round.charge(began, time.monotonic())
            await trio.lowlevel.checkpoint()


async def _asked(process: trio.Process, question: bytes) -> tuple[bytes, float]:
    """Ask it. Returns its answer, and the seconds that it took. Raises _ProcessGone."""
    assert process.stdin is not None  # noqa: S101  see `_process`
    try:
        await process.stdin.send_all(QUESTION_HEAD.pack(len(question)) + question)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        raise _ProcessGone from None
    return await _received(process)


async def _received(process: trio.Process) -> tuple[bytes, float]:
    length, seconds = ANSWER_HEAD.unpack(await _exactly(process, ANSWER_HEAD.size))
    if length > _MOST_BYTES:
        raise _ProcessGone
    return await _exactly(process, length), seconds


async def _exactly(process: trio.Process, length: int) -> bytes:
    assert process.stdout is not None  # noqa: S101  see `_process`
    found = bytearray()
    while len(found) < length:
        piece = await process.stdout.receive_some(length - len(found))
        if not piece:
            raise _ProcessGone
        found += piece
    return bytes(found)
