"""What an expression is about: the values of a record, and the marks for what is no value.

A value is what JSON has (None, bool, int as BIGINT, float as DOUBLE, str, list, dict), and what functions
make besides: bytes (BINARY), `date` (DATE) and `datetime` in UTC (TIMESTAMP).

`types` are known before there is a record. `convert` is CAST, `implicit` are the casts that nobody wrote;
`compare` and `arithmetic` are the operators. `moments` reads and writes dates and timestamps, `formats` does
so by a pattern.
"""

from __future__ import annotations

from typing import Final, final

from kiwi_gw.query.limits import MAX_ITEMS, MAX_STRING

# JSON is as deep as it likes to be; what a value is, only its type says.
Value = object


@final
class Mark:
    """A thing that is no value. There is one of each, to be compared with `is`."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


# In a column: the bytes of this value could not be decoded. A query that needs it cannot be evaluated.
UNDECODABLE: Final = Mark("UNDECODABLE")
# For functions and columns that tell a member that is not there from one that is null.
MISSING: Final = Mark("MISSING")


class RecordError(Exception):
    """An expression cannot be evaluated for this record: it is bad, and the next one may be good."""


def bounded(text: str) -> str:
    """The text, if it is no longer than a result may be.

    Raises:
        RecordError: it is longer than MAX_STRING bytes of UTF-8.
    """
    if len(text) > MAX_STRING // 4 and len(text.encode("utf-8", "surrogatepass")) > MAX_STRING:
        raise RecordError(f"a result of more than {MAX_STRING} bytes")
    return text


def room(characters: int) -> None:
    """Asks before a string of so many characters is made.

    Raises:
        RecordError: it would be longer than a result may be.
    """
    if characters > MAX_STRING:
        raise RecordError(f"a result of more than {MAX_STRING} bytes")


def items(count: int) -> None:
    """The same for an array of so many items."""
    if count > MAX_ITEMS:
        raise RecordError(f"an array of more than {MAX_ITEMS} items")
