"""The gateway's side of the protocol, for tests of a real driver process: blocking, and with a patience."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, TypeVar

from kiwi_spark.java.classes import jars_conf
from kiwi_spark.protocol.messages import (
    VERSION,
    AnalyseQuery,
    BatchRows,
    BatchTaken,
    BeginBatch,
    EndBatch,
    Hello,
    Message,
    MessageReader,
    OpenSession,
    QueryAnalysed,
    QueryEnded,
    QueryStarted,
    SessionFailed,
    SessionOpened,
    StartQuery,
    StopQuery,
    frame_of,
)
from kiwi_spark.protocol.packed_rows import PackedRows
from kiwi_spark.protocol.query_spec import QuerySpec, SessionSpec
from tests.integration.spark.shared_classes import small_jvm

_Kind = TypeVar("_Kind", bound=Message)
_PATIENCE = 100.0
_TOKEN = "token-of-a-test"

runs = itertools.count(1)
"""Numbers for runs: the driver that all tests share must not hear one twice."""


def usual_session() -> SessionSpec:
    """A small Spark that reads Kafka and finds the pipelines of the tests."""
    conf = {
        **jars_conf(),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": small_jvm(),
    }
    folder = str(Path(__file__).parent)
    return SessionSpec(master="local[2]", conf=conf, python_path=[folder], real_time_partitions=1)


class Talk:
    """One connection: messages in, messages out."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(_PATIENCE)
        self._socket = connection
        self._reader = MessageReader()
        self._came: list[Message] = []
        self.hello = self.expect(Hello)

    def next(self) -> Message:
        while not self._came:
            data = self._socket.recv(65536)
            if not data:
                raise EOFError
            self._came += self._reader.feed(data)
        return self._came.pop(0)

    def expect(self, kind: type[_Kind], **fields: object) -> _Kind:
        """The next message of the kind with these fields; others are passed over."""
        while True:
            message = self.next()
            wanted = all(getattr(message, name, None) == value for name, value in fields.items())
            if isinstance(message, kind) and wanted:
                return message

    def say(self, message: Message) -> None:
        self._socket.sendall(frame_of(message))

    def close(self) -> None:
        self._socket.close()


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


class RowsTalk(Talk):
    def batch(self, *, ack: bool = True) -> tuple[BeginBatch, list[dict[str, Any]]]:
        """A whole batch."""
        begin = self.next()
        assert isinstance(begin, BeginBatch), begin
        rows: list[dict[str, Any]] = []
        while isinstance(message := self.next(), BatchRows):
            packed = PackedRows(message.rows)
            columns = (packed.keys(0, packed.count), packed.values(0, packed.count))
            rows += [{"key": _text(key), "value": _text(value)} for key, value in zip(*columns, strict=True)]
        assert message == EndBatch(rows=len(rows))
        if ack:
            self.say(BatchTaken(batch=begin.batch))
        return begin, rows


class DriverPeer:
    """A driver process and our end of its connections."""

    def __init__(self, session: SessionSpec) -> None:
        self._folder = tempfile.TemporaryDirectory()
        path = f"{self._folder.name}/socket"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._listener.settimeout(_PATIENCE)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kiwi_spark.driver", path],
            env={
                **os.environ,
                "KIWI_SPARK_TOKEN": _TOKEN,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            start_new_session=True,
            cwd=Path(self._folder.name),
        )
        self._rows: list[RowsTalk] = []
        self.control = Talk(self._listener.accept()[0])
        self.control.say(OpenSession(session=session))
        answer = self.control.next()
        assert not isinstance(answer, SessionFailed), answer.message
        assert isinstance(answer, SessionOpened)

    def start(self, run: int, query: QuerySpec) -> tuple[QueryStarted, RowsTalk]:
        """Runs a query that starts; the rows connection is not there with a sink."""
        self.control.say(StartQuery(run=run, query=query))
        while True:
            message = self.control.next()
            if isinstance(message, QueryStarted) and message.run == run:
                break
            assert not (isinstance(message, QueryEnded) and message.run == run), message
        return message, self.accept(run)

    def accept(self, run: int) -> RowsTalk:
        """The connection on which the rows of a run come."""
        rows = self._accept()
        while rows.hello != Hello(
            version=VERSION, token=_TOKEN, role=str(run)
        ):  # of a run that came to nothing
            rows = self._accept()
        return rows

    def _accept(self) -> RowsTalk:
        rows = RowsTalk(self._listener.accept()[0])
        self._rows.append(rows)
        return rows

    def ended(self, run: int) -> QueryEnded:
        return self.control.expect(QueryEnded, run=run)

    def fail(self, run: int, query: QuerySpec) -> QueryEnded:
        """Runs a query that does not go well."""
        self.control.say(StartQuery(run=run, query=query))
        return self.ended(run)

    def stop(self, run: int) -> QueryEnded:
        self.control.say(StopQuery(run=run))
        return self.ended(run)

    def analyse(self, query: QuerySpec, *, explain: bool = False) -> QueryAnalysed:
        self.control.say(AnalyseQuery(run=0, query=query, explain=explain))
        return self.control.expect(QueryAnalysed)

    def kill(self) -> None:
        """As a crash would."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """The gateway goes away; returns when the driver has, too."""
        for rows in self._rows:
            rows.close()
        self.control.close()
        self._listener.close()
        self.process.wait(_PATIENCE)
        self._folder.cleanup()
