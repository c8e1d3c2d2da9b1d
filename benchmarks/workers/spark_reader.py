"""A client of a Spark source: it only receives while Spark works, and looks at what it has when that is over.

Settings: host, port, path, source; query (a name of `spark_queries`), records (of which results are to come),
warm (those of them that are a warm-up), seconds (until the source must run), checkpoints (the folder of the
source's).

Says `ready` when subscribed, `warm` and `done` (the time) when the results of the warm-up, and all, are
there, then `result`. On `stop` before that it stops and says `done`, and has read a part.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from array import array
from bisect import bisect_right
from pathlib import Path
from typing import Any, TextIO

import msgspec

from benchmarks.frames import CLOSE, PING, bounds, masked, masked_pong, upgrade
from benchmarks.latency import Around, Delays
from benchmarks.protocols import WORDS
from benchmarks.spark_queries import QUERIES, Row, SparkQuery, Value, faults_of_places
from benchmarks.workers import child

EVENT = WORDS["kiwi"].event
_RECEIVE_BYTES = 256 * 1024
_SURPLUS_SECONDS = 0.3
"""How long to wait for events that should not come."""


class _Event(msgspec.Struct):
    data: Row


_decode = msgspec.json.Decoder(_Event).decode


class Counted:
    """Measure how far the results are, by their number."""

    def __init__(self, query: SparkQuery) -> None:
        assert query.rows is not None
        self._rows = query.rows
        self._seen = 0
        self._at = 0

    def needed(self, records: int) -> int:
        return self._rows(records)

    def look(self, data: bytearray) -> int:
        """Return how many events there are."""
        self._seen += data.count(EVENT, self._at)
        self._at = max(0, len(data) - len(EVENT) + 1)
        return self._seen


class Grouped:
    """Measure how far the results are, by how many records their newest rows stand for."""

    def __init__(self) -> None:
        self._latest: dict[tuple[int, int], int] = {}
        self._sum = 0
        self._at = 0

    def needed(self, records: int) -> int:
        return records

    def add(self, value: Value) -> int:
        """Add a row. Returns how many records there are now."""
        group = value.hour, value.delay
        self._sum += value.flights - self._latest.get(group, 0)
        self._latest[group] = value.flights
        return self._sum

    def look(self, data: bytearray) -> int:
        """Return how many records they stand for."""
        while (found := bounds(data, self._at)) is not None:
            begin, self._at = found
            if data.startswith(EVENT, begin):
                self.add(_decode(data[begin : self._at]).data.value)
        return self._sum


class Client:
    """Hold what a client got. data: all that came behind the SUBSCRIBE_OK. ends, times: how much there was
    after each receive, and when that was (ns)."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._source = settings["source"]
        self._sock = socket.create_connection((settings["host"], settings["port"]), settings["seconds"])
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(_RECEIVE_BYTES)
        self.data = bytearray()
        self.ends = array("q")
        self.times = array("q")
        self.closed = False
        self._subscribe(settings)

    def _subscribe(self, settings: dict[str, Any]) -> None:
        sock = self._sock
        sock.sendall(upgrade(settings["host"], settings["port"], settings["path"]))
        got = b""
        while b"\r\n\r\n" not in got:
            got += self._more()
        got = got.partition(b"\r\n\r\n")[2]
        # From the window's beginning: the first batch may be there as soon as the source runs.
        wish = {"type": "SUBSCRIBE", "sourceId": self._source, "mode": "push", "from": "earliest"}
        sock.sendall(masked(wish))
        while True:
            found = bounds(got, 0)
            if found is None:
                got += self._more()
                continue
            begin, end = found
            frame, kind = got[begin:end], got[0] & 0xF
            got = got[end:]
            if kind == PING:
                sock.sendall(masked_pong(frame))
            elif b'"SUBSCRIBE_OK"' in frame:
                break
            elif b'"NOTICE"' not in frame:
                raise SystemExit(f"SUBSCRIBE was answered with {frame!r}")
        self.data += got
        sock.setblocking(False)

    def _more(self) -> bytes:
        data = self._sock.recv(65_536)
        if not data:
            raise SystemExit("the server has closed the connection")
        return data

    def receive(self, stop: TextIO, seconds: float | None = None) -> bool:
        """Take what comes next. False: nothing came in that time, it is over, or `stop` is readable."""
        mine = self._sock.fileno()
        readable, _, _ = select.select([mine, stop.fileno()], [], [], seconds)
        if mine not in readable:
            return False
        taken = self._sock.recv_into(self._buffer)
        if not taken:
            self.closed = True
            return False
        self.times.append(time.monotonic_ns())
        self.data += memoryview(self._buffer)[:taken]
        self.ends.append(len(self.data))
        return True


