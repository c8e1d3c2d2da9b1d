"""A plugin whose only source does nothing but let the test read the other sources of its gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal

import trio
from trio.testing import wait_all_tasks_blocked

from kiwi_gw.api import (
    Encoded,
    Field,
    Kind,
    Out,
    Positions,
    ReadSource,
    Section,
    Shape,
    Source,
    SourceContext,
    SourceInfo,
    SourceType,
    WireFormat,
    hookimpl,
)
from kiwi_gw.model import Batch
from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway

CONFIG = "plugins: [scripted, listening]\nsources:\n  - {type: listening, id: ear}\n"


def config(*lines: str, more: str = "") -> str:
    """Sources of type `scripted`: each line is their keys without `type`."""
    return more + CONFIG + "".join(f"  - {{type: scripted, {line}}}\n" for line in lines)


class _Settings(Section):
    type: Literal["listening"]
    id: str


class Listening:
    """read: what its source was given."""

    def __init__(self) -> None:
        self.read: ReadSource | None = None

    @hookimpl
    def source_types(self) -> Sequence[SourceType]:
        return (SourceType("listening", _Settings, self._build, Shape((Field("id", Kind.SOURCE_ID),))),)

    def _build(self, settings: Section, context: SourceContext) -> Source:
        self.read = context.read
        return self

    async def run(self, out: Out, start: Positions | None) -> None:
        await out.ready({0: 0})
        await trio.sleep_forever()


def places(info: SourceInfo) -> WireFormat:
    """Writes of every event `partition:offset=value;`. One whose value is `!` cannot be written."""

    def encode(batch: Batch) -> Encoded:
        buffer, ends, tally, bad = b"", [], [0], []
        rows = zip(batch.partitions, batch.offsets, batch.columns["value"], strict=True)
        for index, (partition, offset, value) in enumerate(rows):
            if value == b"!":
                bad.append(index)
            else:
                buffer += b"%d:%d=%s;" % (partition, offset, value)
            ends.append(len(buffer))
            tally.append(tally[-1] + (value != b"!"))
        return Encoded(buffer, ends, tally, unsendable=tuple(bad))

    return WireFormat("places", encode)


@asynccontextmanager
async def listening(
    text: str, *, replayable: bool = False
) -> AsyncIterator[tuple[GatewayUnderTest, ScriptedSources, ReadSource]]:
    """A gateway with these sources, and how its source `ear` reads the others."""
    scripted, ear = ScriptedSources(replayable=replayable), Listening()
    async with open_gateway(text, plugins={"scripted": scripted, "listening": ear}) as gateway:
        with trio.fail_after(5):
            while ear.read is None:
                await wait_all_tasks_blocked()
        yield gateway, scripted, ear.read
