"""The lines of a text file as a source, and an interceptor that hides its comments."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import trio

from kiwi_gw.api import (
    Batch,
    EventSchema,
    Field,
    FieldEncoding,
    Identity,
    Interceptor,
    Positions,
    Publisher,
    Record,
    Section,
    Source,
    SourceContext,
    SourceInfo,
    SourceType,
    hookimpl,
)


class LinesSettings(Section):
    type: Literal["lines"]
    id: str
    path: Path


SHAPE = EventSchema(
    (
        Field("sourceId", FieldEncoding.SOURCE_ID),
        Field("line", FieldEncoding.INT, "offset"),
        Field("value", FieldEncoding.TEXT),
    )
)


class Lines:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        first = start[0] if start else 0
        await publisher.ready({0: first})
        async with await trio.open_file(self._path, "rb") as file:
            number = 0
            async for line in file:
                if number >= first:
                    text = line.rstrip(b"\r\n")
                    await publisher.publish(
                        Batch({0: number}, [0], [number], {"value": [text]}, cost=len(text))
                    )
                number += 1


def build(settings: Section, context: SourceContext) -> Source:
    assert isinstance(settings, LinesSettings)
    return Lines(settings.path)


@hookimpl
def source_types() -> list[SourceType]:
    return [SourceType("lines", LinesSettings, build, SHAPE)]


def without_comments(record: Record) -> Record | None:
    value = record["value"]
    return None if isinstance(value, bytes) and value.startswith(b"#") else record


@hookimpl
def intercept(identity: Identity, source: SourceInfo) -> Interceptor | None:
    if source.type != "lines" or "staff" in identity.roles:
        return None
    return Interceptor(without_comments, key="without comments")
