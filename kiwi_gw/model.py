"""Vocabulary: the value types that every layer shares. Standard library only.

The words are those of the README's glossary; nothing here does anything.
"""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar, runtime_checkable

# --- where a reader is -------------------------------------------------------------------------

Positions = Mapping[int, int]
"""Partition -> offset of the next event that a reader has not had. The numbers are the source's own
(Kafka: partition and offset; a source without partitions uses partition 0). What clients see of them
is made by the source's `PositionCodec`."""

Ranges = Mapping[int, tuple[int, int]]
"""Partition -> (first, last) offset of a run that was given up, both inclusive."""


@dataclass(frozen=True, slots=True)
class PositionCodec:
    """How a source writes positions as JSON for clients, and reads them back.

    `dump` returns a JSON object; `load` raises ValueError, in words, for one that it did not write.
    place: how one offset is written where ranges are told (LAG), if a number means nothing to clients.
    """

    dump: Callable[[Positions], dict[str, object]]
    load: Callable[[object], Positions]
    place: Callable[[int], object] | None = None

    def dump_ranges(self, ranges: Ranges) -> dict[str, tuple[object, object]]:
        """Ranges for clients: by partition, the first and the last event."""
        place = self.place or _number
        return {str(p): (place(ranges[p][0]), place(ranges[p][1])) for p in sorted(ranges)}


def _number(offset: int) -> object:
    return offset


def _load_partitions(value: object) -> Positions:
    if not isinstance(value, dict):
        raise ValueError("positions must be an object of partition numbers and next offsets")  # noqa: TRY004
    positions: dict[int, int] = {}
    for name, offset in value.items():
        if not (isinstance(name, str) and name.isascii() and name.isdigit()):
            raise ValueError(f"{name!r} is not a partition number")
        if type(offset) is not int or offset < 0:
            raise ValueError(f"the offset of partition {name} must be a non-negative integer")
        positions[int(name)] = offset
    return positions


BY_PARTITION = PositionCodec(
    dump=lambda positions: {str(p): positions[p] for p in sorted(positions)}, load=_load_partitions
)
"""The default codec: `{"0": 12, "1": 7}`."""


class Unreadable(enum.Enum):
    """Why a source steps over events that its origin still has."""

    DAMAGED = "damaged"  # nobody can decode them
    TOO_LARGE = "too_large"


@dataclass(frozen=True, slots=True)
class Gap:
    """Events that the source itself gave up before a batch (history gone, a record too large).

    `count` is None where the source cannot know how many there were. unreadable: why, if they are still
    there; it feeds `source_decode_errors_total`.
    """

    ranges: Ranges
    count: int | None
    unreadable: Unreadable | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """The events that a source handed over together, held as columns.

    partitions, offsets: where each event is; offsets grow within a partition.
    columns: by name, every one as long as `offsets`; what they mean is said by the source's `Shape`.
        By convention `key` and `value` hold `bytes | None`, `timestamp` ms since the epoch or -1,
        `headers` a sequence of `(str, bytes | None)` pairs.
    starts: the next offset of *every* partition of the source before the first event of this batch.
    cost: what the batch weighs in memory, in bytes, without the fixed overhead that the window adds.
    gap: what the source lost just before it.
    """

    starts: Positions
    partitions: Sequence[int]
    offsets: Sequence[int]
    columns: Mapping[str, Sequence[object]]
    cost: int
    gap: Gap | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def column(self, name: str) -> Sequence[object]:
        """The named column; `partition` and `offset` are columns too. KeyError if there is none."""
        if name == "offset":
            return self.offsets
        if name == "partition":
            return self.partitions
        return self.columns[name]

    def positions_at(self, index: int) -> dict[int, int]:
        """The positions of a reader that has had the first `index` events of this batch."""
        positions = dict(self.starts)
        # Offsets grow within a partition, so the last one written is the highest.
        positions.update(zip(self.partitions[:index], [o + 1 for o in self.offsets[:index]], strict=True))
        return positions


