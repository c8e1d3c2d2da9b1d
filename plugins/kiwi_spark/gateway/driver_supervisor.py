"""Keeps a driver running: starts it, hands over its control connection, starts it again when it is gone."""

from __future__ import annotations

import enum
import hmac
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
import trio

from kiwi_gw.api import Backoff, KiwiError, SourceFailed
from kiwi_spark.gateway.driver_process import OUTPUT_OF_IMPORT, DriverError, DriverProcess
from kiwi_spark.gateway.redaction import redact
from kiwi_spark.protocol.messages import (
    FOLDER,
    GATEWAY,
    TOKEN,
    VERSION,
    Hello,
    Message,
    MessageReader,
    OpenSession,
    SessionFailed,
    SessionOpened,
    WireError,
    frame_of,
)
from kiwi_spark.protocol.query_spec import SessionSpec

log = structlog.get_logger("kiwi_spark")

_LASTED_SECONDS = 30.0
"""After a driver that ran for longer the pauses begin anew."""

_HELLO_SECONDS = 10.0
_LAST_WORDS_SECONDS = 0.25
_READ = 256 * 1024

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
    environment; KiwiError if that cannot be had. nice: as in `DriverProcess.start`. start_seconds: how long
    making the session may take. max_restarts: of drivers in a row that never had a session, and of a query
    that fails in vain. longest_pause: in seconds, before another driver is started.
    """

    prepare: Prepare
    command: Sequence[str] = (sys.executable, "-m", "kiwi_spark.driver")
    nice: int = 5
    start_seconds: float = 180.0
    max_restarts: int = 5
    longest_pause: float = 30.0


class MessageConnection:
    """Messages in both directions, each for one task at a time."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._reader = MessageReader()
        self._waiting: deque[Message] = deque()
        self._closed = trio.Event()

    async def receive(self) -> Message | None:
        """Return the next message; None when there will be no more. WireError: that was none."""
        while not self._waiting:
            try:
                data = await self._stream.receive_some(_READ)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return None
            if not data:
                return None
            self._waiting.extend(self._reader.feed(data))
        await trio.lowlevel.checkpoint_if_cancelled()
        return self._waiting.popleft()

    async def send(self, message: Message) -> None:
        """Send. If it is closed nothing is sent, and nothing more will come either."""
        await self.send_frame(frame_of(message))

    async def send_frame(self, frame: bytes) -> None:
        """Send what is written already."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._stream.send_all(frame)

    def close(self) -> None:
        """Close it; a task that waits in `receive` gets None."""
        self._closed.set()
        self._stream.socket.close()

    async def wait_closed(self) -> None:
        """Wait for `close`."""
        await self._closed.wait()


class DriverSupervisor:
    """One driver after the other. `serve` runs until it is cancelled.

    state, spark (its version), places (partitions that it may read in real time), pid, token (which it shows
    on every connection): of the driver that there is.
    problem: why there is none. deaths: how many drivers ended that had a session.
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
        self.places = 0
        self.pid = 0
        self.problem = ""
        self.deaths = 0
        self._launch = launch
        self._message, self._rows, self._gone = message, rows, gone
        self.token = ""
        self._session: SessionSpec | None = None
        self._reason = ""
        self._nursery: trio.Nursery
        self._outgoing: trio.MemorySendChannel[bytes] | None = None
        self._changed = trio.lowlevel.ParkingLot()
        self._wanted = trio.Event()

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
            await self._changed.park()

    def send(self, message: Message) -> None:
        """Send to the driver, if there is one. Raises what writing the message does: that is the fault of who
        sends it, and ends neither the driver nor what else it runs."""
        frame = frame_of(message)
        if self._outgoing is not None:
            self._outgoing.send_nowait(frame)

    async def serve(self) -> None:
        """Keep a driver running, from the first `ready` on, until cancelled."""
        await self._wanted.wait()
        backoff, failures = Backoff(longest=self._launch.longest_pause), 0
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
            failures = 0 if had_session else failures + 1
            if final or failures > self._launch.max_restarts:
                log.error("spark driver cannot be started", problem=self.problem)
                self._become(DriverState.FAILED)
                return
            if trio.current_time() - began > _LASTED_SECONDS:
                backoff.reset()
            pause = backoff.next()
            log.warning("spark driver is gone; it is started again", problem=self.problem, pause=pause)
            await trio.sleep(pause)
            self._become(DriverState.STARTING)

    # --- inside ---

    def _become(self, state: DriverState) -> None:
        log.info("spark driver", state=state.value, was=self.state.value, pid=self.pid or None)
        self.state = state
        self._changed.unpark_all()

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
        self.token, self._session, self._reason = secrets.token_urlsafe(32), session, ""
        process = await DriverProcess.start([*launch.command, path], {**env, TOKEN: self.token}, launch.nice)
        self.pid = process.pid
        self._outgoing, to_send = trio.open_memory_channel[bytes](10_000)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(process.log_output)
                nursery.start_soon(trio.serve_listeners, partial(self._hear, to_send), [listener])
                nursery.start_soon(self._watch, process)
                nursery.start_soon(self._limit_start)
        finally:
            self._outgoing = None
            self.token = ""
            await process.end()
            self.pid = 0
        if any(OUTPUT_OF_IMPORT.search(line) for line in process.last_lines):
            raise DriverError(f"{process.last_lines[-1]}: pip install 'kiwi-gw[spark]'")
        return redact(self._reason, (session.conf,))

    def _end(self, reason: str) -> None:
        """End the driver that there is. The first reason counts."""
        self._reason = self._reason or reason
        self._nursery.cancel_scope.cancel()

    async def _watch(self, process: DriverProcess) -> None:
        ending = await process.wait()
        with trio.move_on_after(_LAST_WORDS_SECONDS):
            await process.said_all()
        self._end(f"the Spark driver has ended ({ending}); the log has what it said")

    async def _limit_start(self) -> None:
        with trio.move_on_after(self._launch.start_seconds):
            await self.reach({DriverState.READY})
            return
        self._end(f"Spark has not started within {self._launch.start_seconds:g} s")

    async def _hear(self, to_send: trio.MemoryReceiveChannel[bytes], stream: trio.SocketStream) -> None:
        """Find what has connected, and serve it until it is closed: the stream is this task's."""
        connection = MessageConnection(stream)
        hello: Message | None = None
        with trio.move_on_after(_HELLO_SECONDS), suppress(WireError):
            hello = await connection.receive()
        if not isinstance(hello, Hello) or not self._knows(hello):
            log.warning("a connection that is not of the Spark driver was refused")
        elif hello.role != "control":
            self._rows(hello.role, connection)
            await connection.wait_closed()
        elif self._session is not None:
            session, self._session = self._session, None  # there is one of these
            try:
                await self._talk(connection, session, to_send)
            except WireError as error:
                self._end(f"the Spark driver does not keep to the protocol: {error}")

    def _knows(self, hello: Hello) -> bool:
        if not self.token or not hmac.compare_digest(hello.token.encode(), self.token.encode()):
            return False
        if hello.version != VERSION:
            log.error("the Spark driver is of another version", version=hello.version, wanted=VERSION)
            return False
        return True

    async def _talk(
        self,
        connection: MessageConnection,
        session: SessionSpec,
        to_send: trio.MemoryReceiveChannel[bytes],
    ) -> None:
        """Have it open the session, then pass on what is said, until it is silent for good."""
        await connection.send(OpenSession(session=session))
        answer = await connection.receive()
        if isinstance(answer, SessionFailed):
            self._end(answer.message)
        if isinstance(answer, SessionOpened):
            self.spark, self.places = answer.spark, answer.places
            self._become(DriverState.READY)
            log.info("spark driver is ready", spark=answer.spark, pid=answer.pid)

            async def send() -> None:
                async for frame in to_send:
                    await connection.send_frame(frame)

            self._nursery.start_soon(send)
            while (message := await connection.receive()) is not None:
                self._message(message)
        await trio.sleep(2 * _LAST_WORDS_SECONDS)  # how it ended tells more
        self._end("the Spark driver has closed its connection")


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
