"""A source whose events a test dictates."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import trio

from kiwi_gw.api import (
    AS_JSON,
    Batch,
    CommitRefused,
    Decode,
    EventSchema,
    Field,
    FieldEncoding,
    Gap,
    GroupMember,
    GroupState,
    HistoryReader,
    OffsetRange,
    Outgoing,
    Part,
    Positions,
    Published,
    Publisher,
    RefusalCode,
    SchemaVersion,
    Section,
    Sharing,
    Source,
    SourceContext,
    SourceDescription,
    SourceType,
    hookimpl,
)
from kiwi_gw.testing.scripted_groups import ScriptedGroup
from kiwi_gw.testing.scripted_history import ScriptedHistory
from kiwi_gw.testing.scripted_schemas import ScriptedSchemas

SHAPE = EventSchema(
    (
        Field("sourceId", FieldEncoding.SOURCE_ID),
        Field("sourceType", FieldEncoding.SOURCE_TYPE),
        Field("key", FieldEncoding.TEXT),
        Field("value", FieldEncoding.TEXT),
        Field("partition", FieldEncoding.INT),
        Field("offset", FieldEncoding.INT),
    )
)


class ScriptedSettings(Section):
    """The keys of a source of type `scripted`."""

    type: Literal["scripted"]
    id: str
    note: str = ""
    """Means nothing; another note alters the source."""


@dataclass(slots=True)
class _Step:
    """What the source is to do next: publish a batch, say what degrades it (words), end (None) or raise.
    `done`: it has been done."""

    act: Batch | str | Exception | None
    done: trio.Event = field(default_factory=trio.Event)
    refused: Exception | None = None


class Script:
    """One scripted source, from the test's side.

    runs: how often the gateway has started it. positions: its next offsets. history: what of it can be read
    again, if its `ScriptedSources` are replayable. groups: what they have committed, members: who is in
    them, schemas: what was registered of them, if they are writable.
    """

    def __init__(self) -> None:
        self.runs = 0
        self.history = ScriptedHistory()
        self.groups: dict[str, dict[int, tuple[int, str]]] = {}
        self.members: dict[str, ScriptedGroup] = {}
        self.schemas = ScriptedSchemas()
        self.positions: dict[int, int] = {0: 0}
        self._taken: Positions = {0: 0}
        self._unsure: Batch | None = None
        self._may_start = trio.Event()
        self._may_start.set()
        self._send, self._receive = trio.open_memory_channel[_Step](math.inf)

    def hold(self) -> None:
        """Let it be starting from its next run on, until `release`."""
        self._may_start = trio.Event()

    def release(self) -> None:
        self._may_start.set()

    async def publish(
        self,
        values: Iterable[bytes | None],
        *,
        partition: int = 0,
        keys: Sequence[bytes | None] | None = None,
        gap: Gap | None = None,
        timestamp: int = -1,
        columns: Mapping[str, Sequence[object]] = MappingProxyType({}),
    ) -> Batch:
        """Publish one batch with the next offsets of a partition. Returns when the gateway has taken it;
        raises what the gateway raised if it did not.

        keys: as many as values; without them the keys are null. gap: what the source lost before the
        batch; its ranges must begin at the next offsets, which move behind them. columns: further ones.
        """
        column = list(values)
        for lost, (_, last) in (gap.ranges if gap is not None else {}).items():
            self.positions[lost] = last + 1
        first = self.positions.setdefault(partition, 0)
        batch = Batch(
            starts=dict(self.positions),
            partitions=[partition] * len(column),
            offsets=range(first, first + len(column)),
            columns={
                "key": [None] * len(column) if keys is None else list(keys),
                "value": column,
                "timestamp": [timestamp] * len(column),
                **columns,
            },
            cost=sum(64 + len(value or b"") for value in column),
            gap=gap,
        )
        self.positions[partition] = first + len(column)
        self.history.published(batch, self.positions)
        step = await self._do(batch)
        if step.refused is not None:
            raise step.refused
        return batch

    async def pass_by(self, offset: int, *, partition: int = 0) -> None:
        """Say that the next event of a partition has this offset or a later one."""
        self.positions[partition] = offset
        nothing: dict[str, list[object]] = {"key": [], "value": [], "timestamp": []}
        self.history.moved(self.positions)
        step = await self._do(Batch(dict(self.positions), (), (), nothing, 0))
        if step.refused is not None:
            raise step.refused

    async def degrade(self, message: str) -> None:
        """Say what keeps the source from its origin; an empty text: nothing does any more."""
        await self._do(message)

    async def end(self) -> None:
        """End the source: it is finite and over."""
        await self._do(None)

    async def fail(self, error: Exception) -> None:
        """Raise this in its `run`: `SourceFailed`, `SourceChanged`, or anything, which restarts it."""
        await self._do(error)

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        """`Source.run`."""
        self.runs += 1
        await self._may_start.wait()
        begin = self._taken if start is None else start
        self.history.moved(self.positions)
        await publisher.ready(begin)
        if self._unsure is not None and not _has_taken(begin, self._unsure):
            await self._hand_over(publisher, self._unsure)
        while True:
            step = await self._receive.receive()
            try:
                if step.act is None:
                    return
                if isinstance(step.act, Exception):
                    raise step.act  # noqa: TRY301
                if isinstance(step.act, str):
                    publisher.report_degraded(step.act)
                    continue
                await self._hand_over(publisher, step.act)
            except Exception as error:
                step.refused = error
                raise
            finally:
                step.done.set()

    async def _hand_over(self, publisher: Publisher, batch: Batch) -> None:
        self._unsure = batch  # if this is cancelled, only the next run learns whether it was taken
        try:
            await publisher.publish(batch)
        except Exception:
            self._unsure = None
            raise
        self._unsure = None
        self._taken = batch.positions_at(len(batch))

    async def _do(self, act: Batch | str | Exception | None) -> _Step:
        step = _Step(act)
        await self._send.send(step)
        await step.done.wait()
        return step


def _has_taken(positions: Positions, batch: Batch) -> bool:
    return all(positions.get(p, 0) >= offset for p, offset in batch.positions_at(len(batch)).items())


class _Replayable:
    """The source of a script, with its history. Implements `api.Source` and `api.History`."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        await self._script.run(publisher, start)

    async def offset_range(self) -> OffsetRange:
        return await self._script.history.offset_range()

    async def at(self, timestamp: int) -> Positions:
        return await self._script.history.at(timestamp)

    def read_from(self, positions: Positions) -> AbstractAsyncContextManager[HistoryReader]:
        return self._script.history.read_from(positions)


