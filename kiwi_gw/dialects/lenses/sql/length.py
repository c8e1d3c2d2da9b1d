"""Refuses statements that would be too long when they are written for an engine.

A character may become ten, and a name in GROUP BY or ORDER BY stands for all of its column: of 3 KiB that a
client writes there could be 3 MiB, which the event loop would write and the engine read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kiwi_gw.dialects.lenses.sql.spark_text import constant_text
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.tree import FunctionCall, Literal, Node, Path, walk

MAX_WRITTEN: Final = 32_768
"""Characters of all expressions, each as often as it stands for something."""

_AROUND: Final = 16
"""What stands around a part, about."""


def check_length(nodes: Iterable[Node]) -> None:
    """Raise QueryError, with the position, where trees are longer than that together."""
    left, lengths = MAX_WRITTEN, dict[str, int]()
    for node in nodes:
        for each in walk(node):
            left -= _AROUND + sum(_length(text, lengths) for text in _texts(each))
            if left < 0:
                words = f"it is too long: written out for Spark it has more than {MAX_WRITTEN:,} characters"
                raise QueryError(words, each.position)


def _texts(node: Node) -> Iterable[str]:
    """Return the texts that are written of a node itself."""
    match node:
        case Literal(str() as value):
            return (value,)
        case Path(_, steps):
            return [step for step in steps if isinstance(step, str)]
        case FunctionCall(name):
            return (name,)
    return ()


def _length(text: str, lengths: dict[str, int]) -> int:
    """Return what a text is long when it is written. lengths: of those that were looked at."""
    if (found := lengths.get(text)) is None:
        found = lengths[text] = len(constant_text(text))
    return found
