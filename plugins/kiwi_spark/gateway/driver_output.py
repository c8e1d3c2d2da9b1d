"""Makes records of what a process writes: a line with the stack of Java or Python below it is one of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

LONGEST: Final = 8 * 1024
"""Bytes of a record. Of a longer line, and of a longer stack, the rest is left out, and it says how much."""

_CONTINUES: Final = re.compile(
    rb"\s|Caused by: |Suppressed: |Traceback \(most recent call last\)"
    rb"|(?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error)\b"
)
"""How a line begins that belongs to the one before it. The last: what Java threw, below what was said."""
_PYTHON: Final = re.compile(rb"(^|: )Traceback \(most recent call last\):")


class OutputRecords:
    """Makes the records of one stream: bytes in, whole records out."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._cut = 0
        self._record = bytearray()
        self._left_out = 0
        self._in_python = False

    def feed(self, data: bytes) -> Iterator[str]:
        """Return the records that are whole now. The last line may have others below it still: see `idle`."""
        *lines, last = data.split(b"\n")
        for line in lines:
            self._add(line)
            yield from self._take()
        self._add(last)

    def idle(self) -> Iterator[str]:
        """Return the record, if it is whole, once nothing came for a while."""
        if self._record and not self._line:
            yield self._end()

    def close(self) -> Iterator[str]:
        """Return what is left: nothing more will come."""
        if self._line:
            yield from self._take()
        yield from self.idle()

    def _add(self, part: bytes) -> None:
        room = LONGEST - len(self._line)
        self._line += part[:room]
        self._cut += max(0, len(part) - room)

    def _take(self) -> Iterator[str]:
        """Take a whole line. It begins a record, which ends the one before, or belongs to that."""
        line, cut = bytes(self._line), self._cut
        self._line.clear()
        self._cut = 0
        if not line.strip() and not self._record:
            return
        belongs = not line.strip() or _CONTINUES.match(line) is not None or self._in_python
        if self._record and not belongs:
            yield self._end()
        # What Python raised stands in the first line below its stack that is not indented.
        self._in_python = bool(_PYTHON.search(line)) or (self._in_python and line[:1].isspace())
        room = LONGEST - len(self._record)
        if self._record and line.strip():
            line = b"\n" + line
        self._record += line[:room]
        self._left_out += cut + max(0, len(line) - room)

    def _end(self) -> str:
        text = self._record.decode(errors="replace").rstrip()
        if self._left_out:
            text += f" ... ({self._left_out} bytes more)"
        self._record.clear()
        self._left_out, self._in_python = 0, False
        return text
