"""Path patterns: `/connections/{id}` stands for every path with one segment in the place of `{id}`, of 1 to
255 characters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar
from urllib.parse import unquote

T = TypeVar("T")

_PARAMETER = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_MOST_CHARACTERS = 255
NO_PARAMETERS: Mapping[str, str] = {}


class PathTable(Generic[T]):
    """Values by path pattern. Paths are matched as they were sent: nothing is decoded or normalised first.

    A path of its own wins over a pattern; of two patterns the one with fewer parameters.
    """

    def __init__(self) -> None:
        self._exact: dict[str, T] = {}
        self._patterns: dict[tuple[str | None, ...], tuple[str, Sequence[str], T]] = {}

    def add(self, pattern: str, value: T) -> None:
        """Put it into the table. ValueError: this is no pattern, or one for the same paths is there."""
        segments = _segments(pattern)
        if self.at(pattern) is not None:
            raise ValueError(f"{pattern} is served twice")
        if None not in segments:
            self._exact[pattern] = value
            return
        self._patterns[segments] = pattern, _PARAMETER.findall(pattern), value
        by_parameters = sorted(self._patterns.items(), key=lambda item: item[0].count(None))
        self._patterns = dict(by_parameters)

    def at(self, pattern: str) -> T | None:
        """Return the value of exactly this pattern, whatever its parameters are called."""
        found = self._patterns.get(_segments(pattern))
        return self._exact.get(pattern) if found is None else found[2]

    def find(self, path: str) -> tuple[str, T, Mapping[str, str]] | None:
        """Return the pattern that the path matches, its value, and the parameters, percent-decoded."""
        exact = self._exact.get(path)
        if exact is not None:
            return path, exact, NO_PARAMETERS
        given = path.split("/")
        for segments, (pattern, names, value) in self._patterns.items():
            if len(segments) == len(given) and (found := _parameters(segments, names, given)) is not None:
                return pattern, value, found
        return None


def _segments(pattern: str) -> tuple[str | None, ...]:
    """Return the segments of a pattern; None in the place of a parameter. ValueError: it is no pattern."""
    segments = pattern.split("/")
    names = [match[1] for segment in segments if (match := _PARAMETER.fullmatch(segment))]
    plain = [segment for segment in segments if not _PARAMETER.fullmatch(segment)]
    if not pattern.startswith("/") or any("{" in segment or "}" in segment for segment in plain):
        raise ValueError(f"{pattern!r} is not a path with whole segments as {{parameters}}")
    if len(set(names)) < len(names):
        raise ValueError(f"{pattern!r} names a parameter twice")
    return tuple(None if _PARAMETER.fullmatch(segment) else segment for segment in segments)


def _parameters(
    segments: Sequence[str | None], names: Sequence[str], given: Sequence[str]
) -> Mapping[str, str] | None:
    """Return the parameters, if the segments match."""
    texts = []
    for segment, text in zip(segments, given, strict=True):
        if segment is None:
            texts.append(text)
        elif segment != text:
            return None
    try:
        found = [unquote(text, errors="strict") for text in texts]
    except UnicodeDecodeError:
        return None
    if not all([0 < len(text) <= _MOST_CHARACTERS for text in found]):  # noqa: C419  (sooner)
        return None
    return dict(zip(names, found, strict=True))
