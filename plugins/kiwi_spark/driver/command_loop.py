"""Does what the gateway says on the control connection."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from kiwi_spark.driver import jvm
from kiwi_spark.driver.analyse import analyse
from kiwi_spark.driver.gateway_connection import GatewayConnection
from kiwi_spark.driver.jvm_rows import RowsLink
from kiwi_spark.driver.query_thread import QueryThread
from kiwi_spark.driver.range_thread import RangeThread
from kiwi_spark.driver.real_time import RealTimePlaces
from kiwi_spark.driver.session import Engine, open_engine
from kiwi_spark.protocol.messages import (
    AnalyseQuery,
    Message,
    OpenSession,
    QueryEnded,
    SessionFailed,
    SessionOpened,
    StartQuery,
    StartRangeQuery,
    StopQuery,
    WireError,
)


class CommandLoop:
    """One control connection, its session and its runs. Every command is carried out in its own thread, so
    that one that takes long holds up no other."""

    def __init__(self, path: str, token: str) -> None:
        self._path = path
        self._token = token
        self._connection: GatewayConnection | None = None
        self._runs: dict[int, QueryThread | RangeThread] = {}
        self._runs_lock = threading.Lock()
        self._engine: Engine | None = None
        self._places = RealTimePlaces(0)
        self._ending = False

    def serve(self) -> bool:
        """Serve until the connection has ended. Returns True if `end` was called. OSError: there is no
        gateway."""
        self._connection = GatewayConnection(self._path, self._token, "control")
        try:
            while not self._ending and (message := self._connection.receive()) is not None:
                self._dispatch(message)
        except (OSError, WireError) as error:
            if not self._ending:
                print(f"the connection to the gateway broke: {error}", file=sys.stderr, flush=True)
        return self._ending

    def end(self) -> None:
        """Have `serve` return. For a signal handler."""
        self._ending = True
        if self._connection is not None:
            self._connection.stop_receiving()

    def send(self, message: Message) -> None:
        """Send to the gateway, if it is there; from any thread."""
        if self._connection is None:
            return
        try:
            self._connection.send(message)
        except OSError as error:
            print(f"the gateway is gone: {error}", file=sys.stderr, flush=True)

    def _dispatch(self, message: Message) -> None:
        if isinstance(message, OpenSession):  # which takes long, and meanwhile the gateway may go
            self._in_thread(self._open, message)
        elif isinstance(message, StartQuery):
            self._start(message)
        elif isinstance(message, StartRangeQuery):
            self._start_ranges(message)
        elif isinstance(message, StopQuery):
            self._in_thread(self._stop, message)
        elif isinstance(message, AnalyseQuery):
            self._in_thread(self._analyse, message)
        else:
            raise WireError(f"{type(message).__name__} is nothing that a gateway says")

    def _open(self, message: OpenSession) -> None:
        try:
            self._engine = open_engine(message.session)
        except Exception as error:  # noqa: BLE001  (sent to the gateway)
            self.send(SessionFailed(message=str(error)))
            return
        self._places = RealTimePlaces(self._engine.real_time_partitions)
        jvm.watch(self._jvm_ended)
        self.send(SessionOpened(spark=self._engine.version, pid=os.getpid(), places=self._places.total))

    def _jvm_ended(self, code: int) -> None:
        """End this process: no query can go on or be started, and the gateway needs another driver."""
        if not self._ending:
            how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
            print(f"ERROR the JVM has ended ({how})", file=sys.stderr, flush=True)
            end_group(lambda: None, clean=False)  # the gateway is there, and removes what is its

    def _start(self, message: StartQuery) -> None:
        run = QueryThread(
            message.run,
            message.query,
            self._ready(),
            self._open_rows,
            self._places,
            self._run_reports,
        )
        self._begin(run)

    def _start_ranges(self, message: StartRangeQuery) -> None:
        ready, reports = self._ready(), self._run_reports
        self._begin(RangeThread(message.run, message.query, ready, self._open_rows, reports))

    def _begin(self, run: QueryThread | RangeThread) -> None:
        with self._runs_lock:
            self._runs[run.number] = run
        run.start()

    def _open_rows(self, run: int) -> RowsLink:
        return RowsLink(self._path, self._token, run)

    def _run_reports(self, message: Message) -> None:
        if isinstance(message, QueryEnded):
            with self._runs_lock:
                self._runs.pop(message.run, None)
        self.send(message)

    def _stop(self, message: StopQuery) -> None:
        with self._runs_lock:
            run = self._runs.get(message.run)
        if run is not None:
            run.stop()
        # Otherwise it has ended by itself, and QueryEnded was sent.

    def _analyse(self, message: AnalyseQuery) -> None:
        self.send(analyse(self._ready(), message.run, message.query, explain=message.explain))

    def _ready(self) -> Engine:
        if self._engine is None:
            raise WireError("a command before Open was answered")
        return self._engine

    @staticmethod
    def _in_thread(work: object, message: Message) -> None:
        threading.Thread(target=work, args=(message,), daemon=True).start()  # type: ignore[arg-type]


def end_group(leave: Callable[[], None], *, clean: bool) -> NoReturn:
    """End this process, its JVM and every worker of it, at once: what is committed is in the checkpoints.

    leave: what is to be done when the JVM is no more.
    """
    with suppress(OSError):  # what they lead to is gone
        sys.stdout.flush()
        sys.stderr.flush()
    child = jvm.process()
    if child is not None:
        child.kill()
    own = os.getpgrp() == os.getpid()  # else it is the group of another process, too
    if own:
        _end_others()
    if not clean:
        leave()
    if not clean and own:
        os.killpg(0, signal.SIGKILL)
    os._exit(0 if clean else 1)


def _end_others() -> None:
    """End all others of this group: the JVM, also one that is being started and not known here yet."""
    own = os.getpid()
    try:
        names = os.listdir("/proc")
    except FileNotFoundError:
        return  # another system: what is left ends with this process
    for name in names:
        if name.isdigit() and int(name) != own:
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(int(name)) == own:
                    os.kill(int(name), signal.SIGKILL)
