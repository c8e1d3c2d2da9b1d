"""Make of a SUBSCRIBE the command that opens it, its query apart."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from msgspec import UNSET

from kiwi_gw.core.commands import Open
from kiwi_gw.decoding import given
from kiwi_gw.dialects.kiwi.messages import StartPoint, Subscribe
from kiwi_gw.model import AtPositions, AtTime, SourceInfo, Start, StartAt, ValueAs, WireFormat


class WireFactory(Protocol):
    """Makes the wire format of a source. Raises SubscribeRefused."""

    def __call__(self, source: SourceInfo, *, value_as: ValueAs | None = None) -> WireFormat: ...


def open_command(command: Subscribe, wire: WireFactory) -> Open:
    """Make the command to the core. wire: makes the format of events as the client wants them."""
    every = given(command.positions_every_ms)
    return Open(
        command.source_id,
        command.source_id,
        partial(wire, value_as=given(command.value_as)),
        command.mode,
        overflow=given(command.overflow),
        buffer_capacity=given(command.buffer_capacity),
        start=_start(command),
        positions_every=None if every is None else every / 1000,
    )


def _start(command: Subscribe) -> Start:
    """Say where to begin. `positions` are what the gateway itself has sent, `offsets` those of partitions, as
    a client counts them. A partition that is not named begins with its first event."""
    point = StartAt.LATEST if command.start is UNSET else command.start
    if not isinstance(point, StartPoint):
        return point
    timestamp, offsets, positions = given(point.timestamp), given(point.offsets), given(point.positions)
    if timestamp is not None:
        return AtTime(timestamp)
    skip_missing = given(command.on_missing) is not None
    return AtPositions(dict(offsets if offsets is not None else positions or {}), skip_missing)
