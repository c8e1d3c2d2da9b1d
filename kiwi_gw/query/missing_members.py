"""Which members that a filter names were in none of the newest events: what a typo looks like from outside.

They are sought once for a subscription that has passed nothing for a while, and never per event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kiwi_gw.model import Batch, Decode
from kiwi_gw.query.decode import decoded_column, objects
from kiwi_gw.query.errors import did_you_mean
from kiwi_gw.query.tree import Path, Query, walk
from kiwi_gw.query.values import Value

MOST_EVENTS: Final = 20
MOST_BYTES: Final = 16_384
"""Events that are decoded, and bytes of their values: a larger one is not looked at."""

_NAMED, _SHOWN = 3, 64


def missing_members(query: Query, batches: Sequence[Batch], decode: Decode) -> str | None:
    """Return a sentence that names the members of `value` which the filter has and none of the newest events.
    None: the filter names none such, or no event could be looked at. batches: the newest, in order."""
    if query.where is None:
        return None
    values = list(_values(batches, decode))
    if not values:
        return None
    paths = {part.key: part for part in walk(query.where) if isinstance(part, Path) and part.root == "value"}
    strange = [
        path for path in paths.values() if path.steps and all(_at(v, path.steps) is _NOTHING for v in values)
    ]
    if not strange:
        return None
    named = ", ".join(_name(path) + _hint(path, values) for path in strange[:_NAMED])
    more = f" and {len(strange) - _NAMED} more" if len(strange) > _NAMED else ""
    return f"none of the newest {len(values)} events has {named}{more}"


def _values(batches: Sequence[Batch], decode: Decode) -> Iterator[Value]:
    left, size = MOST_EVENTS, MOST_BYTES
    for batch in reversed(batches):
        newest = slice(max(0, len(batch) - left), len(batch))
        left -= len(batch)
        columns = {name: column[newest] for name, column in batch.columns.items()}
        if "value" not in columns:
            yield from objects(list(columns), columns.values())
        else:
            for index, value in enumerate(columns["value"]):
                weight = len(value) if isinstance(value, bytes | str) else 0
                if weight <= size:
                    size -= weight
                    yield from decoded_column(decode, "value", columns, slice(index, index + 1))
        if left <= 0:
            return


_NOTHING: Final = object()


def _at(value: object, steps: Sequence[str | int]) -> object:
    for step in steps:
        match value, step:
            case dict(), str() if step in value:
                value = value[step]
            case list(), int() if 0 <= step < len(value):
                value = value[step]
            case _:
                return _NOTHING
    return value


def _name(path: Path) -> str:
    words = path.root + "".join(f".{step}" if isinstance(step, str) else f"[{step}]" for step in path.steps)
    return words if len(words) <= _SHOWN else f"{words[:_SHOWN]}..."


def _hint(path: Path, values: Sequence[Value]) -> str:
    """Name the nearest member that there is, where the way to it is right."""
    meant = path.steps[-1]
    if not isinstance(meant, str):
        return ""
    above = [_at(value, path.steps[:-1]) for value in values]
    names = {name for each in above if isinstance(each, dict) for name in list(each)[:_SHOWN]}
    return did_you_mean(meant, sorted(names))
