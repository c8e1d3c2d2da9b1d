"""Text from outside on a terminal: nothing in an event, a log field or a close reason may steer it."""

from __future__ import annotations

import os
import re
from typing import Protocol

# C0, DEL and C1 drive the terminal; the bidirectional marks reorder what is shown, so that text reads
# other than it is; U+2028 and U+2029 break lines; a lone surrogate cannot be written at all.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def escape(text: str) -> str:
    """Put the text on one line, with every control character made visible: `\\n`, `\\x1b`, `\\u202e`."""
    return _UNSAFE.sub(_visible, text)


def escape_json(text: str) -> str:
    """Put the same JSON document on one line, harmless to a terminal.

    JSON allows C0 characters between tokens only, where a space means the same; all others can stand
    only within strings, where `\\uXXXX` means the same.
    """
    return _UNSAFE.sub(_visible_json, text)


def _visible(match: re.Match[str]) -> str:
    character = match[0]
    number = ord(character)
    return _SHORT.get(character) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")


def _visible_json(match: re.Match[str]) -> str:
    number = ord(match[0])
    return " " if number < 0x20 else f"\\u{number:04x}"


class TextStream(Protocol):
    def isatty(self) -> bool: ...


def wants_colour(stream: TextStream) -> bool:
    """Return whether to colour what goes there: to a terminal, not a dumb one, without NO_COLOR set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
