"""What an expression is about: the values of a record, and marks where there is none.

A value is what JSON has (None, bool, int as BIGINT, float as DOUBLE, str, list, dict), and what functions
make besides: `date` (DATE) and `datetime` in UTC (TIMESTAMP).

`types` are known before there is a record. `convert` is CAST, `implicit_casts` are those that Spark adds;
`compare` and `arithmetic` are the operators. `datetimes` reads and writes dates and timestamps.
"""

from __future__ import annotations

from typing import Final, final

from kiwi_gw.query.limits import MAX_ITEMS, MAX_STRING

# JSON may have any depth; only its type says what a value is.
Value = object


@final
class Sentinel:
    """Mark a thing that is not a value. There is one of each, to be compared with `is`."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


# In a column: the bytes of this value could not be decoded. A query that needs it cannot be evaluated.
UNDECODABLE: Final = Sentinel("UNDECODABLE")
# For functions and columns that tell a member that is not there from one that is null.
MISSING: Final = Sentinel("MISSING")


class RecordError(Exception):
    """Report that an expression cannot be evaluated for this record, which is bad. The next may be good."""


def check_text(text: str) -> str:
    """Return the text, if it is no longer than a result may be.

    Raises:
        RecordError: it is longer than MAX_STRING bytes of UTF-8.
    """
    if len(text) > MAX_STRING // 4 and len(text.encode("utf-8", "surrogatepass")) > MAX_STRING:
        raise RecordError(f"a result of more than {MAX_STRING} bytes")
    return text


def check_length(characters: int) -> None:
    """Check the length of a string before it is made.

    Raises:
        RecordError: it would be longer than a result may be.
    """
    if characters > MAX_STRING:
        raise RecordError(f"a result of more than {MAX_STRING} bytes")


def check_count(count: int) -> None:
    """Check the length of an array before it is made."""
    if count > MAX_ITEMS:
        raise RecordError(f"an array of more than {MAX_ITEMS} items")
