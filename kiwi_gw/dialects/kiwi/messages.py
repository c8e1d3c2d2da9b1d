"""The messages of the Kiwi protocol, for servers, clients and tests (`docs/schemas/kiwi.json`).

The members are in the order in which they are sent: those of the document first. What the document does not
have is optional, so these are the messages of the original server as well; its responses have an envelope of
their own (`CommandResponse`). The description of a member of a command is what a client is answered that got
it wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from kiwi_gw.model import Mode, OverflowPolicy, StartAt, ValueAs

MAX_INTEGER: Final = 2**53 - 1
"""The largest integer that every JSON client holds exactly."""
MIN_POSITIONS_EVERY_MS: Final = 100

SourceId = Annotated[str, Meta(min_length=1, description="a string of 1 or more characters")]
Count = Annotated[int, Meta(ge=1, le=MAX_INTEGER, description=f"an integer from 1 to {MAX_INTEGER}")]
Interval = Annotated[
    int,
    Meta(
        ge=MIN_POSITIONS_EVERY_MS,
        le=MAX_INTEGER,
        description=f"an integer from {MIN_POSITIONS_EVERY_MS} to {MAX_INTEGER}",
    ),
]
Timestamp = Annotated[
    int, Meta(ge=0, le=MAX_INTEGER, description=f"an integer from 0 to {MAX_INTEGER}: ms since the epoch")
]
# `$` alone would let a line feed pass behind it.
Offsets = Annotated[
    dict[
        Annotated[str, Meta(pattern=r"^(?:0|[1-9][0-9]{0,9})(?!\n)$")],
        Annotated[int, Meta(ge=0, le=MAX_INTEGER)],
    ],
    Meta(description='an object of partition numbers and offsets, as in {"0": 12}'),
]
Positions = Mapping[str, Any]
"""Where a subscription is, as only its source understands it."""
SentPositions = Annotated[Positions, Meta(description="an object that the gateway has sent as positions")]

# --- what clients send -----------------------------------------------------------------------


class StartPoint(Struct, frozen=True, forbid_unknown_fields=True):
    """Where in a source to begin: one of these."""

    timestamp: Timestamp | UnsetType = UNSET
    offsets: Offsets | UnsetType = UNSET
    positions: SentPositions | UnsetType = UNSET

    def __post_init__(self) -> None:
        if [self.timestamp, self.offsets, self.positions].count(UNSET) != 2:
            raise ValueError("exactly one of timestamp, offsets and positions")


From = Annotated[
    StartAt | StartPoint,
    Meta(
        description='"latest", "earliest", "snapshot", {"timestamp": ms}, {"offsets": {"0": 12}} '
        'or {"positions": ...}',
        extra_json_schema={"minProperties": 1, "maxProperties": 1},
    ),
]
OnMissing = Annotated[Literal["earliest"], Meta(description='"earliest"; without it what is gone is refused')]
Text = Annotated[str, Meta(description="a string")]


class _Command(Struct, frozen=True, tag_field="type", rename="camel", forbid_unknown_fields=True):
    source_id: SourceId


class Subscribe(_Command, frozen=True, tag="SUBSCRIBE"):
    """Have the events of a source sent. start: the member `from`. until: `end`, those that it has by now."""

    mode: Annotated[Mode, Meta(description='"push" or "pull"')] = Mode.PUSH
    start: From | UnsetType = field(default=UNSET, name="from")
    on_missing: OnMissing | UnsetType = UNSET
    until: (
        Annotated[Literal["end"], Meta(description='"end"; without it for as long as there is something')]
        | UnsetType
    ) = UNSET
    where: Text | UnsetType = UNSET
    select: Text | UnsetType = UNSET
    value_as: Annotated[ValueAs, Meta(description='"text" or "json"')] | UnsetType = UNSET
    overflow: (
        Annotated[
            OverflowPolicy, Meta(description=f"one of {', '.join(each.value for each in OverflowPolicy)}")
        ]
        | UnsetType
    ) = UNSET
    buffer_capacity: Count | UnsetType = UNSET
    positions_every_ms: Interval | UnsetType = UNSET

    def __post_init__(self) -> None:
        point = isinstance(self.start, StartPoint) and self.start.timestamp is UNSET
        if self.on_missing is not UNSET and not point:
            raise ValueError("onMissing goes with from.offsets or from.positions")


class Unsubscribe(_Command, frozen=True, tag="UNSUBSCRIBE"):
    """End a subscription."""


class Request(_Command, frozen=True, tag="REQUEST"):
    """Let a pull subscription send n more events."""

    n: Count


ClientMessage = Subscribe | Unsubscribe | Request

# --- what the gateway answers ----------------------------------------------------------------


class _Data(Struct, frozen=True, rename="camel"):
    source_id: str


class Subscribed(_Data, frozen=True):
    """value_as: how `value` is written, of events that have one."""

    mode: Mode | UnsetType = UNSET
    positions: Positions | UnsetType = UNSET
    overflow: OverflowPolicy | UnsetType = UNSET
    buffer_capacity: int | UnsetType = UNSET
    value_as: ValueAs | UnsetType = UNSET


class Unsubscribed(_Data, frozen=True):
    """The subscription that is over."""


class Granted(_Data, frozen=True):
    """credits: the balance after it."""

    n: int
    credits: int | UnsetType = UNSET


class Refused(_Data, frozen=True):
    """error: for people. position: where in the query the mistake is, from 0. code: which error it is, for
    programs (`kiwi_gw.codes.RefusalCode`; plugins may have others)."""

    error: str
    position: int | UnsetType = UNSET
    code: str | UnsetType = UNSET


class _Message(Struct, frozen=True, tag_field="type"):
    pass


class SubscribeOk(_Message, frozen=True, tag="SUBSCRIBE_OK"):
    """The subscription is open."""

    data: Subscribed


class UnsubscribeOk(_Message, frozen=True, tag="UNSUBSCRIBE_OK"):
    """The subscription is over; nothing of it follows."""

    data: Unsubscribed


class RequestOk(_Message, frozen=True, tag="REQUEST_OK"):
    """The credit is granted."""

    data: Granted


class _Refusal(_Message, frozen=True):
    data: Refused


class SubscribeError(_Refusal, frozen=True, tag="SUBSCRIBE_ERROR"):
    """There is no subscription."""


class UnsubscribeError(_Refusal, frozen=True, tag="UNSUBSCRIBE_ERROR"):
    """There was no subscription."""


class RequestError(_Refusal, frozen=True, tag="REQUEST_ERROR"):
    """No credit is granted."""


class Result(_Message, frozen=True, tag="RESULT"):
    """An event: `sourceId`, `sourceType`, and the fields of its source. The gateway writes it without this
    struct, see `kiwi_gw.dialects.encoder`."""

    data: dict[str, Any]


class OriginalResponse(Struct, frozen=True, rename="camel"):
    """What an answer says on the original server's wire. requests: the balance of credits."""

    type: Literal[
        "SUBSCRIBE_OK",
        "UNSUBSCRIBE_OK",
        "REQUEST_OK",
        "SUBSCRIBE_ERROR",
        "UNSUBSCRIBE_ERROR",
        "REQUEST_ERROR",
    ]
    source_id: str
    requests: int | UnsetType = UNSET
    error: str | UnsetType = UNSET


