"""Codes that one layer gives and another looks at: why something is refused, how a connection ends."""

from __future__ import annotations

import enum


class CloseCode(enum.IntEnum):
    """Say how a WebSocket connection ends: RFC 6455, 7.4.1, and our own. A client may come back after 44xx,
    with new credentials where those were the reason; it should not after 45xx."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    NONE_GIVEN = 1005
    LOST = 1006
    NOT_UTF8 = 1007
    POLICY_VIOLATION = 1008
    TOO_LARGE = 1009
    NO_EXTENSION = 1010
    INTERNAL_ERROR = 1011
    RESTART = 1012
    TRY_AGAIN_LATER = 1013

    LOGIN_OVERDUE = 4401
    EXPIRED = 4402
    DEAD = 4408
    DISCONNECTED = 4409
    INVALID_TOKEN = 4500
    REVOKED = 4503


class RefusalCode(enum.StrEnum):
    """Say why something is refused. Clients may see a code, and plugins may have others of their own."""

    # who a client is
    AUTH_TIMEOUT = "auth_timeout"
    FORBIDDEN = "forbidden"
    INTERNAL_ERROR = "internal_error"
    INVALID_TICKET = "invalid_ticket"
    KEYS_UNAVAILABLE = "keys_unavailable"
    NO_CREDENTIALS = "no_credentials"
    NO_TOKEN = "no_token"  # noqa: S105  (not a password)
    NOT_CONFIGURED = "not_configured"
    TOKEN_EXPIRED = "token_expired"  # noqa: S105
    TOO_MANY_FAILURES = "too_many_failures"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    TOO_MANY_TICKETS = "too_many_tickets"

    # what it asks for
    ALREADY_SUBSCRIBED = "already_subscribed"
    BAD_REQUEST = "bad_request"
    BUSY = "busy"
    CANCELLED = "cancelled"
    GROUP = "group"
    GROUP_IN_USE = "group_in_use"
    INCOMPATIBLE = "incompatible"
    MOVED = "moved"
    NO_ENGINE = "no_query_engine"
    NOT_LOGGED_IN = "not_logged_in"
    NOT_PULL = "not_pull"
    NOT_SUBSCRIBED = "not_subscribed"
    OVERFLOW = "overflow"
    POSITIONS = "positions"
    QUERY = "query"
    RATE_LIMITED = "rate_limited"
    SCHEMA = "schema"
    START = "start"
    TOO_MANY_SUBSCRIPTIONS = "too_many_subscriptions"
    TOO_MANY_WIRE_KEYS = "too_many_wire_keys"
    UNAVAILABLE = "unavailable"
    UNKNOWN_SOURCE = "unknown_source"
    UNKNOWN_VERSION = "unknown_version"
    VALUE_AS = "value_as"

    # what the source's origin denies the gateway itself, whoever the client is
    ORIGIN_DENIED = "origin_denied"

    # the source is over: `model.CloseReason`
    FAILED = "failed"


NOTHING_SHOWN = frozenset({RefusalCode.NO_CREDENTIALS, RefusalCode.NO_TOKEN})
"""Codes of refusals for want of credentials: the client has shown none, so none of them was wrong."""

UNDECIDED = frozenset(
    {
        RefusalCode.INTERNAL_ERROR,
        RefusalCode.AUTH_TIMEOUT,
        RefusalCode.BUSY,
        RefusalCode.KEYS_UNAVAILABLE,
        RefusalCode.NOT_CONFIGURED,
    }
)
"""Codes of refusals that say nothing about the client."""
