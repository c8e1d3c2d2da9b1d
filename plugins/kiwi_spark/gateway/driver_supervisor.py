"""Keeps a driver running: starts it, hands over its control connection, starts it again when it is gone."""

from __future__ import annotations

import enum
import hmac
import math
import os
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

from kiwi_gw.api import Backoff, KiwiError, SourceFailed
from kiwi_spark.gateway.connection import MessageConnection
from kiwi_spark.gateway.driver_process import OUTPUT_OF_IMPORT, DriverError, DriverProcess
from kiwi_spark.gateway.redaction import redact
from kiwi_spark.protocol.messages import (
    FOLDER,
    GATEWAY,
    TOKEN,
    VERSION,
    Hello,
    Message,
    OpenSession,
    SessionFailed,
    SessionOpened,
    WireError,
)
from kiwi_spark.protocol.query_spec import SessionSpec

log = structlog.get_logger("kiwi_spark")

_LASTED_SECONDS = 30.0
"""After a driver that ran for longer the pauses begin anew."""

_HELLO_SECONDS = 10.0
_LAST_WORDS_SECONDS = 0.25

Prepare = Callable[[], Awaitable[tuple[SessionSpec, Mapping[str, str]]]]


class DriverState(enum.Enum):
    """STARTING: its process runs, its session is being made. READY: it has one. BACKOFF: it is gone, and will
    be started again. FAILED: it will not; a changed section `spark` makes a new driver."""

    STARTING = "starting"
    READY = "ready"
    BACKOFF = "backoff"
    FAILED = "failed"


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


class DriverSupervisor:
    """One driver after the other. `serve` runs until it is cancelled.

    state, spark (its version), pid: of the driver that there is. problem: why there is none. deaths: how
    many drivers ended that had a session.
    """

    def __init__(
        self,
        launch: Launch,
        message: Callable[[Message], None],
        rows: Callable[[str, MessageConnection], None],
        gone: Callable[[str], None],
    ) -> None:
        """message: called for what comes on the control connection. rows: for every other connection, with
        its role. gone: when the driver is gone, with all that it ran."""
        self.state = DriverState.STARTING
        self.spark = ""
        self.pid = 0
        self.problem = ""
        self.deaths = 0
        self._launch = launch
        self._message, self._rows, self._gone = message, rows, gone
        self._token = ""
        self._control: trio.MemorySendChannel[MessageConnection] | None = None
        self._outgoing: trio.MemorySendChannel[Message] | None = None
        self._changed = trio.Event()
        self._failures = 0
        self._wanted = trio.Event()

    @property
    def token(self) -> str:
        """What the driver that runs shows on every connection."""
        return self._token

    async def ready(self) -> None:
        """Wait until the driver can run queries; the first call has it started. SourceFailed: it never
        will."""
        self._wanted.set()
        await self.reach({DriverState.READY, DriverState.FAILED})
        if self.state is DriverState.FAILED:
            raise SourceFailed(self.problem)

    async def reach(self, states: Collection[DriverState]) -> None:
        """Wait until it is in one of these states."""
        await trio.lowlevel.checkpoint()  # before: what is true when this returns must still be true
        while self.state not in states:
            await self._changed.wait()

    def send(self, message: Message) -> None:
        """Send to the driver, if there is one."""
        if self._outgoing is not None:
            self._outgoing.send_nowait(message)

    async def serve(self) -> None:
        """Keep a driver running, from the first `ready` on, until cancelled."""
        await self._wanted.wait()
        await self._keep_running()

    # --- inside ---

    def _become(self, state: DriverState) -> None:
        log.info("spark driver", state=state.value, was=self.state.value, pid=self.pid or None)
        self.state = state
        self._changed.set()
        self._changed = trio.Event()

    async def _keep_running(self) -> None:
        backoff = Backoff()
        while True:
            began = trio.current_time()
            final = False
            try:
                self.problem = await self._live()
            except KiwiError as error:
                self.problem, final = str(error), True
            except OSError as error:  # no room for its files, no descriptors: that may be over soon
                self.problem = f"the Spark driver cannot be started: {error}"
            had_session = self.state is DriverState.READY
            self._become(DriverState.BACKOFF)
            self._gone(self.problem)
            self.deaths += had_session
            self._failures = 0 if had_session else self._failures + 1
            if final or self._failures > self._launch.max_restarts:
                log.error("spark driver cannot be started", problem=self.problem)
                self._become(DriverState.FAILED)
                return
            if trio.current_time() - began > _LASTED_SECONDS:
                backoff.reset()
            pause = backoff.next()
            log.warning("spark driver is gone; it is started again", problem=self.problem, pause=pause)
            await trio.sleep(pause)
            self._become(DriverState.STARTING)

    async def _live(self) -> str:
        """Run one driver, from its start to its end. Returns why it ended. KiwiError: starting it again
        cannot help."""
        session, env = await self._launch.prepare()
        # There is a folder only while there is a driver, which removes it if this process is killed.
        try:
            folder = tempfile.mkdtemp(prefix=FOLDER)  # only this user may enter it
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
        self, path: str, listener: trio.SocketListener, session: SessionSpec, env: Mapping[str, str]
    ) -> str:
        """Start it, and attend to it until it has ended. path: of the socket that it connects to. Returns,
        raises: as `_live`."""
        launch = self._launch
        self._token = secrets.token_urlsafe(32)
        process = await DriverProcess.start([*launch.command, path], {**env, TOKEN: self._token}, launch.nice)
        self.pid = process.pid
        reason = ""
        control, came = trio.open_memory_channel[MessageConnection](1)
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
        session: SessionSpec,
        came: trio.MemoryReceiveChannel[MessageConnection],
        to_send: trio.MemoryReceiveChannel[Message],
    ) -> str:
        """Talk until the driver is silent for good. Returns why, empty if it does not say."""
        limit = self._launch.start_seconds
        with trio.move_on_after(limit) as starting:
            connection = await came.receive()
            try:
                await connection.send(OpenSession(session=session))
                reason = await self._converse(connection, to_send, starting)
                return redact(reason, (session.conf,))
            finally:
                connection.close()
        return f"Spark has not started within {limit:g} s"

    async def _converse(
        self,
        connection: MessageConnection,
        to_send: trio.MemoryReceiveChannel[Message],
        starting: trio.CancelScope,
    ) -> str:
        answer = await connection.receive()
        if isinstance(answer, SessionFailed):
            return answer.message
        if not isinstance(answer, SessionOpened):
            return ""
        starting.deadline = math.inf
        self.spark = answer.spark
        self._become(DriverState.READY)
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
                return f"the Spark driver does not keep to the protocol: {error}"
            nursery.cancel_scope.cancel()
        return ""

    async def _hear(self, stream: trio.SocketStream) -> None:
        """Find what has connected, and hand its connection on."""
        connection = MessageConnection(stream)
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

    def _take(self, role: str, connection: MessageConnection) -> None:
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
    """Remove a folder with all that is in it; what cannot be removed is left. Not cancelled.

    By a process of its own, which goes on if this one has no more time.
    """
    with trio.CancelScope(shield=True):
        try:
            await trio.run_process(
                ["rm", "-rf", "--", folder], check=False, stderr=subprocess.DEVNULL, start_new_session=True
            )
        except OSError:  # there is no such command, or there are no descriptors
            await trio.to_thread.run_sync(partial(shutil.rmtree, folder, ignore_errors=True))
