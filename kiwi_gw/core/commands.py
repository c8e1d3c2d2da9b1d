"""What a client wants done, in the core's words: the commands that a dialect's session answers with.

A *handle* is the session's own name for one subscription: hashable, unique within its connection while
that subscription lives. Commands are carried out at once and in order.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from kiwi_gw.core.notices import Notice
from kiwi_gw.model import (
    Batch,
    Credential,
    Encoded,
    EngineQuery,
    Mode,
    Outgoing,
    OverflowPolicy,
    SourceInfo,
    Start,
    StartAt,
    WireFormat,
)


class Violation(enum.Enum):
    """What a client did that it may not: it came too often (the first four), or it broke its protocol."""

    COMMANDS = "commands"
    REQUESTS = "requests"  # for credit
    CONTROLS = "controls"  # pings and pongs
    FRAGMENTS = "fragments"

    FRAMING = "framing"
    NOT_UTF8 = "not_utf8"
    TOO_LARGE = "too_large"
    TOO_MANY_FRAGMENTS = "too_many_fragments"
    BINARY = "binary"  # where only text is understood
    MESSAGE = "message"  # one that is no command


@dataclass(frozen=True, slots=True)
class Reply:
    """Write this, complete with its frame header (`frames.text_frame`), behind all events sent so far.

    violation: what the client has done wrong, to be counted.
    """

    frame: bytes
    violation: Violation | None = None


class LabelLimit:
    """How many more events may be sent under one label.

    The session makes it, and may hand the same object to several subscriptions (a topic pattern keeps one
    limit over all its sources) and again to Reconfigure: what was used stays used.
    """

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def __repr__(self) -> str:
        return f"LabelLimit({self.left})"


class Tally(Protocol):
    """Counts what a subscription has read. The session makes it, and looks at it when it likes."""

    def passed(self, batch: Batch, encoded: Encoded, first: int, stop: int) -> None:
        """Count the events `first` up to `stop` of a batch: sent, too large to be, or seen to yield nothing.
        Each comes once, and those of a partition in order."""


@dataclass(frozen=True, slots=True)
class Open:
    """Subscribe to one source. Answered by Opened or OpenFailed, now or after `subscribe_timeout_ms`.

    wire: makes the wire format once the source is known; it may raise SubscribeRefused.
    credits: the first balance of a pull subscription. limits: by label, as `Encoded.prefix_counts_by_label`
    has them, or None for all events; when a limit is reached LimitReached is sent (label None: the
    subscription closes).
    overflow, buffer_capacity: None, the source's own. start: where it begins; anything but latest needs the
    right to replay, or, for what a group has committed, that to commit. until: None, for ever; else
    `Until.END`, `UntilOffset`, or positions in the source's JSON form. positions_every: seconds between
    notices of where it is (PositionsReported); None: none unless asked for. tally: is told of every event
    that is passed. gathers: whether its history waits a moment for others who come back at the same time; a
    client that reads page by page comes alone.
    """

    handle: Hashable
    source_id: str
    wire: Callable[[SourceInfo], WireFormat]
    mode: Mode = Mode.PUSH
    credits: int = 0
    limits: Mapping[Hashable, LabelLimit] = field(default_factory=dict)
    overflow: OverflowPolicy | None = None
    buffer_capacity: int | None = None
    start: Start = StartAt.LATEST
    until: object = None
    positions_every: float | None = None
    tally: Tally | None = None
    gathers: bool = True


@dataclass(frozen=True, slots=True)
class OpenQuery:
    """Have a query over whole sources run, and subscribe to its result: a finite source of its own, that
    nobody else can see. Answered as Open is, within `QueryEngine.start_ms`; by OpenFailed, at once, with the
    code NO_ENGINE where nothing runs such queries, and QUERY where not this one. Then the rows come, and
    Ended: ENDED behind the last row; FAILED with the engine's words; LIMIT; OVERFLOW where the client was too
    slow; UNAUTHORIZED, REMOVED or ALTERED by what a reload has made of one of its sources. Cancel stops it.

    It needs the rights to subscribe to every source and to replay it. wire, mode, credits, limits: as those
    of Open. wire is given what the engine says of its results.
    """

    handle: Hashable
    query: EngineQuery
    wire: Callable[[SourceInfo], WireFormat]
    mode: Mode = Mode.PUSH
    credits: int = 0
    limits: Mapping[Hashable, LabelLimit] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AddCredit:
    """Add credit to a pull subscription. Answered by CreditAdded, after Opened if that is still to come."""

    handle: Hashable
    n: int


@dataclass(frozen=True, slots=True)
class Reconfigure:
    """Go on with another wire format, from the next event on (the session's set of readers changed).

    Where that is one wire key too many it goes on as before, and ReconfigureRefused says so. fewer: it leaves
    out some of what was written before, and may not go on with it: then the subscription ends instead, but
    only if the client's own shares have no room.
    """

    handle: Hashable
    wire: Callable[[SourceInfo], WireFormat]
    limits: Mapping[Hashable, LabelLimit] = field(default_factory=dict)
    fewer: bool = False


@dataclass(frozen=True, slots=True)
class Cancel:
    """Unsubscribe. Answered by Cancelled; nothing of the subscription follows that."""

    handle: Hashable


@dataclass(frozen=True, slots=True)
class LogIn:
    """Find out whose credential this is, and let the connection be that client's. The result is its Identity,
    or a Refusal: then it stays who it was. Takes at most `server.auth_timeout_ms`. within: seconds, if that
    is less."""

    credential: Credential
    within: float = math.inf


@dataclass(frozen=True, slots=True)
class Call:
    """Ask for something that takes time. Answered by CallDone, in the order of the calls.

    At most MAX_CALLS of a connection are under way; a call beyond them is refused at once. While there are so
    many the client is not read. pause: nor before this one is over, for what it says next depends on that.
    """

    handle: Hashable
    request: LogIn
    pause: bool = True


MAX_CALLS = 8
"""Calls of one connection that are not answered yet."""


@dataclass(frozen=True, slots=True)
class Produce:
    """Write a record to a source. Answered by Produced, in the order of these commands, within
    `server.publish_timeout_ms` and half a second. While too many are not answered the client is not read.
    within: seconds, where there are fewer left than those of that setting."""

    handle: Hashable
    source_id: str
    record: Outgoing
    within: float = math.inf


@dataclass(frozen=True, slots=True)
class Commit:
    """Have a source keep how far a group has come. Answered by CommitDone, within as long as Produce.

    positions: by partition, the next offset and what is to be noted beside it. At most MAX_COMMITS of a
    connection are under way; one beyond them is refused at once. While half as many are not answered the
    client is not read. within: as Produce has it.
    """

    handle: Hashable
    source_id: str
    group: str
    positions: Mapping[int, tuple[int, str]]
    within: float = math.inf


MAX_COMMITS = 512
"""Commits of one connection that are not answered yet."""


@dataclass(frozen=True, slots=True)
class Offload:
    """Have a process beside the event loop answer this. Answered by Offloaded; or given up by Cancel, which
    is answered by Cancelled. pause: the client is not read before, for what it says next depends on that."""

    handle: Hashable
    question: bytes
    pause: bool = False


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection with this WebSocket code and reason (at most 123 bytes of UTF-8).

    violation: what the client is closed for, to be counted.
    """

    code: int
    reason: str
    violation: Violation | None = None


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Come back with TimerFired after so many seconds, or, if later, when the client takes what waits. held:
    false: whether it takes that or not; what is said then is to be the last."""

    seconds: float
    held: bool = True


@dataclass(frozen=True, slots=True)
class Continue:
    """Come back with Continued after so many seconds, or sooner if the event loop is idle; of many
    connections a few in each round. Not before the client takes what waits for it. pause: the client is not
    read before, for what it says next depends on that."""

    seconds: float
    pause: bool = False


@dataclass(frozen=True, slots=True)
class WatchSilence:
    """Send Silent whenever the client was sent nothing for so many seconds, to within a second, and takes
    what it is sent. Takes the place of an earlier one."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Inspect:
    """Look at how a subscription does. Answered by Inspected, at once, if it is there."""

    handle: Hashable


Command = (
    Inspect
    | Reply
    | Open
    | OpenQuery
    | AddCredit
    | Reconfigure
    | Cancel
    | Call
    | Produce
    | Commit
    | Offload
    | Close
    | SetTimer
    | WatchSilence
    | Continue
)


class Session(Protocol):
    """One connection's half of a protocol. Never raises for what a client sends.

    `notice` may be called while the commands that `receive` returned are still being carried out.
    now: seconds on a monotonic clock.
    """

    def receive(self, message: str | bytes, now: float) -> Iterable[Command]:
        """One whole message: str for a text frame, bytes for a binary one."""

    def notice(self, notice: Notice) -> Iterable[Command]:
        """Something happened to a subscription, or to the connection."""


@runtime_checkable
class HasEnd(Protocol):
    """A session that has something to give back: what it has counted beyond its own connection, for
    instance. Others need not have this."""

    def ended(self) -> None:
        """Take note that the connection closes, or is gone. Called once, behind the end of everything that
        the session had: nothing more is asked of it, and it is told nothing more, not even how its
        subscriptions ended. It may come while commands of the session are being carried out."""
