"""What the topic of a subscription asks for: a pattern of topics, or devices, and a query over those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kiwi_gw.dialects.zetta.topics import Pattern, Topic, TopicError, parse
from kiwi_gw.query import caql
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_KEPT, MAX_TEXT
from kiwi_gw.query.recent import Recent

if TYPE_CHECKING:
    from kiwi_gw.query.compiler import Compiled

EVENT_ROOTS: Final = ("data", "topic", "timestamp")
DEVICE_ROOTS: Final = ("device", "id", "type", "name", "state")
"""The first is the description itself."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a subscription wants.

    pattern: of concrete topics; of servers, if it asks for devices. query: None if all that match are wanted
    as they are; key: equal for queries that give the same. projects: whether the query selects something.
    """

    pattern: Pattern
    devices: bool = False
    query: Compiled | None = None
    key: str = ""
    projects: bool = False

    @property
    def concrete(self) -> bool:
        """Whether it names the one topic that it means."""
        return self.pattern.concrete and not self.devices


def wish(text: str, most_bytes: int = MAX_TEXT) -> Wish:
    """Reads the topic of a subscription. most_bytes: of its query. ValueError, in words with the position,
    for one that is none; the same again for an equal text."""
    key = text, most_bytes
    known = _refused.known(key)
    if known is not None:
        raise ValueError(known)
    try:
        return _read(text, most_bytes)
    except ValueError as error:
        if len(text) <= MAX_KEPT:
            _refused.keep(key, len(text) + len(str(error)), str(error))
        raise


_refused: Final[Recent[str]] = Recent(MAX_KEPT)


def _read(text: str, most_bytes: int) -> Wish:
    try:
        topic = parse(text)
    except TopicError as error:
        raise ValueError(str(error)) from error
    if topic.query is None:
        return Wish(topic.pattern, topic.of_devices)
    if len(topic.query.encode()) > most_bytes:
        raise ValueError(f"the query is longer than {most_bytes} bytes")
    try:
        return _with_query(topic, topic.query)
    except QueryError as error:
        raise ValueError(f"the query cannot be used: {error}") from error


def _with_query(topic: Topic, text: str) -> Wish:
    from kiwi_gw.query.compiler import compiled  # as late as in `kiwi.queries`

    roots = DEVICE_ROOTS if topic.of_devices else EVENT_ROOTS
    query = caql.read(text, roots)
    made = compiled(query, frozenset(roots))
    return Wish(topic.pattern, topic.of_devices, made, query.key, query.select is not None)