class CommandResponse(_Message, frozen=True, tag="COMMAND_RESPONSE"):
    """The envelope of answers on the original server's wire (`kiwi.envelope: nested`)."""

    data: OriginalResponse


# --- what it says unasked ---------------------------------------------------------------------


class _Notice(Struct, frozen=True, tag_field="type", rename="camel"):
    pass


class _SourceNotice(_Notice, frozen=True):
    source_id: str


class Lag(_SourceNotice, frozen=True, tag="LAG"):
    """The client is `count` events behind. dropped: since the last notice, null: unknown. ranges: what was
    given up, per partition."""

    count: int
    behind: int | UnsetType = UNSET
    dropped: int | UnsetType | None = UNSET
    ranges: Any | UnsetType = UNSET
    positions: Positions | UnsetType = UNSET
    filtered: bool | UnsetType = UNSET


class SubscriptionClosed(_SourceNotice, frozen=True, tag="SUBSCRIPTION_CLOSED"):
    """A subscription has ended. reason: a code."""

    message: str
    reason: str | UnsetType = UNSET
    positions: Positions | UnsetType = UNSET
    dropped: int | UnsetType | None = UNSET


class CurrentPositions(_SourceNotice, frozen=True, tag="POSITIONS"):
    """Where a subscription is; for clients that asked with `positionsEveryMs`."""

    positions: Positions


class SourceDegraded(_SourceNotice, frozen=True, tag="SOURCE_DEGRADED"):
    """What keeps the source from its origin."""

    message: str


class SourceRestored(_SourceNotice, frozen=True, tag="SOURCE_RESTORED"):
    """Nothing does any longer."""


class QueryHint(_SourceNotice, frozen=True, tag="QUERY_HINT"):
    """Nothing has passed the filter, and what it names is in none of the newest events."""

    message: str


class Error(_Notice, frozen=True, tag="ERROR"):
    """A message that is no command. command: what it says it is."""

    message: str
    command: str | None


class Draining(_Notice, frozen=True, tag="DRAINING"):
    """The gateway restarts; come back then."""

    retry_after_ms: Annotated[int, Meta(ge=0)] = 0


class TokenExpiring(_Notice, frozen=True, tag="TOKEN_EXPIRING"):
    """The connection ends then; come back with a new token."""

    expires_in_ms: int


AnyNotice = (
    Lag
    | SubscriptionClosed
    | CurrentPositions
    | SourceDegraded
    | SourceRestored
    | QueryHint
    | Error
    | Draining
    | TokenExpiring
)


class Notice(_Message, frozen=True, tag="NOTICE"):
    """What the gateway says unasked."""

    data: AnyNotice


ServerMessage = (
    SubscribeOk
    | UnsubscribeOk
    | RequestOk
    | SubscribeError
    | UnsubscribeError
    | RequestError
    | Result
    | CommandResponse
    | Notice
)
