"""Reading a source for a plain request: at the request's pace, as a subscription of the core.

async with request.rights.read(source_id, wire, AtEvent(0, 12)) as reader:
    while not reader.over:
        events = await reader.next(100, 65_536, within=3.0)
        ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kiwi_gw.model import Positions, Ranges


@dataclass(frozen=True, slots=True)
class AtEvent:
    """Begin in one partition with the event that has this offset, or the first one behind it; in others with
    the next to come. What the source no longer has, or does not have yet, is a refusal."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class ReadingOver:
    """Nothing more comes. code: a `RefusalCode`, or a `CloseReason` by its value. message: a sentence."""

    code: str
    message: str


class EventRun(Protocol):
    """Events that were encoded together."""

    @property
    def bytes(self) -> memoryview:
        """Return the fragments, one behind the other."""

    @property
    def events(self) -> int:
        """Return how many of them there are."""


class EventReader(Protocol):
    """Read events in the order in which they come. It is open while its block runs.

    positions: of the next event. lost: by partition, what was given up since that was last emptied, in order.
    over: None as long as something may come.
    """

    positions: Positions
    lost: list[Ranges]
    over: ReadingOver | None

    @property
    def behind(self) -> bool:
        """Whether there is more that is still to be fetched from where the source keeps its past."""

    async def next(self, most_events: int, most_bytes: int, within: float) -> Sequence[EventRun]:
        """Return what is there now, at most so many events and bytes or one event; else wait for something,
        so many seconds. Empty: nothing came, something was lost, or it is over."""
