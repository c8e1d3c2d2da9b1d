"""Keeps a driver running: starts it, hands over its control connection, starts it again when it is gone."""

from __future__ import annotations

import hmac
import itertools
import math
import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import structlog
import trio

from kiwi_gw.api import KiwiError, SourceFailed
from kiwi_spark.connection import Connection
from kiwi_spark.frames import Message, WireError
from kiwi_spark.process import OUTPUT_OF_IMPORT, DriverError, Process
from kiwi_spark.secrecy import without_secrets
from kiwi_spark.spec import Session
from kiwi_spark.states import WORKS, Input, State, move
from kiwi_spark.wire import FOLDER, GATEWAY, TOKEN, VERSION, Failed, Hello, Open, Opened

log = structlog.get_logger("kiwi_spark")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between two drivers: doubled each time, with jitter; one that lasted longer begins anew."""

_HELLO_SECONDS = 10.0
_LAST_WORDS_SECONDS = 0.25

Prepare = Callable[[], Awaitable[tuple[Session, Mapping[str, str]]]]


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a driver.

    command: the words before the path of the socket. prepare: the session, and what to add to the
    environment; KiwiError if that cannot be had. nice: as in `Process.start`. start_seconds: how long
    making the session may take. max_restarts: so many drivers in a row that never had a session.
    """

    prepare: Prepare
    command: Sequence[str] = (sys.executable, "-m", "kiwi_spark.driver")
    nice: int = 5
    start_seconds: float = 180.0
    max_restarts: int = 5


