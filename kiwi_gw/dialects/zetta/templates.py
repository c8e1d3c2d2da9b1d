"""The topics that a source's events have, as its configuration says: text with fields of the event in braces.

hub/thermostat/{key}/temperature
{value.topic}
hub/{value.kind}/{value.ids[0]}/{headers.stream}
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

ROOTS: Final = ("key", "value", "partition", "offset", "timestamp", "headers")
"""What a field begins with: what queries see of an event, too."""

_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_PATH: Final = re.compile(r"([a-z]+)((?:\.[^.\[\]{}]+|\[[0-9]{1,9}\])*)")
_STEP: Final = re.compile(r"\.([^.\[\]{}]+)|\[([0-9]+)\]")


@dataclass(frozen=True, slots=True)
class Place:
    """Where in an event a value is: what it begins with, then members and, from 0, array items."""

    root: str
    steps: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class Template:
    """Text and fields in turn: `texts` is one longer than `places`."""

    texts: tuple[str, ...]
    places: tuple[Place, ...]

    @property
    def levels(self) -> tuple[str | None, ...]:
        """The levels; None: one with a field in it, and that may become several."""
        return tuple(None if "\0" in level else level for level in "\0".join(self.texts).split("/"))


def place(text: str) -> Place:
    """Reads `value.reading.items[0]`. ValueError, in words, for what is none."""
    found = _PATH.fullmatch(text)
    if found is None or found[1] not in ROOTS:
        raise ValueError(
            f"{text!r} is no field of an event: one begins with {', '.join(ROOTS[:-1])} or {ROOTS[-1]}, and "
            "goes on with members and items, as in value.readings[0].celsius"
        )
    steps = (int(item) if item else name for name, item in _STEP.findall(found[2]))
    return Place(found[1], tuple(steps))


def template(text: str) -> Template:
    """Reads a template. ValueError, in words, for one that never makes a topic."""
    pieces = _FIELD.split(text)
    texts, fields = tuple(pieces[::2]), pieces[1::2]
    if any("{" in piece or "}" in piece for piece in texts):
        raise ValueError("a brace belongs to a field, as in {key} or {value.id}")
    if "\0" in text:
        raise ValueError("a topic is text that people can read")
    if not all("\0".join(texts).split("/")):
        raise ValueError("a level of the topic is empty: it is written as server/type/id/stream")
    return Template(texts, tuple(map(place, fields)))
