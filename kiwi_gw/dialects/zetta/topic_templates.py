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
"""What a field may begin with: the same as in queries."""

_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_PATH: Final = re.compile(r"([a-z]+)((?:\.[^.\[\]{}]+|\[[0-9]{1,9}\])*)")
_STEP: Final = re.compile(r"\.([^.\[\]{}]+)|\[([0-9]+)\]")


@dataclass(frozen=True, slots=True)
class FieldPath:
    """Say where in an event a value is: what it begins with, then members and array items (from 0)."""

    root: str
    steps: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicTemplate:
    """Hold text and fields in turn: `texts` is one longer than `paths`."""

    texts: tuple[str, ...]
    paths: tuple[FieldPath, ...]

    @property
    def levels(self) -> tuple[str | None, ...]:
        """Return the levels; None: one with a field in it, and that may become several."""
        return tuple(None if "\0" in level else level for level in "\0".join(self.texts).split("/"))


def field_path(text: str) -> FieldPath:
    """Read `value.reading.items[0]`. ValueError, in words, for a text that is not a path."""
    found = _PATH.fullmatch(text)
    if found is None or found[1] not in ROOTS:
        raise ValueError(f"must be a path like value.celsius, from {', '.join(ROOTS)}, not {text!r}")
    steps = (int(item) if item else name for name, item in _STEP.findall(found[2]))
    return FieldPath(found[1], tuple(steps))


def template(text: str) -> TopicTemplate:
    """Read a template. ValueError, in words, for one that never makes a topic."""
    pieces = _FIELD.split(text)
    texts, paths = tuple(pieces[::2]), tuple(map(field_path, pieces[1::2]))
    if any("{" in piece or "}" in piece for piece in texts):
        raise ValueError(f"has a brace without its other one: {text!r}")
    if not all(text.split("/")):
        raise ValueError(f"has an empty level: {text!r}")
    return TopicTemplate(texts, paths)
