"""What is answered, as frames."""

from __future__ import annotations

from msgspec import UNSET

from kiwi_gw.core.commands import Reply, Violation
from kiwi_gw.dialect_api.frames import encodable, message_frame
from kiwi_gw.dialects.lenses.v2 import messages


def metadata(fields: tuple[str, ...]) -> Reply:
    """Say what the metadata of records has."""
    return Reply(message_frame(messages.Metadata(messages.Fields(fields))))


def heartbeat() -> Reply:
    """Say that the connection is there."""
    return Reply(message_frame(messages.SqlHeartbeat()))


def error(words: str, violation: Violation | None = None) -> Reply:
    """Say what is wrong."""
    return Reply(message_frame(messages.SqlError(encodable(words))), violation)


def statistics(data: messages.StatsData) -> Reply:
    """Say how far it is."""
    return Reply(message_frame(messages.Stats(data)))


def terminated(
    threshold: messages.ReasonType, source: str, source_id: str, amount: int, timeout: int | None = None
) -> Reply:
    """Say which threshold was reached. timeout: ms, where it is a time."""
    reason = messages.Reason(threshold, source, source_id, amount, UNSET if timeout is None else timeout)
    return Reply(message_frame(messages.Sentinel(messages.SentinelData("QUERY_TERMINATED", reason))))


def lost(source: str, source_id: str, amount: int | None) -> Reply:
    """Say how many records are gone that were to be read. amount: None: nobody knows."""
    reason = messages.Reason("RETENTION", source, source_id, amount)
    return Reply(message_frame(messages.Sentinel(messages.SentinelData("RECORDS_LOST", reason))))


def end() -> Reply:
    """Say that nothing follows."""
    return Reply(message_frame(messages.End()))
