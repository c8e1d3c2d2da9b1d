"""A driver without Spark: speaks `protocol/messages.py`, and does what the text of the query says (JSON).

Its checkpoint is a file per source, written after an ACK as Spark does. A batch that is repeated has its rows
in another order. What a query's text may say (all optional):

    batches, rows: how many, of how many rows each. part: rows of one ROWS message.
    kill: [[batch, point], ...]: die once at `before`, `within`, `after` (the rows), `end` (before the ACK) or
        `acked` (before the checkpoint is written). drop: the same, but only the connection for rows is lost.
    trouble: [batch, trouble, times, message]: end with this trouble instead of that batch, so often.
    stuck: [batch, point]: end with the trouble `user` there, every time.
    deadly: the driver dies when it is to run the query. fail: the query cannot start. over: end after the
        last batch. bad: bad records of every batch; state_rows, state_bytes, late, behind and
        watermark: likewise. members: what the rows are made of.
    together: an analysis is answered when so many were asked for.
    Of a query over ranges: batches, rows, deadly, fail; kill: only `within`, every time; trouble: [trouble,
        message], after the last batch; bytes: of every row; waits: it does nothing until it is stopped.
    real_time: the query runs in real time over one topic (input `a`) of two partitions: `batches` epochs of
        `rows` records each. Record n makes n % 3 rows. begin: the offset of both partitions with a checkpoint
        that is new.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kiwi_spark.protocol.messages import (
    VERSION,
    AnalyseQuery,
    BatchProgress,
    BatchRows,
    BatchTaken,
    BeginBatch,
    BeginEpoch,
    EndBatch,
    EndEpoch,
    Hello,
    Message,
    MessageReader,
    OpenSession,
    PlacedRows,
    QueryAnalysed,
    QueryEnded,
    QueryIdle,
    QueryStarted,
    SessionOpened,
    StartQuery,
    StartRangeQuery,
    StopQuery,
    frame_of,
)
from kiwi_spark.protocol.packed_rows import pack
from kiwi_spark.protocol.query_spec import QuerySpec


class Wire:
    def __init__(self, role: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(sys.argv[1])
        self._reader = MessageReader()
        self._waiting: list[Message] = []
        self._lock = threading.Lock()
        self.send(Hello(version=VERSION, token=TOKEN, role=role))

    def send(self, message: Message) -> None:
        with self._lock:
            self._socket.sendall(frame_of(message))

    def receive(self) -> Message | None:
        while not self._waiting:
            data = self._socket.recv(65536)
            if not data:
                return None
            self._waiting = self._reader.feed(data)
        return self._waiting.pop(0)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Checkpoint:
    def __init__(self, query: QuerySpec) -> None:
        self.path = Path(query.checkpoint) / f"{query.source}.json"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            self.state: dict[str, Any] = {"query": f"q{random.getrandbits(64):x}", "next": 0, "done": []}
            self.write()
        self.state = json.loads(self.path.read_text())

    def write(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.state))
        new.replace(self.path)

    def once(self, what: str, times: int = 1) -> bool:
        if self.state["done"].count(what) >= times:
            return False
        self.state["done"].append(what)
        self.write()
        return True


class StuckError(Exception):
    """What the plan calls `stuck`."""


class LostError(Exception):
    """The connection for rows is to be lost."""


def packed(values: list[int], places: list[int] | None = None) -> bytes:
    texts = [json.dumps({"n": value}).encode() for value in values]
    return pack(texts, [json.dumps({"k": value % 3}).encode() for value in values], places)


def parts(plan: dict[str, Any], batch: int) -> Iterator[list[int]]:
    rows = plan.get("rows", 5)
    values = list(range(batch * rows, (batch + 1) * rows))
    random.shuffle(values)
    size = plan.get("part", 3)
    for at in range(0, rows, size):
        yield values[at : at + size]


class AnyRun:
    """One run of a query, in a thread of its own."""

    def __init__(self, control: Wire, number: int, sql: str | None) -> None:
        self.control = control
        self.number = number
        self.plan: dict[str, Any] = json.loads(sql or "{}")
        self.stopped = threading.Event()
        self.ended = threading.Lock()
        threading.Thread(target=self.go, daemon=True).start()

    def end(self, trouble: Any = None, message: str = "") -> None:
        if self.ended.acquire(blocking=False):
            self.control.send(QueryEnded(run=self.number, error_kind=trouble, message=message))

    def go(self) -> None:
        raise NotImplementedError


class Run(AnyRun):
    def __init__(self, control: Wire, message: StartQuery) -> None:
        self.query = message.query
        super().__init__(control, message.run, message.query.sql)

    def go(self) -> None:
        if "deadly" in self.plan:
            os.kill(os.getpid(), signal.SIGKILL)
        if "fail" in self.plan:
            self.end(*self.plan["fail"])
            return
        self.checkpoint = checkpoint = Checkpoint(self.query)
        batch = checkpoint.state["next"]
        size, real_time = self.plan.get("rows", 5), self.plan.get("real_time", False)
        offset = self.plan.get("begin", 0) + batch * size
        begin = dict.fromkeys(range(self.plan.get("partitions", 2)), offset) if real_time else {}
        notes = [f"fresh: {self.query.fresh}"]
        self.control.send(
            QueryStarted(
                run=self.number,
                query=checkpoint.state["query"],
                next_batch=batch,
                notes=notes,
                members=self.plan.get("members", ""),
                real_time=real_time,
                begin={"a": begin} if real_time else {},
                end={"a": dict.fromkeys(begin, self.plan.get("end", offset))},
                had={"a": {int(p): place for p, place in self.plan.get("had", {}).items()}},
            )
        )
        rows = Wire(str(self.number))
        try:
            while True:
                trouble = self.plan.get("trouble", [-1, "", 0])
                if trouble[0] == batch and checkpoint.once(f"trouble {batch}", trouble[2]):
                    rows.close()
                    self.end(trouble[1], (trouble[3:] or ["a user function raised"])[0])
                    return
                if batch >= self.plan.get("batches", 3):
                    break
                if real_time:
                    self.stream(rows, batch, self.plan.get("begin", 0) + batch * size)
                else:
                    self.bring(rows, batch)
                self.at(batch, "acked")
                checkpoint.state["next"] = batch = batch + 1
                checkpoint.write()
                progress = BatchProgress(
                    run=self.number,
                    batch=batch - 1,
                    input_rows=9,
                    seconds=0.1,
                    bad=self.plan.get("bad", 0),
                    bad_sample="{",
                    state_rows=self.plan.get("state_rows", 0),
                    state_bytes=self.plan.get("state_bytes", 0),
                    late=self.plan.get("late", 0),
                    behind=self.plan.get("behind"),
                    phases={"addBatch": 0.5, "walCommit": 0.25, "commitOffsets": 0.25},
                    watermark=self.plan.get("watermark"),
                )
                self.control.send(progress)
        except (LostError, OSError, StuckError) as error:
            rows.close()
            self.end("user" if isinstance(error, StuckError) else "gone", repr(error))
            return
        if self.plan.get("over"):
            rows.close()
            self.end()
        else:
            self.control.send(QueryIdle(run=self.number))
        self.stopped.wait()
        rows.close()
        self.end()

    def bring(self, rows: Wire, batch: int) -> None:
        self.at(batch, "before")
        query = self.plan.get("query", self.checkpoint.state["query"])
        rows.send(BeginBatch(query=query, batch=batch, timestamp=time.time_ns() // 1_000_000))
        total = 0
        for values in parts(self.plan, batch):
            rows.send(BatchRows(rows=packed(values)))
            total += len(values)
            self.at(batch, "within")
        self.at(batch, "after")
        rows.send(EndBatch(rows=total))
        self.at(batch, "end")
        answer = rows.receive()
        if not isinstance(answer, BatchTaken) or answer.batch != batch:
            raise LostError(f"{answer} for batch {batch}")

    def stream(self, rows: Wire, epoch: int, first: int) -> None:
        """Bring the rows of an epoch as they come, record by record, of both partitions in turns."""
        self.at(epoch, "before")
        rows.send(BeginEpoch())
        for offset in range(first, first + self.plan.get("rows", 5)):
            for partition in range(self.plan.get("partitions", 2)):
                places = [offset * 2**20 + row for row in range(offset % 3)]
                found = packed([offset * 10 + row for row in range(offset % 3)], places)
                now = time.time_ns() // 1_000_000
                if places:
                    rows.send(PlacedRows(input=0, partition=partition, timestamp=now, rows=found))
            self.at(epoch, "within")
        self.at(epoch, "after")
        rows.send(EndEpoch(epoch=epoch))
        self.at(epoch, "end")
        answer = rows.receive()
        if not isinstance(answer, BatchTaken) or answer.batch != epoch:
            raise LostError(f"{answer} for epoch {epoch}")

    def at(self, batch: int, point: str) -> None:
        if [batch, point] in self.plan.get("kill", []) and self.checkpoint.once(f"kill {batch} {point}"):
            os.kill(os.getpid(), signal.SIGKILL)
        if [batch, point] in self.plan.get("drop", []) and self.checkpoint.once(f"drop {batch} {point}"):
            raise LostError(f"dropped at {batch} {point}")
        if [batch, point] == self.plan.get("stuck"):
            raise StuckError(f"stuck at {batch} {point}")


class RangeRun(AnyRun):
    """Runs a query over ranges."""

    def go(self) -> None:
        if "fail" in self.plan:
            self.end(*self.plan["fail"])
            return
        if "deadly" in self.plan:
            os.kill(os.getpid(), signal.SIGKILL)
        self.control.send(QueryStarted(run=self.number, query="q", next_batch=0))
        if "waits" in self.plan:
            self.stopped.wait()
            self.end()
            return
        rows, size = Wire(str(self.number)), self.plan.get("rows", 5)
        for batch in range(self.plan.get("batches", 1)):
            rows.send(BeginBatch(query="q", batch=batch, timestamp=1_000 + batch))
            values = [b'{"n":%d}' % n for n in range(batch * size, (batch + 1) * size)]
            texts = [value.ljust(self.plan.get("bytes", 0)) for value in values]
            rows.send(BatchRows(rows=pack(texts, [b'{"k":1}'] * size)))
            if [batch, "within"] in self.plan.get("kill", []):
                os.kill(os.getpid(), signal.SIGKILL)
            rows.send(EndBatch(rows=size))
            if not isinstance(rows.receive(), BatchTaken):
                return
        rows.close()
        self.end(*self.plan.get("trouble", []))


def analysed(message: AnalyseQuery) -> QueryAnalysed:
    if '"dies"' in message.query.sql:
        os.kill(os.getpid(), signal.SIGKILL)
    if '"breaks"' in message.query.sql:
        return QueryAnalysed(run=message.run, error="StackOverflowError: null", error_kind="gone")
    if "nonsense" in message.query.sql:
        return QueryAnalysed(
            run=message.run, error="[PARSE_SYNTAX_ERROR] near 'nonsense'", error_kind="query", line=2
        )
    if "unreachable" in message.query.sql:
        return QueryAnalysed(run=message.run, error="TimeoutException: no node", error_kind="unreachable")
    if "real time" in message.query.sql:
        return QueryAnalysed(run=message.run, columns=[("n", "bigint")], real_time=True, partitions=3)
    if "batches" in message.query.sql:
        why = "it keeps state"
        return QueryAnalysed(run=message.run, columns=[("n", "bigint")], batches_because=why)
    plan = "a plan" if message.explain else ""
    return QueryAnalysed(run=message.run, columns=[("n", "bigint")], schemas={"a": "n BIGINT"}, plan=plan)


def main() -> None:
    mode = os.environ.get("FAKE_DRIVER", "")
    if mode == "silent":
        time.sleep(60)
    if mode == "import":
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    if mode == "exit":
        print("WARN this driver has no wish to live", file=sys.stderr)
        sys.exit(3)
    if mode == "child":
        subprocess.Popen(["sleep", "60"])
    control = Wire("control" if mode != "stranger" else "control ")
    runs: dict[int, Run | RangeRun] = {}
    asked: list[AnalyseQuery] = []
    print("the fake driver is there", flush=True)
    while (message := control.receive()) is not None:
        if isinstance(message, OpenSession):
            control.send(SessionOpened(spark="4.2.0-fake", pid=os.getpid(), places=4))
        elif isinstance(message, StartQuery):
            runs[message.run] = Run(control, message)
        elif isinstance(message, StartRangeQuery):
            runs[message.run] = RangeRun(control, message.run, message.query.sql)
        elif isinstance(message, StopQuery):
            runs[message.run].end()
            runs[message.run].stopped.set()
        elif isinstance(message, AnalyseQuery):
            asked.append(message)
            plan = json.loads(message.query.sql) if message.query.sql.startswith("{") else {}
            if len(asked) >= plan.get("together", 1):
                for one in asked:
                    control.send(analysed(one))
                asked.clear()
    os.killpg(0, signal.SIGKILL)


TOKEN = os.environ.pop("KIWI_SPARK_TOKEN")

if __name__ == "__main__":
    main()
