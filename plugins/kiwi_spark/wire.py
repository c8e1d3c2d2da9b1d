"""The protocol between gateway and driver over a Unix socket, free of I/O: messages in, bytes out, and back.

Theory of operation. The gateway listens; the driver connects once for commands (`role: control`) and once
for every running query (`role: rows`). The frames are those of `kiwi_spark.frames`, with ROWS as the kind
whose bytes are sent as they are. On a `rows` connection the driver sends BEGIN, any number of ROWS (each an
Arrow IPC stream with its schema and one or more record batches of the columns `key` and `value`, JSON text or
null), END, and waits for ACK before the next BEGIN. That wait is the backpressure: `foreachBatch` does not
return before it, so Spark reads no further.

Both processes import this module; it imports neither Trio nor PySpark.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kiwi_spark.frames import Frames, Message
from kiwi_spark.spec import Query, Session, Trouble

VERSION: Final = 1

FOLDER: Final = "kiwi-spark-"
"""How the name of the folder begins that has the gateway's socket, and all temporary files of the driver."""

TOKEN: Final = "KIWI_SPARK_TOKEN"  # noqa: S105  the name of an environment variable
"""Where a driver finds what it must say in `Hello`."""

GATEWAY: Final = "KIWI_SPARK_GATEWAY"
"""Where it finds the process id of the gateway, which may be gone before it could ask who its parent is."""

ROWS_BYTES: Final = 1024 * 1024
"""What a ROWS frame should have at most; one row that is larger goes alone, up to MAX_MESSAGE."""


# --- both roles ---


class Hello(Message, frozen=True, kw_only=True):
    """The first message of every connection, from the driver. token: what it was started with.

    role: `control`, or the id of the source whose rows follow.
    """

    version: int
    token: str
    role: str


# --- control: gateway to driver ---


class Open(Message, frozen=True, kw_only=True):
    """Make the session. Answered by Opened, or Failed with an empty source."""

    session: Session


class Start(Message, frozen=True, kw_only=True):
    """Run a query. Answered by Started, or Ended. run: names this run in all answers."""

    run: int
    query: Query


class Stop(Message, frozen=True, kw_only=True):
    """Stop a run. Answered by Ended, whatever state it is in."""

    run: int


class Analyse(Message, frozen=True, kw_only=True):
    """Have Spark analyse a query without running it. Answered by Analysed. explain: with the plan."""

    run: int
    query: Query
    explain: bool = False


# --- control: driver to gateway ---


class Opened(Message, frozen=True, kw_only=True):
    """The session is there. spark: its version."""

    spark: str
    pid: int


class Failed(Message, frozen=True, kw_only=True):
    """The session could not be made."""

    message: str


class Started(Message, frozen=True, kw_only=True):
    """The query runs. query: the id that its checkpoint carries. next_batch: the id of its next batch.

    notes: for the log, such as what became of an older checkpoint. members: as in `Out.describe`.
    """

    run: int
    query: str
    next_batch: int
    notes: list[str] = msgspec.field(default_factory=list)
    members: str = ""


class Progress(Message, frozen=True, kw_only=True):
    """What Spark said of one micro-batch. watermark: ms since the epoch, None without one.

    late: rows that came behind the watermark, so that a stateful operator left them out. behind: events
    between what the batch has read and the newest, of the partition that has most of them; None if unknown.
    state_bytes: memory of the state. phases: seconds by Spark's names (`durationMs`).
    """

    run: int
    batch: int
    input_rows: int
    seconds: float
    bad: int = 0
    bad_sample: str = ""
    state_rows: int = 0
    state_bytes: int = 0
    late: int = 0
    behind: int | None = None
    phases: dict[str, float] = msgspec.field(default_factory=dict)
    watermark: int | None = None


class Idle(Message, frozen=True, kw_only=True):
    """The query has looked for new input, and there was none."""

    run: int


class Ended(Message, frozen=True, kw_only=True):
    """The run is over. trouble: None if it ended by itself or was stopped. message: Spark's words."""

    run: int
    trouble: Trouble | None = None
    message: str = ""


class Analysed(Message, frozen=True, kw_only=True):
    """error: Spark's message, empty if the query is right; trouble: what kind of one; line: where in the SQL,
    from 1, or 0.

    columns: the result's, as (name, Spark SQL type). schemas: what was inferred, by input. plan: if asked.
    """

    run: int
    error: str = ""
    trouble: Trouble | None = None
    line: int = 0
    columns: list[tuple[str, str]] = msgspec.field(default_factory=list)
    schemas: dict[str, str] = msgspec.field(default_factory=dict)
    notes: list[str] = msgspec.field(default_factory=list)
    plan: str = ""


# --- rows ---


class Begin(Message, frozen=True, kw_only=True):
    """A batch of a query follows. query: as in Started. timestamp: when it was computed (ms)."""

    query: str
    batch: int
    timestamp: int


class Rows(Message, frozen=True, kw_only=True):
    """A part of the batch. arrow: an Arrow IPC stream."""

    arrow: bytes


class End(Message, frozen=True, kw_only=True):
    """The batch is complete. rows: how many it has."""

    rows: int


class Ack(Message, frozen=True, kw_only=True):
    """Gateway to driver: the batch was taken, or had been before. Spark may go on."""

    batch: int


FRAMES: Final = Frames(
    Hello,
    Open,
    Start,
    Stop,
    Analyse,
    Opened,
    Failed,
    Started,
    Progress,
    Idle,
    Ended,
    Analysed,
    Begin,
    Rows,
    End,
    Ack,
    raw=Rows,
)