@dataclass(frozen=True, slots=True)
class SourceStatistics:
    """What a source knows of its origin at the moment.

    behind: by partition, how many records the origin has that were not handed over yet (where it has no
        counts, a difference of offsets); empty where the source cannot know.
    reachable: whether the origin answers.
    details: what else operators may want to see of it (`/sources`), by name; nothing secret.
    """

    behind: Mapping[int, int] = field(default_factory=dict)
    reachable: bool = True
    details: Mapping[str, str | int | float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric that a type of sources has for itself, with the label `source`.

    name: without the gateway's prefix, with its unit (`spark_batch_duration_seconds`). kind: `counter` (its
    name ends in `_total`), `gauge` or `histogram`. meaning: a sentence. merge: what becomes of the gauges of
    several workers. bounds: upper bounds of a histogram's buckets, ascending.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    merge: Literal["sum", "largest", "smallest"] = "sum"
    bounds: tuple[float, ...] = ()

    @property
    def grows(self) -> bool:
        """Whether it is added to, and never goes back."""
        return self.kind == "counter"


@dataclass(frozen=True, slots=True)
class Extent:
    """What a source still has of every partition: its first event, and where the next to come will be."""

    first: Positions
    end: Positions


class StartAt(enum.Enum):
    """Where a subscription begins, by name."""

    LATEST = "latest"  # with the next event
    EARLIEST = "earliest"  # with the first event that the source still has
    SNAPSHOT = "snapshot"  # with the newest event of every key, then the next one


