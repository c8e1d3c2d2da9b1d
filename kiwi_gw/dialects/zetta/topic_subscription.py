"""One subscription of a client of this protocol: a topic with its id, and what is to be said about it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from kiwi_gw.core.commands import LabelLimit, Reply
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialects.zetta.devices import SeenDevices
from kiwi_gw.dialects.zetta.events import StreamMember
from kiwi_gw.dialects.zetta.topic_filters import TopicFilter

MAX_DEVICE_QUERIES: Final = 4
"""Queries for devices of one connection: each has a wire key of its own of every source that it reads."""


@dataclass(slots=True)
class TopicSubscription:
    """Hold one topic of the client.

    held: errors that are sent behind its `subscribe-ack`; None: that was sent. lost: given up since a
    loss was said; unknown: and more, uncounted; told_at: when that was. over: sources of which it was
    said that they cannot be read. devices: what it knows of those if it asks for any.
    """

    number: int
    written: bytes
    topic_filter: TopicFilter
    limit: LabelLimit | None
    held: list[Reply] | None = field(default_factory=list)
    lost: int = 0
    unknown: bool = False
    told_at: float = float("-inf")
    over: set[str] = field(default_factory=set)
    devices: SeenDevices | None = None
    member: StreamMember = field(init=False)

    def __post_init__(self) -> None:
        self.member = StreamMember(self.number, self.topic_filter, self.limit is not None)

    @property
    def has_lost(self) -> bool:
        """Return whether there is a loss to be said."""
        return self.lost > 0 or self.unknown

    def lose(self, events: int | None) -> None:
        """Note that so many were given up; None: it is unknown how many."""
        self.lost += events or 0
        self.unknown = self.unknown or events is None

    def losses(self, now: float) -> str:
        """Return a sentence on what it has lost, once. It counts events of the sources: what a query or a
        pattern would have left of them is unknown."""
        lost, unknown = self.lost, self.unknown
        self.lost, self.unknown, self.told_at = 0, False, now
        if unknown:
            return f"more than {lost} events were lost" if lost else "events were lost, nobody knows how many"
        return f"{lost} event{' of its sources was' if lost == 1 else 's of its sources were'} lost"


def too_many(wanted: TopicFilter, held: Collection[TopicSubscription], limits: SessionLimits) -> str | None:
    """Say why a client with these subscriptions may not have another one that wants this; None: it may."""
    most = limits.subscriptions
    if most and len(held) >= most:
        return f"a connection can have at most {most} subscriptions"
    if wanted.devices and sum(item.topic_filter.devices for item in held) >= MAX_DEVICE_QUERIES:
        return f"a connection can have at most {MAX_DEVICE_QUERIES} queries for devices"
    most = limits.queries
    keys = {item.topic_filter.key for item in held} | {wanted.key}
    if most and wanted.query is not None and len(keys - {""}) > most:
        return f"a connection can have at most {most} different queries"
    return None
