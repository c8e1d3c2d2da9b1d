"""A statement of SQL v2 before a batch: the frames that it gives, and what it counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from kiwi_gw.dialects.lenses.any_queries import checked_any, parse_any
from kiwi_gw.dialects.lenses.queries import ReadStatement, applied
from kiwi_gw.dialects.lenses.v2.records import RecordForm, records_wire
from kiwi_gw.model import Batch, Decode, Encoded, EventSchema, SourceInfo, WireFormat
from tests.edge.wire import FrameReader

FIRST = 7
"""The offset of the first event of a batch."""

TIME = 1_795_250_845_120
TIME_TEXT = "2026-11-21T08:47:25.120Z"

Message = dict[str, Any]


def read(sql: str) -> ReadStatement:
    found = parse_any(checked_any(sql))
    assert isinstance(found, ReadStatement)
    return found


def batch(
    values: Sequence[object] | None, keys: Sequence[object] | None = None, **columns: Sequence[object]
) -> Batch:
    """Events of partition 0; None: they have no values. columns: more, or others, of as many."""
    size = len(next(iter(columns.values())) if values is None else values)
    parts: dict[str, Sequence[object]] = {} if keys is None else {"key": keys}
    if values is not None:
        parts["value"] = values
    named = {"timestamp": [TIME] * size} | columns
    return Batch({0: FIRST}, [0] * size, range(FIRST, FIRST + size), {**parts, **named}, 1)


def wire(
    sql: str,
    decode: Decode = Decode(),  # noqa: B008
    form: RecordForm = RecordForm("t"),  # noqa: B008
    most: int = 10**6,
) -> WireFormat:
    """The wire format of a statement for a source that is read so."""
    statement = read(sql).statement
    source = SourceInfo("t", "fake", EventSchema(()), decode=decode)
    return records_wire(form, statement.query.select is not None, applied(statement, {}, source), most)


def messages(made: Encoded) -> list[Message | None]:
    """The message of each event; None: it has none."""
    found: list[Message | None] = []
    begin = 0
    for end in made.ends:
        frames = FrameReader().feed(made.buffer[begin:end])
        assert len(frames) <= 1
        found.append(json.loads(frames[0].payload) if frames else None)
        begin = end
    assert begin == len(made.buffer)
    return found


def counts(made: Encoded) -> dict[str, list[int]]:
    """How many there are of each event under each label."""
    labels = made.prefix_counts_by_label
    return {
        str(label): [after - before for before, after in pairwise(prefix)]
        for label, prefix in ((label, list(prefix)) for label, prefix in labels.items())
    }
