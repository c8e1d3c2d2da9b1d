"""What happened to a subscription or its connection, in the core's words; a dialect's session renders it."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from kiwi_gw.model import (
    Batch,
    CloseReason,
    Identity,
    OverflowPolicy,
    Positions,
    Published,
    Ranges,
    Refusal,
    SourceInfo,
    Unpublished,
)


@dataclass(frozen=True, slots=True)
class Opened:
    """`positions` is where the subscription begins, in the source's JSON form. begin, until: the offsets, by
    partition, of its first event and behind its last one, as far as they exist; until None: it has no
    end."""

    handle: Hashable
    source: SourceInfo
    positions: Mapping[str, object]
    overflow: OverflowPolicy
    buffer_capacity: int
    begin: Positions = field(default_factory=dict)
    until: Positions | None = None


@dataclass(frozen=True, slots=True)
class OpenFailed:
    """There is no subscription, for the reason in `code` and `message`."""

    handle: Hashable
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ReconfigureRefused:
    """It goes on as before."""

    handle: Hashable
    code: str
    message: str


class Unanswered(enum.Enum):
    """Why a question has no answer: too many wait for one, or there is no process just now; it took too long;
    the process died of it, and the next one too."""

    BUSY = "busy"
    TOO_LONG = "too_long"
    FATAL = "fatal"


@dataclass(frozen=True, slots=True)
class Offloaded:
    """seconds: of the processor that the answer took, or what this client has to bear of them. handle: None,
    with nothing to be done but to charge those, if it was given up meanwhile."""

    handle: Hashable
    answer: bytes | Unanswered
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CreditAdded:
    """`n` is what was asked for, `credits` the balance after it."""

    handle: Hashable
    n: int
    credits: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The subscription is over, as its client wished. Nothing of it follows."""

    handle: Hashable


@dataclass(frozen=True, slots=True)
class Lagged:
    """Numbers as the notice LAG has them. `dropped` is None where the source itself does not
    know."""

    handle: Hashable
    source: SourceInfo
    behind: int
    dropped: int | None
    count: int
    ranges: Ranges
    positions: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Ended:
    """The subscription is over, not by the client's wish. `dropped`: given up and not yet announced."""

    handle: Hashable
    source: SourceInfo
    reason: CloseReason
    message: str
    positions: Mapping[str, object]
    dropped: int | None


@dataclass(frozen=True, slots=True)
class PositionsReported:
    """Where the next event of the subscription is, in the source's JSON form: resuming there misses nothing
    and repeats nothing."""

    handle: Hashable
    source: SourceInfo
    positions: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SourceDegraded:
    """The source is cut off from its origin, or works again: `message` is then empty. It stays subscribed."""

    handle: Hashable
    source: SourceInfo
    message: str


@dataclass(frozen=True, slots=True)
class LimitReached:
    """The limit with this label is used up. The subscription stands still until it is reconfigured."""

    handle: Hashable
    label: Hashable


@dataclass(frozen=True, slots=True)
class CallDone:
    """A call is over. result: as the request has it, or a Refusal."""

    handle: Hashable
    result: Identity | Refusal


@dataclass(frozen=True, slots=True)
class Produced:
    """What became of a record. A Refusal: the client may not write it there."""

    handle: Hashable
    result: Published | Unpublished | Refusal


@dataclass(frozen=True, slots=True)
class CommitDone:
    """The positions are kept (None), or none of them is, or nobody knows (the refusal says so)."""

    handle: Hashable
    result: Refusal | None


@dataclass(frozen=True, slots=True)
class CredentialsExpiring:
    """What the client is known by expires in so many ms; the connection then ends, unless it says anew who it
    is, where its protocol can."""

    in_ms: int


@dataclass(frozen=True, slots=True)
class SourceAppeared:
    """A source exists that was not there before, or is another one under its old id. Sent to every session,
    first for those at the start."""

    source: SourceInfo


@dataclass(frozen=True, slots=True)
class Draining:
    """The gateway is about to close this connection; a client should come back after this many ms."""

    retry_after_ms: int


@dataclass(frozen=True, slots=True)
class Dismissed:
    """The gateway closes this connection, behind what is replied to this. message: why, for the client."""

    message: str


@dataclass(frozen=True, slots=True)
class TimerFired:
    """What the session asked to be reminded of is due. held: as in its `SetTimer`."""

    held: bool = True


@dataclass(frozen=True, slots=True)
class Silent:
    """The client was sent nothing for as long as the session wanted to know."""


@dataclass(frozen=True, slots=True)
class Continued:
    """It is the session's turn. idle: nothing else wants the event loop, whatever the client has used."""

    idle: bool


@dataclass(frozen=True, slots=True)
class Inspected:
    """How a subscription does. sent: events. newest: the last few batches of its source, in order; none where
    an interceptor stands before it, for nothing may be said of what that takes out."""

    handle: Hashable
    source: SourceInfo
    sent: int
    newest: tuple[Batch, ...]


Notice = (
    Opened
    | OpenFailed
    | ReconfigureRefused
    | CreditAdded
    | Cancelled
    | Lagged
    | Ended
    | PositionsReported
    | SourceDegraded
    | LimitReached
    | CallDone
    | Produced
    | CommitDone
    | CredentialsExpiring
    | SourceAppeared
    | Draining
    | Dismissed
    | TimerFired
    | Silent
    | Continued
    | Inspected
    | Offloaded
)
