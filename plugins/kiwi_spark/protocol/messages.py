"""The messages between gateway and driver over a Unix socket, and how they are written. Free of I/O.

Theory of operation. The gateway listens; the driver connects once for commands (`role: control`) and once
for every running query (`role`: the number of its run), from Java (`jvm/kiwigw/spark/GatewayLink.java`). For
every micro-batch it sends BeginBatch, any number of BatchRows, and EndBatch, and waits for BatchTaken before
the next one: that wait is the backpressure, Spark reads no further meanwhile. Of a query in real time it
sends BeginEpoch, PlacedRows as there are some, and EndEpoch, and waits for BatchTaken; what the gateway does
not read
from the socket holds the query.

A frame is the length of what follows (4 bytes, big-endian), and the message in MessagePack, with the name of
its class as a tag.
"""

from __future__ import annotations

import struct
from functools import reduce
from operator import or_
from typing import Final

import msgspec

from kiwi_spark.protocol.query_spec import ErrorKind, QuerySpec, SessionSpec
from kiwi_spark.protocol.range_query import RangeQuery

VERSION: Final = 2

FOLDER: Final = "kiwi-spark-"
"""How the name of the folder begins that has the gateway's socket, and all temporary files of the driver."""

TOKEN: Final = "KIWI_SPARK_TOKEN"  # noqa: S105  the name of an environment variable
"""Where a driver finds what it must say in `Hello`."""

GATEWAY: Final = "KIWI_SPARK_GATEWAY"
"""Where it finds the process id of the gateway, which may be gone before it could ask who its parent is."""

MAX_MESSAGE: Final = 16 * 1024 * 1024
"""Bytes of one message."""


class WireError(Exception):
    """What came is not this protocol: the connection cannot be used any further."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all messages."""


# --- both roles ---


class Hello(Message, frozen=True, kw_only=True):
    """The first message of every connection, from the driver. token: what it was started with.

    role: `control`, or the number of the run whose rows follow.
    """

    version: int
    token: str
    role: str


# --- control: gateway to driver ---


class OpenSession(Message, frozen=True, kw_only=True):
    """Make the session. Answered by SessionOpened or SessionFailed."""

    session: SessionSpec


class StartQuery(Message, frozen=True, kw_only=True):
    """Run a query. Answered by QueryStarted or QueryEnded. run: names this run in all answers."""

    run: int
    query: QuerySpec


class StartRangeQuery(Message, frozen=True, kw_only=True):
    """Run a query over ranges of topics, which ends by itself. Answered as StartQuery is."""

    run: int
    query: RangeQuery


class StopQuery(Message, frozen=True, kw_only=True):
    """Stop a run. Answered by QueryEnded, whatever state it is in."""

    run: int


class AnalyseQuery(Message, frozen=True, kw_only=True):
    """Have Spark analyse a query without running it. Answered by QueryAnalysed. explain: with the plan."""

    run: int
    query: QuerySpec
    explain: bool = False


# --- control: driver to gateway ---


class SessionOpened(Message, frozen=True, kw_only=True):
    """The session is there. spark: its version. places: partitions that may be read in real time at a
    time."""

    spark: str
    pid: int
    places: int = 0


class SessionFailed(Message, frozen=True, kw_only=True):
    """The session could not be made."""

    message: str


class QueryStarted(Message, frozen=True, kw_only=True):
    """The query runs. query: the id that its checkpoint carries. next_batch: the id of its next batch.

    notes: for the log, such as what became of an older checkpoint. members: as in `Publisher.describe`.
    real_time: whether its rows come with places, not in batches. begin, end: of each of its topics, by the
    name of the input, the next offset of every partition: where it reads on, and where the topic ended a
    moment ago. had: record and row behind the last row that was made of each partition, below `begin`.
    """

    run: int
    query: str
    next_batch: int
    notes: list[str] = msgspec.field(default_factory=list)
    members: str = ""
    real_time: bool = False
    begin: dict[str, dict[int, int]] = {}
    end: dict[str, dict[int, int]] = {}
    had: dict[str, dict[int, tuple[int, int]]] = {}


class BatchProgress(Message, frozen=True, kw_only=True):
    """What Spark said of one micro-batch. watermark: ms since the epoch, None without one.

    bad_because: what of `bad_sample` does not fit, where that is known. late: rows that came behind the
    watermark, so that a stateful operator left them out. behind: events between what the batch has read and
    the newest, of the partition that has most of them; None if unknown. state_bytes: memory of the state.
    phases: seconds by Spark's names (`durationMs`).
    """

    run: int
    batch: int
    input_rows: int
    seconds: float
    bad: int = 0
    bad_sample: str = ""
    bad_because: str = ""
    state_rows: int = 0
    state_bytes: int = 0
    late: int = 0
    behind: int | None = None
    phases: dict[str, float] = msgspec.field(default_factory=dict)
    watermark: int | None = None


