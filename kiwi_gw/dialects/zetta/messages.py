"""The messages of the Zetta protocol, for servers, clients and tests (`docs/schemas/zetta.json`).

The members are in the order of the document's examples (Multiplexed WebSocket Streams). What a client gets
back as it was sent is `Raw`: the JSON itself.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

MAX_LIMIT: Final = 2**63 - 1

Written = Annotated[Raw, Meta(description="the topic as it was sent", extra_json_schema={"type": "string"})]
Milliseconds = Annotated[int, Meta(description="ms since the epoch")]
Number = Annotated[Raw, Meta(description="a number", extra_json_schema={"type": "number"})]
"""As it is written: `1.0` and `1e0` are the same id as `1`."""

# --- what clients send -----------------------------------------------------------------------


class _Message(Struct, frozen=True, tag_field="type", rename="camel"):
    pass


class Subscribe(_Message, frozen=True, tag="subscribe"):
    """Have the events of a topic sent. limit: so many, then it ends; absent: all."""

    topic: Annotated[Raw, Meta(description="a string", extra_json_schema={"type": "string"})]
    limit: (
        Annotated[int, Meta(ge=0, le=MAX_LIMIT, description="an integer from 0 to 2^63 - 1")] | UnsetType
    ) = UNSET


class Unsubscribe(_Message, frozen=True, tag="unsubscribe"):
    """End a subscription."""

    subscription_id: Number


class PingRequest(_Message, frozen=True, tag="ping"):
    """Ask for a pong with the same data."""

    data: Raw | UnsetType = UNSET


ClientMessage = Subscribe | Unsubscribe | PingRequest

# --- what the gateway sends ------------------------------------------------------------------


class SubscribeAck(_Message, frozen=True, tag="subscribe-ack"):
    """The subscription begins."""

    timestamp: Milliseconds
    topic: Written
    subscription_id: int


class UnsubscribeAck(_Message, frozen=True, tag="unsubscribe-ack"):
    """The subscription is over."""

    timestamp: Milliseconds
    subscription_id: int


class Pong(_Message, frozen=True, tag="pong"):
    """The answer to a ping. data: as it came."""

    timestamp: Milliseconds
    data: Raw | UnsetType = UNSET


class Error(_Message, frozen=True, kw_only=True, tag="error"):
    """Something is wrong: with what the client sent (code 400, 405), or with what it reads (500)."""

    code: int
    timestamp: Milliseconds
    topic: Raw | UnsetType = UNSET
    message: str
    subscription_id: int | UnsetType = UNSET


class Event(_Message, frozen=True, tag="event"):
    """An event of a topic. subscription_id: several with `filterMultiple`. The gateway writes it without this
    struct, see `kiwi_gw.dialects.zetta.events`."""

    topic: str
    subscription_id: int | list[int]
    timestamp: Milliseconds
    data: Any


ServerMessage = SubscribeAck | UnsubscribeAck | Pong | Error | Event