class Supervisor:
    """One driver after the other. `serve` runs until it is cancelled.

    state, spark (its version), pid: of the driver that there is. problem: why there is none. deaths: how
    many drivers ended that had a session.
    """

    def __init__(
        self,
        launch: Launch,
        message: Callable[[Message], None],
        rows: Callable[[str, Connection], None],
        gone: Callable[[str], None],
    ) -> None:
        """message: told what comes on the control connection. rows: told of every other connection, with
        its role. gone: told that the driver is gone, with all that it ran."""
        self.state = State.STARTING
        self.spark = ""
        self.pid = 0
        self.problem = ""
        self.deaths = 0
        self._launch = launch
        self._message, self._rows, self._gone = message, rows, gone
        self._token = ""
        self._control: trio.MemorySendChannel[Connection] | None = None
        self._outgoing: trio.MemorySendChannel[Message] | None = None
        self._changed = trio.Event()
        self._failures = 0
        self._wanted = trio.Event()
        self._folder = ""
        self._bridges = itertools.count(1)

    @property
    def token(self) -> str:
        """What the driver that there is shows to whoever it connects to."""
        return self._token

    def bridge_path(self) -> str:
        """A path for a socket, in a folder that only this user may enter. Once there is a driver."""
        return str(Path(self._folder) / f"bridge-{next(self._bridges)}.sock")

    async def ready(self) -> None:
        """Until the driver can run queries; the first call has it started. SourceFailed: it never will."""
        self._wanted.set()
        await self.reach(WORKS | {State.FAILED})
        if self.state is State.FAILED:
            raise SourceFailed(self.problem)

    async def reach(self, states: Collection[State]) -> None:
        """Until it is in one of these states."""
        await trio.lowlevel.checkpoint()  # before: what is true when this returns must still be true
        while self.state not in states:
            await self._changed.wait()

    def send(self, message: Message) -> None:
        """To the driver, if there is one."""
        if self._outgoing is not None:
            self._outgoing.send_nowait(message)

    def busy(self, busy: bool) -> None:
        """Whether it has queries."""
        if self.state is (State.READY if busy else State.RUNNING):
            self._move(Input.BUSY if busy else Input.IDLE)

    async def serve(self) -> None:
        """Once somebody wants a driver: keep one running, until cancelled."""
        await self._wanted.wait()
        await self._keep_running()

    # --- inside ---

    def _move(self, item: Input) -> None:
        old, self.state = self.state, move(self.state, item)
        if item not in (Input.BUSY, Input.IDLE):
            log.info("spark driver", state=self.state.value, was=old.value, pid=self.pid or None)
        self._changed.set()
        self._changed = trio.Event()

    async def _keep_running(self) -> None:
        pause = FIRST_PAUSE
        while True:
            began = trio.current_time()
            final = False
            try:
                self.problem = await self._live()
            except KiwiError as error:
                self.problem, final = str(error), True
            except OSError as error:  # no room for its files, no descriptors: that may be over soon
                self.problem = f"the Spark driver cannot be started: {error}"
            had_session = self.state in WORKS
            self._move(Input.DIED)
            self._gone(self.problem)
            self.deaths += had_session
            self._failures = 0 if had_session else self._failures + 1
            if final or self._failures > self._launch.max_restarts:
                log.error("spark driver cannot be started", problem=self.problem)
                self._move(Input.GAVE_UP)
                return
            if trio.current_time() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            log.warning("spark driver is gone; it is started again", problem=self.problem, pause=pause)
            await trio.sleep(pause * (0.5 + random.random() / 2))  # noqa: S311  jitter, not a secret
            pause = min(pause * 2, LONGEST_PAUSE)
            self._move(Input.RETRY)

    async def _live(self) -> str:
        """Run one driver, from its start to its end. Returns why it ended. KiwiError: starting it again
        cannot help."""
        session, env = await self._launch.prepare()
        # There is a folder only while there is a driver, which removes it if this process is killed.
        try:
            self._folder = folder = tempfile.mkdtemp(prefix=FOLDER)  # only this user may enter it
        except OSError as error:
            raise OSError(f"no place for temporary files: {error}") from error
        try:
            with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM) as listening:
                path = str(Path(folder) / "driver.sock")
                await listening.bind(path)
                listening.listen(64)
                own = {GATEWAY: str(os.getpid()), "TMPDIR": folder}
                return await self._attend(path, trio.SocketListener(listening), session, {**env, **own})
        finally:
            await _remove(folder)

    async def _attend(
        self, path: str, listener: trio.SocketListener, session: Session, env: Mapping[str, str]
    ) -> str:
        """Start it, and attend to it until it has ended. path: of the socket that it connects to. Returns,
        raises: as `_live`."""
        launch = self._launch
        self._token = secrets.token_urlsafe(32)
        process = await Process.start([*launch.command, path], {**env, TOKEN: self._token}, launch.nice)
        self.pid = process.pid
        reason = ""
        control, came = trio.open_memory_channel[Connection](1)
        outgoing, to_send = trio.open_memory_channel[Message](10_000)
        self._control, self._outgoing = control, outgoing
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(process.log_output)
                nursery.start_soon(trio.serve_listeners, self._hear, [listener])

                async def watch() -> None:
                    nonlocal reason
                    ending = await process.wait()
                    with trio.move_on_after(_LAST_WORDS_SECONDS):
                        await process.said_all()
                    reason = reason or f"the Spark driver has ended ({ending}); the log has what it said"
                    nursery.cancel_scope.cancel()

                async def talk() -> None:
                    nonlocal reason
                    reason = await self._talk(session, came, to_send)
                    if not reason:
                        with trio.move_on_after(_LAST_WORDS_SECONDS * 2):  # how it ended tells more
                            await trio.sleep_forever()
                        reason = "the Spark driver has closed its connection"
                    nursery.cancel_scope.cancel()

                nursery.start_soon(watch)
                nursery.start_soon(talk)
        finally:
            self._control = self._outgoing = None
            self._token = ""
            await process.end()
            self.pid = 0
        if any(OUTPUT_OF_IMPORT.search(line) for line in process.last_lines):
            raise DriverError(f"{process.last_lines[-1]}: pip install 'kiwi-gw[spark]'")
        return reason

    async def _talk(
        self,
        session: Session,
        came: trio.MemoryReceiveChannel[Connection],
        to_send: trio.MemoryReceiveChannel[Message],
    ) -> str:
        """Until the driver is silent for good: why, or nothing if it just is."""
        limit = self._launch.start_seconds
        with trio.move_on_after(limit) as starting:
            connection = await came.receive()
            try:
                await connection.send(Open(session=session))
                reason = await self._converse(connection, to_send, starting)
                return without_secrets(reason, (session.conf,))
            finally:
                connection.close()
        return f"Spark has not started within {limit:g} s"

    async def _converse(
        self,
        connection: Connection,
        to_send: trio.MemoryReceiveChannel[Message],
        starting: trio.CancelScope,
    ) -> str:
        answer = await connection.receive()
        if isinstance(answer, Failed):
            return answer.message
        if not isinstance(answer, Opened):
            return ""
        starting.deadline = math.inf
        self.spark = answer.spark
        self._move(Input.OPENED)
        log.info("spark driver is ready", spark=answer.spark, pid=answer.pid)
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                async for message in to_send:
                    await connection.send(message)

            nursery.start_soon(send)
            try:
                while (message := await connection.receive()) is not None:
                    self._message(message)
            except WireError as error:
                nursery.cancel_scope.cancel()
                return f"the Spark driver says what nobody understands: {error}"
            nursery.cancel_scope.cancel()
        return ""

    async def _hear(self, stream: trio.SocketStream) -> None:
        """A connection has come: who is it?"""
        connection = Connection(stream)
        try:
            known = False
            with trio.move_on_after(_HELLO_SECONDS):
                hello = await connection.receive()
                known = isinstance(hello, Hello) and self._knows(hello)
            if known:
                self._take(cast("Hello", hello).role, connection)
                await connection.wait_closed()  # the stream is this task's
                return
        except WireError:
            pass
        log.warning("a connection that is not of the Spark driver was refused")

    def _knows(self, hello: Hello) -> bool:
        if not self._token or not hmac.compare_digest(hello.token.encode(), self._token.encode()):
            return False
        if hello.version != VERSION:
            log.error("the Spark driver is of another version", version=hello.version, wanted=VERSION)
            return False
        return True

    def _take(self, role: str, connection: Connection) -> None:
        if role != "control":
            self._rows(role, connection)
            return
        try:
            if self._control is not None:
                self._control.send_nowait(connection)
                return
        except trio.WouldBlock:
            pass
        connection.close()


async def _remove(folder: str) -> None:
    """With all that is in it; what cannot be removed is left. Not cancelled.

    By a process of its own, which goes on if this one has no more time.
    """
    with trio.CancelScope(shield=True):
        try:
            await trio.run_process(
                ["rm", "-rf", "--", folder], check=False, stderr=subprocess.DEVNULL, start_new_session=True
            )
        except OSError:  # there is no such command, or there are no descriptors
            await trio.to_thread.run_sync(partial(shutil.rmtree, folder, ignore_errors=True))