class QueryIdle(Message, frozen=True, kw_only=True):
    """The query has looked for new input, and there was none."""

    run: int


class QueryReads(Message, frozen=True, kw_only=True):
    """A query whose rows have places, and go to a topic, reads its input. writes: and has written rows that
    were not there."""

    run: int
    writes: bool = False


class QueryEnded(Message, frozen=True, kw_only=True):
    """The run is over. error_kind: None if it ended by itself or was stopped. message: Spark's words."""

    run: int
    error_kind: ErrorKind | None = None
    message: str = ""


class QueryAnalysed(Message, frozen=True, kw_only=True):
    """error: Spark's message, empty if the query is right; error_kind: of which kind; line: where in the SQL,
    from 1, or 0. where: the key of the source that it is about, as a path (and `line` is within that); empty:
    the query.

    columns: the result's, as (name, Spark SQL type). schemas: what was inferred, by input. plan: if asked.
    real_time: whether it would run in real time, and partitions: how many it would read then (0: Kafka has
    not said). batches_because: why it would run in micro-batches, where it does not say so itself.
    """

    run: int
    error: str = ""
    error_kind: ErrorKind | None = None
    line: int = 0
    where: list[str] = msgspec.field(default_factory=list)
    columns: list[tuple[str, str]] = msgspec.field(default_factory=list)
    schemas: dict[str, str] = msgspec.field(default_factory=dict)
    notes: list[str] = msgspec.field(default_factory=list)
    plan: str = ""
    real_time: bool = False
    partitions: int = 0
    batches_because: str = ""


# --- rows ---


class BeginBatch(Message, frozen=True, kw_only=True):
    """A batch of a query follows. query: as in QueryStarted. timestamp: when it was computed (ms)."""

    query: str
    batch: int
    timestamp: int


class BatchRows(Message, frozen=True, kw_only=True):
    """A part of the batch. rows: as `packed_rows` says, without places."""

    rows: bytes


class EndBatch(Message, frozen=True, kw_only=True):
    """The batch is complete. rows: how many it has."""

    rows: int


class BeginEpoch(Message, frozen=True, kw_only=True):
    """A query in real time has begun to read. (It ends an epoch to note where it is, and begins another.)"""


class PlacedRows(Message, frozen=True, kw_only=True):
    """Rows of one partition of an input, in its order. input: its number among the query's streams.
    timestamp: when they were computed (ms). rows: as `packed_rows` says, with places
    (`gateway/positions.py`)."""

    input: int
    partition: int
    timestamp: int
    rows: bytes


class EndEpoch(Message, frozen=True, kw_only=True):
    """All rows of the epoch were sent, and what they were made of is about to be noted as done."""

    epoch: int


class BatchTaken(Message, frozen=True, kw_only=True):
    """Gateway to driver: the batch (or epoch) was taken, or had been before. Spark may go on."""

    batch: int


_LENGTH: Final = struct.Struct(">I")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(reduce(or_, Message.__subclasses__())).decode


def frame_of(message: Message) -> bytes:
    """Write a message as one frame. WireError if it is too large."""
    body = _encode(message)
    if len(body) > MAX_MESSAGE:
        raise WireError(f"{type(message).__name__} of {len(body)} bytes is larger than {MAX_MESSAGE}")
    return _LENGTH.pack(len(body)) + body


class MessageReader:
    """Cuts what comes from a socket into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> list[Message]:
        """Return the messages that are complete now, in order. WireError: that is none; read no further."""
        buffer = self._buffer
        buffer += data
        found: list[Message] = []
        at = 0
        while len(buffer) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(buffer, at)
            if not 1 <= size <= MAX_MESSAGE:
                raise WireError(f"a frame of {size} bytes")
            begin, end = at + _LENGTH.size, at + _LENGTH.size + size
            if len(buffer) < end:
                break
            with memoryview(buffer) as view:
                found.append(self._message(view[begin:end]))
            at = end
        del buffer[:at]
        return found

    def _message(self, body: memoryview) -> Message:
        try:
            message: Message = _decode(body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise WireError(f"a broken message: {error}") from error
        return message
