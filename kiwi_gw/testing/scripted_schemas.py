"""What a scripted source has registered of the schemas of what is written to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from kiwi_gw.api import Part, RefusalCode, SchemaRefused, SchemaVersion


def _open() -> trio.Event:
    event = trio.Event()
    event.set()
    return event


@dataclass(slots=True, eq=False)
class ScriptedSchemas:
    """Implement `api.SchemaRegistrar`. known: all of them; their ids count from 1. refusal: what is raised
    instead, if it is set. answers: while it is not set, nothing is answered. asked: what was asked for."""

    known: list[tuple[Part, SchemaVersion]] = field(default_factory=list)
    refusal: SchemaRefused | None = None
    answers: trio.Event = field(default_factory=_open)
    asked: list[tuple[Part, str | int]] = field(default_factory=list)

    async def register_schema(self, part: Part, definition: str) -> SchemaVersion:
        """Compare their texts."""
        for schema in await self._of(part, definition):
            if schema.definition == definition:
                return schema
        made = SchemaVersion(len(self.known) + 1, sum(p == part for p, _ in self.known) + 1, definition)
        self.known.append((part, made))
        return made

    async def find_schema(self, part: Part, version: int) -> SchemaVersion:
        for schema in await self._of(part, version):
            if schema.version == version:
                return schema
        raise SchemaRefused(RefusalCode.UNKNOWN_VERSION, f"there is no version {version}")

    async def known_schema(self, part: Part, definition: str) -> SchemaVersion:
        for schema in await self._of(part, definition):
            if schema.definition == definition:
                return schema
        raise SchemaRefused(RefusalCode.UNKNOWN_VERSION, "it is none")

    async def _of(self, part: Part, asked: str | int) -> Sequence[SchemaVersion]:
        self.asked.append((part, asked))
        await self.answers.wait()
        await trio.lowlevel.checkpoint()
        if self.refusal is not None:
            raise SchemaRefused(self.refusal.code, str(self.refusal))
        return [schema for of, schema in self.known if of == part]
