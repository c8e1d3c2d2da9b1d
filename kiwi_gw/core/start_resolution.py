"""Where a subscription begins: from what was asked for to positions.

What lies in the source's window is found out at once; for the rest its history is asked, which takes time
(`runtime.history_task`). A source that cannot be read again has nothing but its window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.positions import furthest, reached
from kiwi_gw.core.window import Window
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import (
    AtOffset,
    AtPositions,
    AtTime,
    Committed,
    End,
    OffsetRange,
    Positions,
    Ranges,
    SourceInfo,
    Start,
    StartAt,
    UntilOffset,
)


@dataclass(frozen=True, slots=True)
class RequestedPositions:
    """`AtPositions`, read by the source's codec: they may say of which history they are."""

    positions: Positions
    skip_missing: bool


RequestedStart = StartAt | AtTime | AtOffset | RequestedPositions | Committed
"""`Start`, in the terms of the source."""


@dataclass(frozen=True, slots=True)
class ResolvedStart:
    """Complete positions, and what was asked for before them and is gone."""

    positions: Positions
    missing: Ranges = field(default_factory=dict)


def read_start(start: Start, info: SourceInfo) -> RequestedStart:
    """Read what is asked for, in the source's terms. Raises SubscribeRefused."""
    if isinstance(start, AtTime) and not info.replayable:
        raise SubscribeRefused(
            RefusalCode.START, "this source cannot be read again, so it has no past to look up"
        )
    if isinstance(start, Committed) and not (info.replayable and info.keeps_commits):
        raise SubscribeRefused(RefusalCode.START, "this source keeps no positions of groups")
    if not isinstance(start, AtPositions):
        return start
    return RequestedPositions(load_positions(start.positions, info), start.skip_missing)


def load_positions(positions: object, info: SourceInfo) -> Positions:
    """Read positions in the source's JSON form. Raises SubscribeRefused."""
    try:
        return info.codec.load(positions)
    except ValueError as error:
        raise SubscribeRefused(RefusalCode.POSITIONS, str(error)) from error


def check_partition_count(where: RequestedStart, known: Positions) -> None:
    """Refuse positions in more partitions than the source has: no origin is to be asked about them, and they
    need not be kept until an answer comes. Raises SubscribeRefused."""
    if isinstance(where, RequestedPositions) and len(where.positions) > len(known):
        named = len(where.positions)
        raise SubscribeRefused(
            RefusalCode.POSITIONS, f"{named} partitions are named, and there are {len(known)}"
        )


def resolve_in_window(
    where: RequestedStart, window: Window, info: SourceInfo, expected: Positions
) -> ResolvedStart | None:
    """Find where that is, if the window is enough to know it; None: its history must be asked. expected: how
    far the source will come in any case.

    Raises SubscribeRefused. Not for `latest`, which is the head, nor `snapshot`, which is no place.
    """
    oldest, live = window.oldest, window.positions
    held = OffsetRange(live if oldest is None else oldest.batch.starts, furthest(live, expected))
    if isinstance(where, RequestedPositions):
        complete = where.positions.keys() == held.end.keys()
        if complete and reached(where.positions, held.first) and reached(held.end, where.positions):
            return ResolvedStart(dict(where.positions))  # without what they said beside
    return None if info.replayable else resolve(where, held, info)


def resolve_in_known_range(
    where: RequestedStart, offset_range: OffsetRange, live: Positions
) -> ResolvedStart | None:
    """Find where that is, if it lies in what history had a moment ago, or between that and what is live;
    None: it must be asked anew. What was deleted meanwhile is announced when it is read."""
    if not isinstance(where, RequestedPositions) or where.positions.keys() != live.keys():
        return None
    if reached(where.positions, offset_range.first) and reached(
        furthest(offset_range.end, live), where.positions
    ):
        return ResolvedStart(dict(where.positions))
    return None


def resolve(where: RequestedStart, offset_range: OffsetRange, info: SourceInfo) -> ResolvedStart:
    """Find where that is in what the source has. Raises SubscribeRefused."""
    if isinstance(where, AtOffset):
        return ResolvedStart(_from_offset(where, offset_range))
    if isinstance(where, AtTime) and where.partitions is not None:
        first, end = offset_range.first, offset_range.end
        return ResolvedStart({p: o if p in where.partitions else end[p] for p, o in first.items()})
    if not isinstance(where, RequestedPositions):
        return ResolvedStart(offset_range.first)
    first, end = offset_range.first, offset_range.end
    for partition in where.positions:
        if partition not in first:
            raise _refused(f"there is no partition {partition}", offset_range, info)
    beyond = [p for p, offset in where.positions.items() if offset > end.get(p, 0)]
    if beyond:
        raise _refused(
            f"the next event of partition {beyond[0]} is before the one asked for", offset_range, info
        )
    missing = {p: (offset, first[p] - 1) for p, offset in where.positions.items() if offset < first[p]}
    if missing and not where.skip_missing:
        raise _refused("some of what was asked for is gone", offset_range, info)
    return ResolvedStart({p: max(where.positions.get(p, 0), offset) for p, offset in first.items()}, missing)


def _from_offset(where: AtOffset, offset_range: OffsetRange) -> Positions:
    first, end = offset_range.first, offset_range.end
    wanted = first if where.partitions is None else where.partitions
    return {p: min(max(where.offset, start), end[p]) if p in wanted else end[p] for p, start in first.items()}


def resolve_until(asked: End, end: Positions) -> Positions:
    """Find where it ends in the partitions that are to be read, the source's own end being there."""
    if not isinstance(asked, UntilOffset):
        return end
    wanted = end if asked.partitions is None else asked.partitions
    return {p: min(offset, asked.offset) for p, offset in end.items() if p in wanted}


def skip_unread_partitions(found: ResolvedStart, asked: End | None, end: Positions) -> ResolvedStart:
    """Begin at the end of the partitions that are not to be read, so that nobody reads them."""
    if not isinstance(asked, UntilOffset) or asked.partitions is None:
        return found
    wanted = asked.partitions
    here = {p: o if p in wanted else max(o, end.get(p, o)) for p, o in found.positions.items()}
    return ResolvedStart(here, {p: gone for p, gone in found.missing.items() if p in wanted})


def start_of_group(committed: Mapping[int, int], offset_range: OffsetRange) -> RequestedPositions:
    """Say where to go on that has come so far: where nothing is committed, with the next event; what is
    committed beyond the end was in a log that is gone."""
    end = offset_range.end
    here = {p: min(committed.get(p, end[p]), end[p]) for p in offset_range.first}
    return RequestedPositions(here, skip_missing=True)


def _refused(why: str, offset_range: OffsetRange, info: SourceInfo) -> SubscribeRefused:
    dump = info.codec.dump
    return SubscribeRefused(
        RefusalCode.POSITIONS,
        f"{why}; there is {_json(dump(offset_range.first))} to {_json(dump(offset_range.end))}",
    )


def _json(value: object) -> str:
    """Write it as a client would. (Positions hold nothing that needs an escape.)"""
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}": {_json(item)}' for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_json, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)
