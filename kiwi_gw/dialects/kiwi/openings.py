"""What a SUBSCRIBE asks for, its query apart."""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

from msgspec import Raw

from kiwi_gw.core.commands import Open
from kiwi_gw.dialects.kiwi import requests
from kiwi_gw.dialects.kiwi.beginnings import Wrong, beginning
from kiwi_gw.model import Mode, OverflowPolicy, SourceInfo, ValueAs, WireFormat

_MODES = {mode.value: mode for mode in Mode}
_POLICIES = {policy.value: policy for policy in OverflowPolicy}


MIN_POSITIONS_EVERY_MS: Final = 100


class Wires(Protocol):
    """Makes the wire format of a source. Raises SubscribeRefused."""

    def __call__(self, source: SourceInfo, *, value_as: ValueAs | None = None) -> WireFormat: ...


def value_as_of(raw: Raw | None) -> ValueAs | None:
    """Read the member `valueAs`. Raises Wrong."""
    match None if raw is None else requests.text(raw):
        case "text":
            return "text"
        case "json":
            return "json"
        case None if raw is None:
            return None
    raise Wrong('valueAs must be "text" or "json"')


def opening_of(command: requests.ClientCommand, wire: Wires, value_as: ValueAs | None) -> Open:
    """Make of a SUBSCRIBE what it asks for, its query apart. Raises Wrong."""
    mode = Mode.PUSH if command.mode is None else _MODES.get(requests.text(command.mode) or "")
    if mode is None:
        raise Wrong('mode must be "push" or "pull"')
    policy = None
    if command.overflow is not None:
        policy = _POLICIES.get(requests.text(command.overflow) or "")
        if policy is None:
            raise Wrong(f"overflow must be one of {', '.join(_POLICIES)}")
    capacity = requests.integer(command.buffer_capacity)
    if capacity is None and command.buffer_capacity is not None:
        raise Wrong(f"bufferCapacity must be an integer from 1 to {requests.MAX_INTEGER}")
    every = requests.integer(command.positions_every_ms)
    if command.positions_every_ms is not None and (every is None or every < MIN_POSITIONS_EVERY_MS):
        raise Wrong(
            f"positionsEveryMs must be an integer from {MIN_POSITIONS_EVERY_MS} to {requests.MAX_INTEGER}"
        )
    return Open(
        command.source_id,
        command.source_id,
        partial(wire, value_as=value_as),
        mode,
        overflow=policy,
        buffer_capacity=capacity,
        start=beginning(command.begin, command.on_missing),
        positions_every=None if every is None else every / 1000,
    )
