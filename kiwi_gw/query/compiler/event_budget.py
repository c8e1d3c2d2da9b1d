"""What the functions of a query make for one event: each result within its cap, and all of them together;
and what they read of its long texts and arrays.

Functions hand their results to other functions. So what is made on the way is counted too, and nothing that
one event brings about takes more room than this. A text of the event exists once, but 40 calls may look at
all of it, so reading is counted for each call.
"""

from __future__ import annotations

from sys import getsizeof
from typing import Final

from kiwi_gw.query.limits import MAX_MADE, MAX_READ
from kiwi_gw.query.values import RecordError, Value, check_count, check_text, convert

_LITTLE: Final = 64
"""Characters of a text that is not counted: a query has 500 calls at most."""
_ITEM: Final = 64
"""Bytes of an item of an array, beside its text."""
SHORT: Final = 4_096
"""Characters of a text, bytes of an array, that is read without being counted: by 300 calls, 1.2 MB."""
_READ: Final = 24
"""Bytes for which an item counts that is read, whatever it holds."""
FEW: Final = SHORT // _READ
"""Items of an array that is read so."""


class EventBudget:
    """Bound what one loop makes and reads for an event. left: bytes that may still be made for the current
    event; unread: bytes that may still be read. The loop sets both."""

    __slots__ = ("left", "unread")

    def __init__(self) -> None:
        self.left = MAX_MADE
        self.unread = MAX_READ

    def made(self, found: Value) -> Value:
        """Return a result that a function has made, if it is within its cap and the budget.

        Raises:
            RecordError: it is not.
        """
        kind = type(found)
        if kind is str:
            if len(found) > _LITTLE:  # type: ignore[arg-type]
                check_text(found)  # type: ignore[arg-type]
                self._take(getsizeof(found))
        elif kind is list:
            check_count(len(found))  # type: ignore[arg-type]
            self._take(weight(found, self.left))
        return found

    def text(self, value: Value) -> Value:
        """Cast to STRING; what was a text already is not made anew."""
        found = convert.to_string(value)
        return found if found is value else self.made(found)

    def read(self, value: Value, pace: int = 1) -> Value:
        """Return the value to a call that reads all of it. pace: how many bytes each byte counts for.

        Raises:
            RecordError: the calls for this event have read too much.
        """
        kind = type(value)
        if kind is str:
            size = len(value)  # type: ignore[arg-type]
        elif kind is list or kind is dict:
            size = _READ * len(value)  # type: ignore[arg-type]
        else:
            return value
        if size >= SHORT:
            self.unread -= pace * size
            if self.unread < 0:
                raise RecordError(f"the calls for one event read more than {MAX_READ} bytes")
        return value

    def _take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise RecordError(f"one event makes more than {MAX_MADE} bytes")


def weight(value: Value, most: int) -> int:
    """Count the bytes of a value as JSON, with its items; at most up to `most`."""
    if isinstance(value, list) and set(map(type, value)) == {str}:
        return _ITEM * (1 + len(value)) + sum(map(len, value))
    size = 0
    waiting = [value]
    while waiting and size <= most:
        one = waiting.pop()
        size += _ITEM
        if isinstance(one, str):
            size += len(one)
        elif isinstance(one, list | dict):
            if size + _ITEM * len(one) > most:
                return most + 1
            if isinstance(one, dict):
                size += sum(map(len, one))
                waiting.extend(one.values())
            else:
                waiting.extend(one)
    return size
