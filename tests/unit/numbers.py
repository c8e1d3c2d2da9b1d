"""A source of numbers, made of one function: what the tests of the kit for plugin authors check."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from kiwi_gw.api import (
    Batch,
    EventSchema,
    Field,
    FieldEncoding,
    Positions,
    Publisher,
    Section,
    SourceDescription,
    SourceType,
)
from kiwi_gw.testing import SourceReport, check_source

SHAPE = EventSchema((Field("sourceId", FieldEncoding.SOURCE_ID), Field("n", FieldEncoding.INT)))


class NumberSettings(Section):
    type: Literal["numbers"]
    id: str = "numbers"


Run = Callable[[Publisher, Positions | None], Awaitable[None]]


class Numbers:
    """A source made of one function."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        await self._run(publisher, start)


def source_type(run: Run, shape: EventSchema = SHAPE, **more: Any) -> SourceType:
    description = SourceDescription(shape, **more)
    return SourceType("numbers", NumberSettings, lambda settings, context: Numbers(run), description)


async def check(run: Run, shape: EventSchema = SHAPE, **options: Any) -> SourceReport:
    return await check_source(source_type(run, shape), {"type": "numbers"}, **options)


def one(number: int, value: object = None, **changes: Any) -> Batch:
    fields: dict[str, Any] = {
        "starts": {0: number},
        "partitions": [0],
        "offsets": [number],
        "columns": {"n": [number if value is None else value]},
        "cost": 8,
    }
    return Batch(**(fields | changes))


async def good(publisher: Publisher, start: Positions | None) -> None:
    number = start[0] if start else 3
    await publisher.ready({0: number})
    while True:
        await publisher.publish(one(number))
        number += 1
