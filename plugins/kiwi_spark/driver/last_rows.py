"""Which row of each partition was the last, as the checkpoint of a query in real time knows it.

A client that comes back is behind its last row; a query that begins again is at its checkpoint, which may be
much further where few records make rows. That no row lies between can be told from this alone, once the
gateway that had them is gone.

    {checkpoint}/last-rows/{epoch}      lines: input, partition, and the record and row behind its last one

`LastRows.java` writes it before the epoch is noted as done. A partition without a row yet has the place where
the query began.
"""

from __future__ import annotations

from collections.abc import Mapping

from kiwi_spark.driver.checkpoint_files import CheckpointFiles
from kiwi_spark.driver.checkpoints import ResumePoint

Places = dict[str, dict[int, tuple[int, int]]]
"""By input and partition, a record and the number of one of its rows."""


def folder_of(place: ResumePoint) -> str:
    return f"{place.path}/last-rows"


def read_places(files: CheckpointFiles, place: ResumePoint, begin: Mapping[str, Mapping[int, int]]) -> Places:
    """Read the places behind the last rows. begin: where the query goes on; what is not known is there."""
    found: Places = {
        name: {p: (offset, 0) for p, offset in offsets.items()} for name, offsets in begin.items()
    }
    text = files.read(f"{folder_of(place)}/{place.next_batch - 1}") if place.next_batch else None
    for line in (text or "").splitlines():
        name, partition, record, row = line.split()
        if int(partition) in found.get(name, {}):
            # It may lie behind `begin`, which is the lowest of all inputs that read one topic.
            found[name][int(partition)] = int(record), int(row)
    return found


def as_text(places: Places) -> str:
    """Write them as in the file."""
    return "".join(
        f"{name} {partition} {record} {row}\n"
        for name, own in places.items()
        for partition, (record, row) in own.items()
    )
