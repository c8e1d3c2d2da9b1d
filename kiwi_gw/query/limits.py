"""The limits of a client's query and of its results."""

from __future__ import annotations

from typing import Final

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.tree import Cast, FunctionCall, Node, Path, Query

# Of the text of a query: characters, and bytes of its UTF-8.
MAX_TEXT: Final = 4096
# Of its tree: the depth of calls in calls; and calls, casts, paths and constants in all.
MAX_DEPTH: Final = 50
MAX_NODES: Final = 300
# Steps of one path.
MAX_STEPS: Final = 50
# Characters of texts whose trees are kept, of either language; and of trees, as text, that are kept compiled.
MAX_KEPT: Final = 65_536
# Bytes of UTF-8 of a string that a function makes, items of an array, and of the JSON text of a projection.
MAX_STRING: Final = 65_536
MAX_ITEMS: Final = 10_000
MAX_PROJECTION: Final = 1_048_576
# Bytes of all that one evaluation makes for one event, and of a text that is read as JSON.
MAX_MADE: Final = 1_048_576
MAX_JSON: Final = 1_048_576
# Bytes that the calls of one evaluation read of long texts and arrays of one event, each time anew.
MAX_READ: Final = 8_388_608
# Of the result of a call on constants that is kept instead of the call: bytes, and items of an array.
MAX_FOLDED: Final = 1_024
MAX_FOLDED_ITEMS: Final = 64
# Characters of constants that a regular expression looks at while the query is compiled.
MAX_FOLDED_PATTERN: Final = 256
# Instructions of the program that RE2 makes of a pattern, and of all patterns of a query; the time for a text
# grows with both.
MAX_PROGRAM: Final = 2_000
MAX_PROGRAMS: Final = 4_000
# Bytes of a regular expression; what its `{n}` add up to; its classes with tables (`\pL`, `[[:^alpha:]]`).
MAX_PATTERN: Final = 1_024
MAX_COUNTED: Final = 1_000
MAX_TABLES: Final = 8
# Bytes that a query keeps: its texts, trees, constants, code, and the programs of its patterns.
MAX_QUERY: Final = 65_536


def check_text(text: str) -> None:
    """Check the length of a text before it is read.

    Raises:
        QueryError: the text is too long to be read at all.
    """
    if len(text) > MAX_TEXT or len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT:
        raise QueryError(f"the query is longer than {MAX_TEXT} bytes", MAX_TEXT)


def check_size(query: Query) -> None:
    """Check the depth and the number of nodes of a tree.

    Raises:
        QueryError: the tree is too deep or has too many nodes.
    """
    waiting: list[tuple[Node, int]] = []
    if query.where is not None:
        waiting.append((query.where, 1))
    waiting.extend((column.value, 1) for column in query.select or ())
    count = 0
    while waiting:
        node, depth = waiting.pop()
        count += 1
        if depth > MAX_DEPTH:
            raise QueryError(f"the query is nested more than {MAX_DEPTH} deep", node.position)
        if count + len(waiting) > MAX_NODES:
            raise QueryError(f"the query has more than {MAX_NODES} terms", node.position)
        if isinstance(node, FunctionCall):
            waiting.extend((argument, depth + 1) for argument in node.arguments)
        elif isinstance(node, Cast):
            waiting.append((node.value, depth + 1))
        elif isinstance(node, Path) and len(node.steps) > MAX_STEPS:
            raise QueryError(f"a path of more than {MAX_STEPS} steps", node.position)
