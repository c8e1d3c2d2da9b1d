"""Does what the gateway says on the control connection."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from kiwi_spark.driver import jvm
from kiwi_spark.driver.analyse import analyse
from kiwi_spark.driver.batches import RowsLink
from kiwi_spark.driver.queries import Run
from kiwi_spark.driver.session import Engine, open_engine
from kiwi_spark.frames import FrameReader, Message, WireError
from kiwi_spark.wire import FRAMES, VERSION, Analyse, Ended, Failed, Hello, Open, Opened, Start, Stop

_RECEIVE = 65536


class Driver:
    """One control connection, its session and its runs. Every command is carried out in its own thread, so
    that one that takes long holds up no other."""

    def __init__(self, path: str, token: str) -> None:
        self._path = path
        self._token = token
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._send_lock = threading.Lock()
        self._runs: dict[int, Run] = {}
        self._runs_lock = threading.Lock()
        self._engine: Engine | None = None
        self._told_to_end = False

    def serve(self) -> bool:
        """Returns when the connection has ended: True if `end` was called. OSError: there is no gateway."""
        self._socket.connect(self._path)
        self.tell(Hello(version=VERSION, token=self._token, role="control"))
        reader = FrameReader(FRAMES)
        try:
            while data := self._socket.recv(_RECEIVE):
                for message in reader.feed(data):
                    self._obey(message)
        except (OSError, WireError) as error:
            if not self._told_to_end:
                print(f"the connection to the gateway broke: {error}", file=sys.stderr, flush=True)
        return self._told_to_end

    def end(self) -> None:
        """Have `serve` return. For a signal handler."""
        self._told_to_end = True
        try:
            self._socket.shutdown(socket.SHUT_RD)
        except OSError:  # it has ended already
            return

    def tell(self, message: Message) -> None:
        """To the gateway; from any thread. What it can no longer be told is not told."""
        try:
            with self._send_lock:
                self._socket.sendall(FRAMES.encode(message))
        except OSError as error:
            print(f"the gateway is not there to be told: {error}", file=sys.stderr, flush=True)

    def _obey(self, message: Message) -> None:
        if isinstance(message, Open):  # which takes long, and meanwhile the gateway may go
            self._in_thread(self._open, message)
        elif isinstance(message, Start):
            self._start(message)
        elif isinstance(message, Stop):
            self._in_thread(self._stop, message)
        elif isinstance(message, Analyse):
            self._in_thread(self._analyse, message)
        else:
            raise WireError(f"{type(message).__name__} is nothing that a gateway says")

    def _open(self, message: Open) -> None:
        try:
            self._engine = open_engine(message.session)
        except Exception as error:  # noqa: BLE001  (told to the gateway)
            self.tell(Failed(message=str(error)))
            return
        jvm.watch(self._jvm_ended)
        self.tell(Opened(spark=self._engine.version, pid=os.getpid()))

    def _jvm_ended(self, code: int) -> None:
        """No query can go on or be started: the gateway needs another driver."""
        if not self._told_to_end:
            how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
            print(f"ERROR the JVM has ended ({how})", file=sys.stderr, flush=True)
            end_group(lambda: None, clean=False)  # the gateway is there, and removes what is its

    def _start(self, message: Start) -> None:
        run = Run(
            message.run,
            message.query,
            self._ready(),
            lambda role: RowsLink(self._path, self._token, role),
            self._token,
            self._run_told,
        )
        with self._runs_lock:
            self._runs[message.run] = run
        run.start()

    def _run_told(self, message: Message) -> None:
        if isinstance(message, Ended):
            with self._runs_lock:
                self._runs.pop(message.run, None)
        self.tell(message)

    def _stop(self, message: Stop) -> None:
        with self._runs_lock:
            run = self._runs.get(message.run)
        if run is not None:
            run.stop()
        # Otherwise it has ended by itself, and the gateway was told.

    def _analyse(self, message: Analyse) -> None:
        self.tell(analyse(self._ready(), message.run, message.query, self._token, explain=message.explain))

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
    with suppress(OSError):  # nobody listens any more
        sys.stdout.flush()
        sys.stderr.flush()
    child = jvm.process()
    if child is not None:
        child.kill()
    own = os.getpgrp() == os.getpid()  # nobody else's group
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
