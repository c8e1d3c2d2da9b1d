"""Where a reader is in a source, and how that is written for clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

Positions = Mapping[int, int]
"""Partition -> offset of the next event that a reader has not had. The numbers are the source's own
(Kafka: partition and offset; a source without partitions uses partition 0). What clients see of them
is made by the source's `PositionCodec`."""


Ranges = Mapping[int, tuple[int, int]]
"""Partition -> (first, last) offset of a run that was given up, both inclusive."""


def _dump_ranges(ranges: Ranges) -> dict[str, tuple[object, object]]:
    return {str(p): ranges[p] for p in sorted(ranges)}


@dataclass(frozen=True, slots=True)
class PositionCodec:
    """Write a source's positions as JSON for clients, and read them back.

    `dump` returns a JSON object; `load` raises ValueError, in words, for one that it did not write.
    dump_ranges: how ranges are written where they are announced (LAG): by partition, the first and the last
    event.
    """

    dump: Callable[[Positions], dict[str, object]]
    load: Callable[[object], Positions]
    dump_ranges: Callable[[Ranges], dict[str, tuple[object, object]]] = _dump_ranges


def _load_partitions(value: object) -> Positions:
    if not isinstance(value, dict):
        raise ValueError("positions must be an object of partition numbers and next offsets")  # noqa: TRY004
    positions: dict[int, int] = {}
    for name, offset in value.items():
        if not (isinstance(name, str) and name.isascii() and name.isdigit()):
            raise ValueError(f"{name!r} is not a partition number")
        if type(offset) is not int or offset < 0:
            raise ValueError(f"the offset of partition {name} must be a non-negative integer")
        positions[int(name)] = offset
    return positions


BY_PARTITION = PositionCodec(
    dump=lambda positions: {str(p): positions[p] for p in sorted(positions)}, load=_load_partitions
)
"""The default codec: `{"0": 12, "1": 7}`."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Say what a source still has of every partition: its first event, and where the next to come will be."""

    first: Positions
    end: Positions


class Lineage(Protocol):
    """Say of which history positions are, so that no reader goes on in another one with the same numbers.

    It writes members beside the positions that clients are given. Where the source's codec reads them back,
    what it returns says of which history the positions are; without, they are taken as they are.
    """

    @property
    def life(self) -> int | None:
        """Return 48 bits that say what the source reads: others when that was made anew, under the same name.
        None: it is not known."""

    def marks(self, positions: Positions) -> Mapping[str, object]:
        """Return what is written beside these positions."""

    def knows(self, given: Positions) -> bool:
        """Say whether `refuted` can answer; else `learn` comes first. given: as the codec read it."""

    async def learn(self, given: Sequence[Positions]) -> None:
        """Ask the origin once about all of these, however many clients have brought them, in turns with other
        tasks. It may not be able to say yet: see `knows`."""

    def unknown(self, given: Positions) -> str:
        """Say what the origin has not said yet of these positions; empty if nothing."""

    def refuted(self, given: Positions) -> str | None:
        """Say why these positions are of another history; None if they are not."""


@runtime_checkable
class HasLineage(Protocol):
    """Say of which history a source's positions are. For sources whose offsets may come to mean other events
    (a topic that is created anew, a log that is cut off). Such a source must be an `api.History`, too."""

    @property
    def lineage(self) -> Lineage:
        """Return the lineage of its positions; the right one from before `Source.run` calls `ready` on."""
