"""What is answered, as frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import UNSET

from kiwi_gw.core.commands import Reply, Violation
from kiwi_gw.dialect_api.frames import encodable, message_frame
from kiwi_gw.dialects.lenses.v1 import requests
from kiwi_gw.dialects.lenses.v1.messages import EndedTopic, Error, Heartbeat, InvalidRequest, Lost, Success

MOST_RANGES = 1_000
"""Of what was lost, in one HEARTBEAT: a topic may have more partitions. `dropped` counts all."""


def success(number: int, content: str = "") -> Reply:
    """Say that it is done."""
    return Reply(message_frame(Success(number, encodable(content))))


def error(number: int, words: str, violation: Violation | None = None) -> Reply:
    """Say why it is not done, or no longer."""
    return Reply(message_frame(Error(number, encodable(words))), violation)


def invalid(request: requests.WrongRequest) -> Reply:
    """Say what is wrong with a request."""
    answer = InvalidRequest(request.number, encodable(request.message))
    return Reply(message_frame(answer), Violation.MESSAGE)


def heartbeat() -> Reply:
    """Say that the connection is there."""
    return Reply(message_frame(Heartbeat()))


def lost(topic: str, ranges: Mapping[int, tuple[int, int]], dropped: int | None) -> Reply:
    """Say what of a topic was given up. dropped: None: that is not known."""
    some = list(ranges.items())[:MOST_RANGES]
    found = tuple(Lost(topic, partition, first, last) for partition, (first, last) in some)
    return Reply(message_frame(Heartbeat(lost=found or UNSET, dropped=dropped)))


def ended(topics: Iterable[str]) -> Reply:
    """Say which topics have had as many records as were asked for."""
    return Reply(
        message_frame(Heartbeat(ended=tuple(EndedTopic(topic, "limit") for topic in topics), lost=UNSET))
    )