class _Writable(_Replayable):
    """The same, which publishes what is written to it. Implements `api.Producer`, `api.Committer`,
    `api.Groups` and `api.SchemaRegistrar`."""

    async def produce(self, records: Sequence[Outgoing], within: float) -> Sequence[Published]:
        results = []
        for record in records:
            partition = record.partition or 0
            batch = await self._script.publish([record.value], partition=partition, keys=[record.key])
            results.append(Published(partition, batch.offsets[0]))
        return results

    async def register_schema(self, part: Part, definition: str) -> SchemaVersion:
        return await self._script.schemas.register_schema(part, definition)

    async def find_schema(self, part: Part, version: int) -> SchemaVersion:
        return await self._script.schemas.find_schema(part, version)

    async def known_schema(self, part: Part, definition: str) -> SchemaVersion:
        return await self._script.schemas.known_schema(part, definition)

    async def committed(self, group: str) -> Mapping[int, tuple[int, str]]:
        await trio.lowlevel.checkpoint()
        return dict(self._script.groups.get(group, {}))

    async def commit(self, group: str, positions: Mapping[int, tuple[int, str]]) -> None:
        await trio.lowlevel.checkpoint()
        self._script.groups.setdefault(group, {}).update(positions)

    def join(
        self, group: str, kind: str, sharing: Sharing, begin: Callable[[], Awaitable[Positions]]
    ) -> AbstractAsyncContextManager[GroupMember]:
        committed = self._script.groups.setdefault(group, {})
        return self._script.members.setdefault(group, ScriptedGroup(committed)).join(kind, begin)

    async def group_state(self, group: str) -> GroupState:
        await trio.lowlevel.checkpoint()
        there = self._script.members.get(group)
        return GroupState(0 if there is None else len(there.members), await self.committed(group))

    async def forget_group(self, group: str) -> None:
        await trio.lowlevel.checkpoint()
        if (there := self._script.members.pop(group, None)) is not None and there.members:
            raise CommitRefused(RefusalCode.GROUP_IN_USE, "the group has members")
        self._script.groups.pop(group, None)


class ScriptedSources:
    """A plugin with the source type `scripted`, and its sources by id.

        scripted = ScriptedSources()
        async with open_gateway(CONFIG, plugins={"scripted": scripted}) as gateway:
            await scripted["news"].publish([b"first", b"second"])

    Its events have the members `key`, `value`, `partition` and `offset`. replayable: they can be read again.
    writable: that, and written to, and they keep what groups commit; all of it is open to everybody. decode:
    what their bytes are.
    """

    def __init__(self, *, replayable: bool = False, writable: bool = False, decode: Decode = AS_JSON) -> None:
        self._replayable, self._writable, self._decode = replayable or writable, writable, decode
        self._scripts: dict[str, Script] = {}

    def __getitem__(self, source_id: str) -> Script:
        """Return the script of the source with that id, also before the gateway has made the source."""
        return self._scripts.setdefault(source_id, Script())

    @hookimpl
    def source_types(self) -> Sequence[SourceType]:
        return (
            SourceType(
                "scripted",
                ScriptedSettings,
                self._build,
                SourceDescription(
                    SHAPE,
                    replayable=self._replayable,
                    publish=self._writable,
                    commit=self._writable,
                    keeps_commits=self._writable,
                    decode=self._decode,
                ),
            ),
        )

    def _build(self, settings: Section, context: SourceContext) -> Source:
        script = self[context.source_id]  # the same for every run: the script goes on
        if self._writable:
            return _Writable(script)
        return _Replayable(script) if self._replayable else script
