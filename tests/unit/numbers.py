"""A source of numbers, made of one function: what the tests of the kit for plugin authors check."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from kiwi_gw.api import (
    Batch,
    Field,
    Kind,
    Out,
    Positions,
    Section,
    Shape,
    SourceType,
)
from kiwi_gw.testing import SourceReport, check_source

SHAPE = Shape((Field("sourceId", Kind.SOURCE_ID), Field("n", Kind.INT)))


class NumberSettings(Section):
    type: Literal["numbers"]
    id: str = "numbers"


Run = Callable[[Out, Positions | None], Awaitable[None]]


class Numbers:
    """A source made of one function."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def run(self, out: Out, start: Positions | None) -> None:
        await self._run(out, start)


def source_type(run: Run, shape: Shape = SHAPE, **more: Any) -> SourceType:
    return SourceType("numbers", NumberSettings, lambda settings, context: Numbers(run), shape, **more)


async def check(run: Run, shape: Shape = SHAPE, **options: Any) -> SourceReport:
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


async def good(out: Out, start: Positions | None) -> None:
    number = start[0] if start else 3
    await out.ready({0: number})
    while True:
        await out.publish(one(number))
        number += 1
