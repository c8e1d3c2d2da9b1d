"""The concrete topic of every event of a source.

A field of a template is text as it is, a number or a boolean as JSON writes it. A value that is null,
missing, an array or an object, or cannot be decoded, makes no topic. A `/` in a field makes more levels, for
a field may hold a whole topic. An event makes no topic either if it would have an empty level, fewer than two
levels or too many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final, Protocol

import msgspec

from kiwi_gw.dialects.zetta.topic_templates import FieldPath, TopicTemplate, field_path, template
from kiwi_gw.dialects.zetta.topics import MAX_LEVELS, TopicPattern
from kiwi_gw.query.values import MISSING, UNDECODABLE, Value

MAX_TOPIC: Final = 1024
"""Bytes of the topic of an event."""

_MOST_TOPICS: Final = 16_384
"""Topics that are remembered by the text in their only field."""

_encode = msgspec.json.Encoder().encode


class ColumnAccess(Protocol):
    """Name what is read of `kiwi_gw.query.decoded_batch.DecodedBatch`."""

    def column(self, root: str) -> Sequence[Value]: ...


class TopicNaming:
    """Hold the topics of one source's events.

    static: the one topic of all of them, None: they have fields.
    """

    __slots__ = ("_levels", "_remembered", "_template", "static")

    def __init__(self, text: str) -> None:
        """Raise ValueError, in words, for a wrong template."""
        self._template = template(text)
        self._levels = self._template.levels
        self.static: Final = None if self._template.paths else text
        self._remembered = _TopicMemo(self._template) if len(self._template.paths) == 1 else None

    def topics(self, view: ColumnAccess) -> Sequence[str | None]:
        """Return the topic of every event of a batch; None: it has none."""
        columns = [_values(view, where) for where in self._template.paths]
        if not columns:
            return [self.static] * len(view.column("offset"))
        if self._remembered is not None:
            return self._remembered.of(columns[0])
        return [_topic(self._template, values) for values in zip(*columns, strict=True)]

    def may_match(self, pattern: TopicPattern) -> bool:
        """Return whether some event may have a topic that the pattern means."""
        if self.static is not None:
            return pattern.matches(self.static)
        return pattern.may_match(self._levels)

    def must_match(self, pattern: TopicPattern) -> bool:
        """Return whether a pattern that may match means the topics of all events."""
        return self.static is not None or pattern.must_match(self._levels)


def at(view: ColumnAccess, path: str) -> Sequence[Value]:
    """Return the values at a path (`value.readings[0].celsius`) of every event of a batch: MISSING where it
    has no such member, UNDECODABLE where that is unknown. ValueError for a wrong path."""
    return _values(view, _field_path(path))


_field_path = lru_cache(maxsize=1024)(field_path)


def _values(view: ColumnAccess, where: FieldPath) -> Sequence[Value]:
    column = view.column(where.root)
    for step in where.steps:
        column = list(map(_member(step), column))
    return column


def _member(step: str | int) -> Callable[[Value], Value]:
    if isinstance(step, str):

        def member(value: Value) -> Value:
            if isinstance(value, dict):
                return value.get(step, MISSING)
            return value if value is UNDECODABLE else MISSING

        return member

    def item(value: Value) -> Value:
        if isinstance(value, list) and step < len(value):
            return value[step]
        return value if value is UNDECODABLE else MISSING

    return item


def _field(value: Value) -> str | None:
    """Return the text of a value in a topic."""
    if type(value) is str:
        return value
    if isinstance(value, bool | int | float):
        return _encode(value).decode()
    return None


def _topic(made_by: TopicTemplate, values: Iterable[Value]) -> str | None:
    texts = iter(made_by.texts)
    parts = [next(texts)]
    for value, text in zip(values, texts, strict=True):
        field = _field(value)
        if field is None:
            return None
        parts += (field, text)
    topic = "".join(parts)
    if len(topic) > MAX_TOPIC:
        return None
    levels = topic.split("/")
    if not 2 <= len(levels) <= MAX_LEVELS or not all(levels):
        return None
    try:
        return topic if len(topic.encode()) <= MAX_TOPIC else None
    except UnicodeEncodeError:
        return None


class _TopicMemo(dict[str, str | None]):
    """Keep topics by the text of the only field of their template."""

    def __init__(self, made_by: TopicTemplate) -> None:
        super().__init__()
        self._template = made_by

    def __missing__(self, text: str) -> str | None:
        topic = _topic(self._template, (text,))
        if len(self) >= _MOST_TOPICS:
            self.clear()
        if len(text) <= MAX_TOPIC:
            self[text] = topic
        return topic

    def of(self, column: Sequence[Value]) -> list[str | None]:
        made_by = self._template
        return [self[value] if type(value) is str else _topic(made_by, (value,)) for value in column]
