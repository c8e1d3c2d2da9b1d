"""A source that can be written to, and keeps positions of groups, as a test says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import trio

from kiwi_gw.api import (
    CommitRefused,
    Outgoing,
    Positions,
    Published,
    Publisher,
    Section,
    SourceContext,
    SourceDescription,
    SourceType,
    Unpublished,
    hookimpl,
)
from tests.unit.runtime.fakes import SHAPE


class VaultSettings(Section):
    type: Literal["vault"]
    id: str
    publish: bool = False
    commit: bool = False


@dataclass
class Vault:
    """The plugin, and all its sources in one. calls: what was handed over together. gate: writing waits for
    it. raises, short: what goes wrong with it. groups: what they have committed."""

    NONE: ClassVar = 99  # no partition

    calls: list[list[Outgoing]] = field(default_factory=list)
    within: list[float] = field(default_factory=list)
    gate: trio.Event = field(default_factory=trio.Event)
    raises: Exception | None = None
    short: bool = False
    groups: dict[str, dict[int, tuple[int, str]]] = field(default_factory=dict)
    refusal: CommitRefused | None = None
    written: int = 0

    @hookimpl
    def source_types(self) -> Sequence[SourceType]:
        common = SourceDescription(SHAPE)
        return (SourceType("vault", VaultSettings, self._build, common, self._describe),)

    def _describe(self, settings: VaultSettings) -> SourceDescription:
        return SourceDescription(SHAPE, publish=settings.publish, commit=settings.commit, keeps_commits=True)

    def _build(self, settings: VaultSettings, context: SourceContext) -> Vault:
        return self

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        await publisher.ready({0: 0} if start is None else start)
        await trio.sleep_forever()

    async def produce(self, records: Sequence[Outgoing], within: float) -> Sequence[Published | Unpublished]:
        self.calls.append(list(records))
        self.within.append(within)
        await self.gate.wait()
        if self.raises is not None:
            raise self.raises
        results = [Published(0, self.written + number) for number in range(len(records))]
        self.written += len(records)
        return results[1:] if self.short else results

    async def committed(self, group: str) -> Mapping[int, tuple[int, str]]:
        await trio.lowlevel.checkpoint()
        return self.groups.get(group, {})

    async def commit(self, group: str, positions: Mapping[int, tuple[int, str]]) -> None:
        await self.gate.wait()
        if self.refusal is not None:
            raise self.refusal
        if self.NONE in positions:
            raise CommitRefused("positions", "there is no such partition")
        self.groups.setdefault(group, {}).update(positions)


def vaults(*lines: str, plugins: str = "vault") -> str:
    """The text of a configuration with such sources: `id: a, publish: true`."""
    sources = "".join(f"  - {{type: vault, {line}}}\n" for line in lines)
    return f"plugins: [{plugins}]\nsources:\n{sources}"
