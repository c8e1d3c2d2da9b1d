"""Any source of the gateway as a stream of Spark: the format `kiwi_gateway`.

    register(spark)
    spark.readStream.format("kiwi_gateway").option("bridge", PATH).option("token", TOKEN)
         .option("source", "ticks").option("start", "earliest").load()

Theory of operation. Spark asks a process of its own (the planner) where the source is. That process reads up
to `max` events then and there and keeps them until Spark wants them, so an offset is only told when what
lies before it is there. An offset is `{"epoch": ..., "positions": ...}`: the gateway's positions in the JSON
form of the source, and the life of the source in which they mean something (empty where they always do). The
first one is what is configured, `{"start": "latest"}`: with `latest` the first batch has no rows and says
where that is, so that a crash within it cannot move it.

After a crash Spark asks new processes for what lies between two offsets. A source that can be read again
gives exactly that. Others give what their window still has; the rest is lost, which the gateway counts and
logs: at most once.

This runs in Python workers of Spark: it imports neither Trio nor anything of the gateway but the protocol.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, SimpleDataSourceStreamReader
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.types import StructType

from kiwi_spark.bridge_wire import Over, Read, Taken, events
from kiwi_spark.driver.bridge_client import Bridge, BridgeAway, BridgeRefused

FORMAT: Final = "kiwi_gateway"
SCHEMA: Final = "key BINARY, value BINARY, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"

_ARROW: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", tz="UTC")),
    ]
)

MAX_EVENTS: Final = 100_000
MAX_BYTES: Final = 128 * 1024 * 1024
"""What one batch has, at most."""

PATIENCE_SECONDS: Final = 60.0
"""How long a batch that must be repeated waits for events that do not come, before its query fails."""

_PAUSE_SECONDS = 0.5
_LOG_SECONDS = 60.0
_TAKE_EVENTS = 10_000
_LATER: Final = frozenset({"unknown_source", "failed", "ended", "removed", "altered", "changed"})
"""Codes of refusals that may be over when the gateway is asked again."""

Offset = dict[str, Any]


class EventsLost(Exception):  # noqa: N818
    """What must be read is gone, and the query is not to go on without it (`failOnDataLoss`)."""


def register(spark: SparkSession) -> None:
    """Make the format known to a session."""
    spark.dataSource.register(GatewaySource)


class GatewaySource(DataSource):
    """See the top of this file. Options:

    bridge, token: where the gateway listens, and what it must be shown. source: the id of the source.
    start: `latest` (default), `earliest` or ms since the epoch, without a checkpoint.
    max: most events of one batch (100,000); 0: whatever there is, for a query that runs once.
    failOnDataLoss: whether the query fails if a source that can be read again no longer has what it must
        read (default false: that is logged, and it goes on).
    patience: seconds to wait for events that a repeated batch must have (60).
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _Prefetching(GatewayReader(dict(self.options)))


class _Prefetching(_SimpleStreamReaderWrapper):
    """Spark's own way to keep what was read until it is wanted, which keeps every look that found nothing,
    too: one object for each trigger while the source is idle."""

    def latestOffset(self) -> Offset:  # noqa: N802
        before = self.current_offset
        end: Offset = super().latestOffset()
        if end == before:
            self.cache.pop()
        return end


