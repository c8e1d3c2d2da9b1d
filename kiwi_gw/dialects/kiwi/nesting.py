"""A message that is nested too deeply to be read: its outline, so that it can be answered with words.

A reader that calls itself has to give up at some depth. This one keeps a list, and looks at nothing but
strings and brackets; it is bounded by how many of those it looks at, for that costs time (about 2 us each).
"""

from __future__ import annotations

import re

# One run of brackets, with whatever comes before it. The possessive quantifiers keep it linear.
_UP_TO_BRACKETS = re.compile(r'[^"\[\]{}]*+(?:"(?:[^"\\]|\\.)*+"[^"\[\]{}]*+)*+([\[{]++|[\]}]++)', re.DOTALL)
_MOST_RUNS = 2_000
_CLOSED_BY = str.maketrans("[{", "]}")


class TooMuch(Exception):  # noqa: N818  (it states what the message is)
    """The message has more brackets than are looked at."""


def outline(message: str) -> str | None:
    """The message with every array and object inside its outermost one emptied. None: its brackets do not
    match, so it is no JSON. Raises TooMuch."""
    waiting: list[str] = []  # what has to be closed, the outermost first
    kept: list[str] = []
    end = runs = 0
    while (found := _UP_TO_BRACKETS.match(message, end)) is not None:
        run, runs = found[1], runs + 1
        if runs > _MOST_RUNS:
            raise TooMuch
        if len(waiting) <= 1:
            kept.append(message[end : found.start(1)])
        if run[0] in "[{":
            kept.append(run[: max(0, 2 - len(waiting))])
            waiting.extend(run.translate(_CLOSED_BY))
        else:
            left = len(waiting) - len(run)
            if left < 0 or waiting[left:] != list(reversed(run)):
                return None
            del waiting[left:]
            if left < 2:
                kept.append(run[left - 2 :])
        end = found.end()
    return None if waiting else "".join(kept) + message[end:]