@dataclass(frozen=True, slots=True)
class AtTime:
    """In every partition, the first event with this timestamp (ms since the epoch) or a later one."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class AtPositions:
    """`positions` in the JSON form of the source's codec; a partition that is not named: its first event.

    skip_missing: events that the source no longer has are a loss that is announced; else a refusal.
    """

    positions: object
    skip_missing: bool = False


Start = StartAt | AtTime | AtPositions


class Lineage(Protocol):
    """Says of which history positions are, so that nobody goes on in another one with the same numbers.

    It writes members beside the positions that clients are given. Where the source's codec reads them back,
    what it returns says of which history the positions are; without, they are taken as they are.
    """

    def marks(self, positions: Positions) -> Mapping[str, object]:
        """What is written beside these positions."""

    def knows(self, given: Positions) -> bool:
        """Say whether `refuted` can answer; else `learn` comes first. given: as the codec read it."""

    async def learn(self, given: Sequence[Positions]) -> None:
        """Ask the origin once about all of these, however many clients have brought them, in turns with other
        tasks. It may not be able to say yet: `knows` tells."""

    def unknown(self, given: Positions) -> str:
        """Say what the origin has not said yet of these positions; empty if nothing."""

    def refuted(self, given: Positions) -> str | None:
        """Say why these positions are of another history; None if they are not."""


@runtime_checkable
class Traced(Protocol):
    """What a source can also do if its offsets may come to mean other events (a topic that is created anew, a
    log that is cut off): its positions say of which history they are. It must be an `api.History`, too."""

    @property
    def lineage(self) -> Lineage:
        """That of its positions; the right one from before `Source.run` calls `ready` on."""


# --- what an event looks like ------------------------------------------------------------------


class Kind(enum.Enum):
    """How one column becomes a JSON value."""

    INT = "int"  # int; with `none`, that number becomes null
    TEXT = "text"  # bytes as UTF-8 text, null for None; not UTF-8: null and `{name}Base64` is added
    BASE64 = "base64"  # bytes as base64 text, null for None
    STRING = "string"  # str or None, as it is
    JSON = "json"  # bytes that already are JSON text; None is null
    VALUE = "value"  # any JSON-compatible Python value
    HEADERS = "headers"  # [(name, bytes | None)] as [{"key": .., "value": base64 | null}]
    SOURCE_ID = "source_id"  # the id of the source (no column)
    SOURCE_TYPE = "source_type"  # the type of the source (no column)


@dataclass(frozen=True, slots=True)
class Field:
    """One member of an event's JSON object. `column` defaults to `name`.

    `twin` (for TEXT): whether bytes that are not UTF-8 are added as `{name}Base64`.
    `parsed` (for TEXT): bytes that are JSON text are written as that JSON, others as text.
    """

    name: str
    kind: Kind
    column: str = ""
    none: int | None = None
    twin: bool = True
    parsed: bool = False

    @property
    def source_column(self) -> str:
        return self.column or self.name


@dataclass(frozen=True, slots=True)
class Shape:
    """The JSON objects that a source's events become: the members in their order, by variant.

    `variants` holds other forms of the same event that a dialect may ask for by name; where a source
    has no such variant it gets `fields`.
    """

    fields: tuple[Field, ...]
    variants: Mapping[str, tuple[Field, ...]] = field(default_factory=dict)

    def of(self, variant: str) -> tuple[Field, ...]:
        return self.variants.get(variant, self.fields)


Form = Literal["json", "string", "int", "long", "binary", "avro"]
"""What bytes hold: JSON, UTF-8 text, a whole number of 4 or 8 bytes (big-endian, as Kafka's serializers write
it), anything (base64 text), or one Avro datum."""


@dataclass(frozen=True, slots=True)
class Decode:
    """What queries make of the bytes in the columns `value` and `key`; what is no bytes is used as it is.

    avro_schema: JSON text, for `avro`. fields: the types of the value, as text (`carrier STRING, delay
    BIGINT`); empty: those of each record. close: an event that a query cannot be evaluated for ends its
    subscription; else it is left out.
    """

    value: Form = "json"
    key: Form = "string"
    avro_schema: str = ""
    fields: str = ""
    close: bool = False


ValueAs = Literal["text", "json"]
"""How the value of an event is written: as a string with its text, or as the JSON that it is."""

AS_JSON = Decode()
"""Values are JSON, keys are text."""


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """What everybody may know about a source. `replayable`: it can be read again from positions.

    blocks: what its configuration says to single protocols, by the name of the block. value_as: how its
    configuration wants values to be written; None: as in its shape. members: what its values are made of, in
    DDL, as the source has said it (`Out.describe`): a query that names something else is refused. Empty: not
    known.
    """

    id: str
    type: str
    shape: Shape
    codec: PositionCodec = BY_PARTITION
    replayable: bool = False
    decode: Decode = AS_JSON
    blocks: Mapping[str, object] = field(default_factory=dict)
    value_as: ValueAs | None = None
    members: str = ""


# --- encodings ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Encoded:
    """The fragments of one batch for one wire key: one buffer and where each event ends in it.

    ends: as long as the batch; an event that yields nothing (filtered, withheld) ends where it began.
    tally: prefix counts of the events that yield something, one longer than the batch; None: all do.
    tallies: the same by label, for a dialect whose fragments serve several limits at once.
    unsendable: indexes of events that were given up for their size, ascending.
    bad: how many events could not be encoded or evaluated.
    """

    buffer: bytes
    ends: Sequence[int]
    tally: Sequence[int] | None = None
    tallies: Mapping[Hashable, Sequence[int]] = field(default_factory=dict)
    unsendable: tuple[int, ...] = ()
    bad: int = 0

    def tally_of(self, label: Hashable) -> Sequence[int] | None:
        """The prefix counts of a label, `tally` for one that has none of its own. None: all count."""
        return self.tallies.get(label, self.tally)


Joiner = Callable[[bytes], bytes]
"""Makes one frame of a run of fragments (for protocols that put many events in one frame)."""


@dataclass(slots=True)
class TimeSlice:
    """How long the evaluation of a batch may go on before it gives way: until the clock says so.

    held: bytes of what was made so far, kept up by whoever makes it. clock: monotonic seconds.
    """

    until: float = math.inf
    clock: Callable[[], float] = time.monotonic
    held: int = 0

    @property
    def over(self) -> bool:
        return self.until != math.inf and self.clock() >= self.until


T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that yields where its turn is over, goes on when it is next looked at, and returns what it made."""


def at_once(steps: Steps[T]) -> T:
    """All the steps, one after the other."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            made: T = done.value
            return made


@dataclass(frozen=True, slots=True)
class WireFormat:
    """How one dialect writes the events of one source.

    key: everything that decides the bytes: equal keys share them. `encode` must be pure.
    join: None, each fragment is a whole frame; else it makes one frame of a run of fragments.
    steps: the same as `encode`, in turns: where what a client asks for (a query, patterns) may take long.
    chosen: whether a client has chosen parts of the key, so that there may be any number of them.
    """

    key: Hashable
    encode: Callable[[Batch], Encoded]
    join: Joiner | None = None
    steps: Callable[[Batch, TimeSlice], Steps[Encoded]] | None = None
    chosen: bool = False


Record = Mapping[str, object]
"""One event as an interceptor sees it: the batch's columns by name, with `partition` and `offset`."""