class GatewayReader(SimpleDataSourceStreamReader):
    """Reads one source. It is copied to other processes, before it has connected."""

    def __init__(self, options: dict[str, str]) -> None:
        named = {name.lower(): value for name, value in options.items()}
        self._path, self._token, self._source = named["bridge"], named["token"], named["source"]
        start = named.get("start", "latest")
        self._start: str | int = start if start in ("latest", "earliest") else int(start)
        self._max = int(named.get("max", MAX_EVENTS))
        self._strict = named.get("failondataloss", "false").lower() == "true"
        self._patience = float(named.get("patience", PATIENCE_SECONDS))
        self._bridge: Bridge | None = None
        self._here: Offset | None = None  # where the open connection reads next
        self._said, self._said_at = "", 0.0

    # --- what Spark asks -------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"start": self._start}

    def read(self, start: Offset) -> tuple[Iterator[Any], Offset]:
        """What there is behind `start` now, at most `max` events, and where that ends."""
        try:
            return self._read(start)
        except BridgeAway as away:
            self._disconnect()
            self._log(f"{away}; the query waits")
        except BridgeRefused as refused:
            if refused.code not in _LATER:
                raise self._lost(refused) from refused
            self._log(f"{self._source!r} cannot be read now ({refused}); the query waits")
        return iter([]), start

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[Any]:  # noqa: N802
        """Exactly what a batch had that Spark repeats, or what is left of it."""
        if start.get("start") == "latest":
            return
        wish = self._between(start, end)
        give_up_at = time.monotonic() + self._patience
        while wish.start != end["positions"]:
            try:
                with Bridge(self._path, self._token) as bridge:
                    epoch = bridge.read(wish).epoch
                    while not isinstance(answer := bridge.take(_TAKE_EVENTS), Over):
                        taken, data = answer
                        self._check(taken, epoch)
                        if taken.positions != wish.start:
                            give_up_at = time.monotonic() + self._patience
                        # From there on, should the connection be lost: nothing is read twice.
                        wish = self._between({"epoch": epoch, "positions": taken.positions}, end)
                        if data:
                            yield _rows(data)
                        if time.monotonic() > give_up_at:
                            break
                if isinstance(answer, Over) and answer.reason == "until":
                    return
                trouble = f"the gateway does not give all of {self._source!r}"
            except BridgeRefused as refused:
                if refused.code == "gone":
                    return  # the gateway has counted and logged it
                if refused.code == "ended" or refused.code not in _LATER:
                    raise self._lost(refused) from refused
                trouble = f"the gateway does not give {self._source!r}: {refused}"
            except BridgeAway as away:
                trouble = str(away)
            if time.monotonic() > give_up_at:
                raise BridgeAway(trouble)
            self._log(f"{trouble}; the query waits")
            time.sleep(_PAUSE_SECONDS)

    def commit(self, end: Offset) -> None:
        """Nothing to do: the gateway keeps no place for anybody."""

    def stop(self) -> None:
        self._disconnect()

    # --- reading ---------------------------------------------------------------------------

    def _read(self, start: Offset) -> tuple[Iterator[Any], Offset]:
        bridge, here, end = self._connected(start)
        if self._max == 0:
            goal = {"epoch": here["epoch"], "positions": end}
            self._here = None
            return iter(list(self.readBetweenOffsets(here, goal))), goal
        rows: list[pa.RecordBatch] = []
        count = size = 0
        more = start.get("start") != "latest"
        while more and count < self._max and size < MAX_BYTES:
            try:
                answer = bridge.take(min(_TAKE_EVENTS, self._max - count))
            except BridgeAway:
                if not rows:
                    raise
                self._disconnect()  # what was read was read; the next look says that the gateway is away
                break
            if isinstance(answer, Over):
                self._log(f"{self._source!r} has ended for now: {answer.message}")
                self._disconnect()
                break
            taken, data = answer
            self._check(taken, here["epoch"])
            if data:
                rows.append(_rows(data))
                count += taken.events
                size += len(data)
            here = {"epoch": here["epoch"], "positions": taken.positions}
            more = bool(data or taken.lost) and not taken.end
        if self._bridge is not None:
            self._here = here
        return iter(rows), here

    def _connected(self, start: Offset) -> tuple[Bridge, Offset, Any]:
        """A connection that reads on from `start`; where that is now, and where the source ends."""
        if self._bridge is not None and start == self._here and self._max:
            return self._bridge, start, None
        if self._bridge is None:
            self._bridge = Bridge(self._path, self._token)
        self._here = None
        reading = self._bridge.read(
            Read(
                source=self._source,
                start=start["start"] if "start" in start else start["positions"],
                epoch=start.get("epoch", ""),
                strict=self._strict,
            )
        )
        return self._bridge, {"epoch": reading.epoch, "positions": reading.positions}, reading.end

    def _between(self, start: Offset, end: Offset) -> Read:
        begin: Any = start["start"] if "start" in start else start["positions"]
        if "start" not in start and start["epoch"] != end["epoch"]:
            begin = "earliest"  # the source began anew within this batch
        return Read(
            source=self._source,
            start=begin,
            until=end["positions"],
            epoch=end["epoch"],
            strict=self._strict,
        )

    def _check(self, taken: Taken, epoch: str) -> None:
        """Whether the query may go on without what was lost. The gateway has logged and counted it."""
        if self._strict and not epoch and (taken.lost or taken.count != 0):
            raise EventsLost(f"events of {self._source!r} are gone: {taken.lost}")

    def _lost(self, refused: BridgeRefused) -> Exception:
        if refused.code in ("positions", "ended"):
            return EventsLost(f"events of {self._source!r} are gone: {refused}")
        return refused

    def _disconnect(self) -> None:
        if self._bridge is not None:
            self._bridge.close()
        self._bridge = self._here = None

    def _log(self, message: str) -> None:
        """To the driver's log; the same again only after a minute."""
        now = time.monotonic()
        if message != self._said or now - self._said_at >= _LOG_SECONDS:
            self._said, self._said_at = message, now
            print(f"kiwi_gateway: {message}", file=sys.stderr, flush=True)


def _rows(data: bytes) -> pa.RecordBatch:
    columns = list(zip(*events(data), strict=True))
    columns[4] = tuple(stamp * 1000 if stamp >= 0 else None for stamp in columns[4])
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
