"""The kit for plugin authors: the history of a source that can be read again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from kiwi_gw.api import (
    Batch,
    HistoryReader,
    OffsetRange,
    Positions,
    Publisher,
    SourceDescription,
    SourceType,
)
from kiwi_gw.testing import check_source
from tests.unit.numbers import SHAPE, NumberSettings, good, one, source_type


class Remembers:
    """A source of numbers that can be read again. Subclasses get it wrong."""

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        await good(publisher, start)

    async def offset_range(self) -> OffsetRange:
        return OffsetRange({0: 0}, {0: 1 << 40})

    async def at(self, timestamp: int) -> Positions:
        return {0: 0}

    @asynccontextmanager
    async def read_from(self, positions: Positions) -> AsyncIterator[HistoryReader]:
        yield Reader(positions[0])


class Reader:
    def __init__(self, here: int) -> None:
        self.here = here

    async def read(self, until: Positions) -> Batch:
        await trio.lowlevel.checkpoint()
        if self.here >= until[0]:
            return Batch({0: self.here}, (), (), {"n": ()}, 0)
        self.here += 1
        return one(self.here - 1)


def remembering(source: object) -> SourceType:
    description = SourceDescription(SHAPE, replayable=True)
    return SourceType("numbers", NumberSettings, lambda settings, context: source, description)  # type: ignore[arg-type, return-value]


async def test_history_is_compared_with_what_was_published() -> None:
    await check_source(remembering(Remembers()), {"type": "numbers"})


async def test_a_replayable_source_without_history_is_caught() -> None:
    with pytest.raises(AssertionError, match=r"must be an api.History"):
        await check_source(source_type(good, replayable=True), {"type": "numbers"})


class Skips(Remembers):
    @asynccontextmanager
    async def read_from(self, positions: Positions) -> AsyncIterator[HistoryReader]:
        yield Reader(positions[0] + 1)


class ForgetsItsEnd(Remembers):
    async def offset_range(self) -> OffsetRange:
        return OffsetRange({0: 0}, {0: 0})


class NamesNoPartition(Remembers):
    async def at(self, timestamp: int) -> Positions:
        return {}


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        (Skips(), "where 1[0-9] were published"),
        (ForgetsItsEnd(), "before what was published"),
        (NamesNoPartition(), r"at\(0\) must name every partition"),
    ],
)
async def test_history_that_breaks_the_contract_is_caught(source: Remembers, rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        await check_source(remembering(source), {"type": "numbers"})
