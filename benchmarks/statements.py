"""What statements of Lenses' SQL v2 are asked, and what they must be answered."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from benchmarks import records
from benchmarks.frames import bounds, masked

PATH = "/api/ws/v2/sql/execute"
RECORD = b'{"type":"RECORD"'
END = b'{"type":"END"}'
KINDS = (b'{"type":"METADATA"', RECORD, b'{"type":"HEARTBEAT"', b'{"type":"STATS"', END)
"""How messages begin that may come; all others are faults."""

PASSING = "delay < -9"
"""A condition on the value that one record in 61 passes (see `records.value`)."""

PASSING_BY_PLACE = "_meta.offset % 61 = 0"
"""One that looks at no value, and narrows nothing either."""

_NUMBER = re.compile(rb'"n":(\d+)')


def select(table: str, where: str = "") -> str:
    """Return a statement for all of each record that passes."""
    return f"SELECT * FROM `{table}`" + (f" WHERE {where}" if where else "")  # noqa: S608


def message(sql: str) -> bytes:
    """Return the frame that has a statement executed."""
    return masked({"sql": sql, "token": "any"})


def passing(where: str, count: int, partitions: int) -> Iterator[int]:
    """Return the numbers of those of the first `count` records that pass."""
    if where == PASSING:
        return (n for n in range(count) if json.loads(records.value(n, 128))["delay"] < -9)
    if where == PASSING_BY_PLACE:
        return (n for n in range(count) if n // partitions % 61 == 0)
    return iter(range(count))


def payloads(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Take the frames apart that a server has sent."""
    rest = b""
    for chunk in chunks:
        data, at = rest + chunk, 0
        while (found := bounds(data, at)) is not None:
            begin, at = found
            yield data[begin:at]
        rest = data[at:]


def faults(chunks: Iterable[bytes], expected: Iterable[int], partitions: int) -> list[str]:
    """Say what is wrong with the answers to a statement: every record comes once, in the order of its
    partition, and END is behind the last. expected: the numbers of the records."""
    heard: list[list[int]] = [[] for _ in range(partitions)]
    wrong: list[str] = []
    last = b""
    for last in payloads(chunks):
        if last.startswith(RECORD):
            number = _NUMBER.search(last)
            if number is None:
                wrong.append(f"a record without a number: {last!r}")
            else:
                heard[int(number[1]) % partitions].append(int(number[1]))
        elif not last.startswith(KINDS):
            wrong.append(f"not asked for: {last[:200]!r}")
        if last == END:
            break
    if last != END:
        wrong.append(f"it ended with {last[:200]!r}")
    due: list[list[int]] = [[] for _ in range(partitions)]
    for one in expected:
        due[one % partitions].append(one)
    if heard != due:
        wrong.append(
            f"{sum(map(len, heard)):,} records instead of {sum(map(len, due)):,}, or others, or in disorder"
        )
    return wrong[:5]
