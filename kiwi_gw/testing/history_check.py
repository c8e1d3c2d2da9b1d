"""Reads the history of a source, and compares it with what the source has published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import trio

from kiwi_gw.api import History, HistoryReader
from kiwi_gw.core.positions import reached
from kiwi_gw.model import Batch, EventSchema, Positions
from kiwi_gw.testing.batch_rules import broken, check_batch, check_positions

Rows = Mapping[int, Sequence[tuple[int, tuple[object, ...]]]]
"""Partition -> its events as (offset, values)."""


async def check_history(
    source: History,
    first: Positions,
    until: Positions,
    event_schema: EventSchema,
    rows_of: Callable[[list[Batch]], Rows],
    rows: Rows,
) -> None:
    """Check the history against `rows`, which the source published between two positions. AssertionError says
    which rule it breaks."""
    offset_range = await source.offset_range()
    for what, positions in (
        ("offset_range().first", offset_range.first),
        ("offset_range().end", offset_range.end),
    ):
        check_positions(what, positions)
        if positions.keys() != until.keys():
            broken(f"{what} must name every partition: {sorted(until)}, not {sorted(positions)}")
    if not reached(offset_range.end, until):
        broken(f"offset_range().end is {dict(offset_range.end)}, before what was published: {dict(until)}")
    for timestamp in (0, 2**53):
        found = await source.at(timestamp)
        check_positions(f"at({timestamp})", found)
        if found.keys() != until.keys():
            broken(f"at({timestamp}) must name every partition: {sorted(until)}, not {sorted(found)}")
    async with source.read_from(dict(first)) as reader:
        with trio.CancelScope() as scope:
            scope.cancel()
            await reader.read(until)
        batches = await _read_all(reader, first, until, event_schema)
        again = rows_of(batches)
        for partition, before in rows.items():
            expected = [row for row in before if first[partition] <= row[0] < until[partition]]
            found_rows = list(again.get(partition, ()))
            if found_rows != expected:
                broken(
                    f"history gives {len(found_rows)} events of partition {partition} where "
                    f"{len(expected)} were published, or others: {_difference(expected, found_rows)}"
                )
        last = await reader.read(until)
        if len(last) or not reached(last.starts, until):
            broken("a reader that has arrived must give an empty batch whose starts are there")


async def _read_all(
    reader: HistoryReader, first: Positions, until: Positions, event_schema: EventSchema
) -> list[Batch]:
    batches: list[Batch] = []
    here: Positions = dict(first)
    while not reached(here, until):
        batch = await reader.read(until)
        after = check_batch(batch, here, event_schema)
        for partition, offset in zip(batch.partitions, batch.offsets, strict=True):
            if offset >= until.get(partition, 0):
                broken(f"read was to stop before {until.get(partition)}, and gave {offset} of {partition}")
        if after == here:
            broken(f"read gave nothing and did not move on from {dict(here)}, on its way to {dict(until)}")
        here = after
        batches.append(batch)
    return batches


def _difference(expected: Sequence[object], found: Sequence[object]) -> str:
    index = next((n for n, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1]), None)
    if index is None:
        index = min(len(expected), len(found))
    return f"the first that differs is {expected[index : index + 1]}, read again {found[index : index + 1]}"
