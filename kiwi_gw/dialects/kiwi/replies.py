"""Make the messages of the gateway of what happened in the core, in both envelopes (Kiwi protocol, responses
and notices)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from msgspec import UNSET

from kiwi_gw.core import notices
from kiwi_gw.dialect_api.frames import encodable, message_frame
from kiwi_gw.dialects.kiwi import messages
from kiwi_gw.dialects.kiwi.results import Envelope
from kiwi_gw.model import Mode, ValueAs
from kiwi_gw.struct_errors import given

_ERRORS: Final[dict[str, Callable[[messages.Refused], messages.ServerMessage]]] = {
    "SUBSCRIBE": messages.SubscribeError,
    "UNSUBSCRIBE": messages.UnsubscribeError,
    "REQUEST": messages.RequestError,
}


def frame(message: messages.ServerMessage, envelope: Envelope) -> bytes | None:
    """Write a message as one whole frame; None: the envelope has no such message."""
    shown = message if envelope == "flat" else original(message)
    return None if shown is None else message_frame(shown)


def original(message: messages.ServerMessage) -> messages.ServerMessage | None:
    """Return what the original server sends, member for member, so that its clients work unchanged."""
    match message:
        case messages.SubscribeOk(data) | messages.UnsubscribeOk(data):
            return _response(message, data.source_id)
        case messages.RequestOk(data):
            return _response(message, data.source_id, requests=given(data.credits))
        case messages.SubscribeError(data) | messages.UnsubscribeError(data) | messages.RequestError(data):
            return _response(message, data.source_id, error=data.error)
        case messages.Notice(messages.Lag(source_id, count)):
            return messages.Notice(messages.Lag(source_id, count))
        case messages.Notice(messages.SubscriptionClosed(source_id, words)):
            return messages.Notice(messages.SubscriptionClosed(source_id, words))
        case messages.Notice(messages.Error()):
            return message
        case _:
            return None


def subscribed(
    source_id: str, mode: Mode, opened: notices.Opened, value_as: ValueAs | None
) -> messages.SubscribeOk:
    """Say that it is open, and what holds. value_as: of events that have a value."""
    return messages.SubscribeOk(
        messages.Subscribed(
            source_id,
            mode,
            opened.positions,
            opened.overflow,
            opened.buffer_capacity,
            UNSET if value_as is None else value_as,
        )
    )


def error(
    command: str, source_id: str, code: str, words: str, position: int | None
) -> messages.ServerMessage:
    """Refuse a command. position: of the mistake in the client's query."""
    where = UNSET if position is None else position
    data = messages.Refused(source_id, encodable(words), where, encodable(code))
    return _ERRORS[command](data)


def lag(source_id: str, lagged: notices.Lagged, *, filtered: bool) -> messages.Notice:
    """Say how far behind it is. filtered: whether it has a filter. What is counted are events of the source,
    whether that lets them through or not."""
    return messages.Notice(
        messages.Lag(
            source_id,
            lagged.count,
            lagged.behind,
            lagged.dropped,
            lagged.source.codec.dump_ranges(lagged.ranges),
            lagged.positions,
            True if filtered else UNSET,
        )
    )


def closed(source_id: str, ended: notices.Ended) -> messages.Notice:
    """Say why it has ended."""
    words, reason = encodable(ended.message), ended.reason.value
    return messages.Notice(
        messages.SubscriptionClosed(source_id, words, reason, ended.positions, ended.dropped)
    )


def degraded(source_id: str, words: str) -> messages.Notice:
    """Say what keeps the source from its origin; empty: nothing does any longer."""
    if not words:
        return messages.Notice(messages.SourceRestored(source_id))
    return messages.Notice(messages.SourceDegraded(source_id, encodable(words)))


def query_hint(source_id: str, words: str) -> messages.Notice:
    """Say that the filter names what no event has."""
    return messages.Notice(messages.QueryHint(source_id, encodable(words)))


def _response(
    message: messages.ServerMessage, source_id: str, requests: int | None = None, error: str | None = None
) -> messages.CommandResponse:
    return messages.CommandResponse(
        messages.OriginalResponse(
            cast(Any, message.__struct_config__.tag),
            source_id,
            UNSET if requests is None else requests,
            UNSET if error is None else error,
        )
    )