@dataclass(frozen=True, slots=True)
class Interceptor:
    """Changes or withholds events for some clients. `apply` must be pure: the same record always gives
    the same answer. It returns the record, a changed copy, or None to withhold it.

    key: clients for which the same plugin gives equal keys share the encoded bytes, until the next reload;
    None shares with nobody.
    """

    apply: Callable[[Record], Record | None]
    key: Hashable | None = None


# --- subscriptions -----------------------------------------------------------------------------


class Mode(enum.Enum):
    PUSH = "push"
    PULL = "pull"


class OverflowPolicy(enum.Enum):
    """What happens to a subscription more than `buffer_capacity` events behind."""

    REPLAY = "replay"
    DROP_OLDEST = "drop_oldest"
    LATEST = "latest"
    BLOCK = "block"
    CLOSE = "close"


class CloseReason(enum.Enum):
    """Why a subscription ended, as `reason` in SUBSCRIPTION_CLOSED."""

    ENDED = "ended"
    REMOVED = "removed"
    ALTERED = "altered"
    CHANGED = "changed"
    FAILED = "failed"
    OVERFLOW = "overflow"
    UNAUTHORIZED = "unauthorized"
    LIMIT = "limit"
    UNTIL = "until"
    UNSUBSCRIBED = "unsubscribed"
    DISCONNECTED = "disconnected"


# --- identity ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a client is. `expires_at`: seconds since the epoch, wall clock; None: never.

    anonymous: it has shown no credentials, so it is told from others by its address; the name says nothing.
    authenticator: the plugin that let it in, empty if none was asked. The gateway writes it, over whatever a
    plugin says.
    """

    name: str
    roles: frozenset[str] = frozenset()
    claims: Mapping[str, object] = field(default_factory=dict, repr=False)
    expires_at: float | None = None
    anonymous: bool = False
    authenticator: str | None = field(default=None, compare=False, repr=False)


ANONYMOUS = Identity("anonymous", anonymous=True)


@dataclass(frozen=True, slots=True)
class Refusal:
    """No. `code` is stable (`invalid_token`, `token_expired`, `forbidden`); `message` is for people and
    names nothing secret. `retry`: whether the same client may come back with new credentials."""

    code: str
    message: str
    retry: bool = False


@dataclass(frozen=True, slots=True)
class Permit:
    """Yes: what an action needs that is closed unless somebody opens it (`runtime.rights`). A refusal of
    another plugin still forbids it."""


@dataclass(frozen=True, slots=True)
class Head:
    """An HTTP request head as a credential. Header names are lower case; `query` has no token removed."""

    method: str
    path: str
    query: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    remote: str = ""
    secure: bool = False

    def header(self, name: str) -> str | None:
        """The first header of that (lower-case) name."""
        return next((value for key, value in self.headers if key == name), None)


@dataclass(frozen=True, slots=True)
class Password:
    """A user and a password, as a login message carries them."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token, as a message carries it."""

    text: str = field(repr=False)


Credential = Head | Password | Token


class Action(enum.Enum):
    SUBSCRIBE = "subscribe"
    REPLAY = "replay"
    PUBLISH = "publish"
    COMMIT = "commit"
    ADMIN = "admin"


# --- checks ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Finding:
    """What `kiwi-gw check` found out about one thing that the configuration names.

    `subject` names it (`kafka topic flights`), `message` says how it is, and what to do if it is wrong; it
    may have several lines.
    where: what it is about, as a path in the configuration: keys of mappings and indexes of lists, a source
        by its index or its id (`("sources", "delays", "sql")`); empty: nothing in particular.
    line: if that is a text of several lines, which of them, from 0.
    """

    level: Literal["ok", "warning", "error"]
    subject: str
    message: str
    where: tuple[str | int, ...] = ()
    line: int = 0