def main() -> None:
    settings = child.settings()
    query = QUERIES[settings["query"]]
    client = Client(settings)
    progress = Grouped() if query.rows is None else Counted(query)
    child.say(ready=True)
    going, marks = True, dict[str, int]()
    have = progress.look(client.data)
    for name, records in (("warm", settings["warm"]), ("done", settings["records"])):
        while going and have < progress.needed(records):
            going = client.receive(sys.stdin)
            have = progress.look(client.data)
        at, cpu = (client.times[-1] / 1e9 if client.times else child.now()), time.process_time()
        marks[name] = len(client.data)
        child.say(**{name: at}, cpu=round(cpu, 2), all=going)
    while going and client.receive(sys.stdin, _SURPLUS_SECONDS):
        pass
    child.say(result=_result(client, query, settings, marks["warm"], whole=going))
    child.wait_word()


def _result(
    client: Client, query: SparkQuery, settings: dict[str, Any], mark: int, *, whole: bool
) -> dict[str, Any]:
    """Return what the events say. delivery: ms from the end of a batch in Spark to its rows here, fresh: from
    the making of a record, both behind the warm-up, which had ended when so much data was there (`mark`)."""
    rows, ends, control = _rows(client.data)
    faults = faults_of_places(rows)
    if client.closed:
        faults.append("the server has closed the connection")
    if whole:
        faults += query.check([row.value for row in rows], settings["records"])
    delivery, fresh, around = Delays(), Delays(), Around(Path(settings["checkpoints"]))
    first = bisect_right(ends, mark)
    if query.rows is not None:  # some of the next ones may have come with the last of the warm-up
        first = min(len(rows), query.rows(settings["warm"]))
    wall = time.time_ns() - time.monotonic_ns()
    batches = set()
    for row, end in list(zip(rows, ends, strict=True))[first:]:
        # The receive in which the row was complete; what came with the SUBSCRIBE_OK counts for the first one.
        index = bisect_right(client.ends, end - 1)
        at = client.times[index]
        delivery.add(at + wall, [row.timestamp * 1_000_000])
        batches.add(row.batch)
        if row.value.t:
            fresh.add(at, [row.value.t])
            around.add(at, row.value.t)
    return {
        "events": len(rows),
        "measured": len(rows) - first,
        "bytes": len(client.data),
        "receives": len(client.ends),
        "batches": len(batches),
        "control": control,
        "faults": faults,
        "delivery": delivery.said(),
        "fresh": fresh.said(),
        "around": around.said(),
    }


def _rows(data: bytearray) -> tuple[list[Row], list[int], dict[str, int]]:
    """Return all rows, where each ends, and how many frames were not rows, by type."""
    rows: list[Row] = []
    ends: list[int] = []
    control: dict[str, int] = {}
    at = 0
    view = memoryview(data)
    while (found := bounds(data, at)) is not None:
        kind = data[at] & 0xF
        begin, at = found
        if data.startswith(EVENT, begin):
            rows.append(_decode(view[begin:at]).data)
            ends.append(at)
        else:
            name = {PING: "ping", CLOSE: "close"}.get(kind, bytes(view[begin : begin + 60]).decode())
            control[name] = control.get(name, 0) + 1
    return rows, ends, control


if __name__ == "__main__":
    main()
