"""Runs a source against the contract of `kiwi_gw.api`.

The runs, all on one object:

1. from its own now, cancelled when it hands over its first batch, which is not taken;
2. again from there, cancelled when its first batch has been taken;
3. again from there, cancelled at its 1st, 2nd, 3rd, 5th and 8th step, wherever that is;
4. again from there, for `events` events, cancelled then; if it ends by itself, once more from its end;
5. if it says that it can be read again: from its first position, to compare with what came before; and, while
   it runs, its history from there (see `history_check`).
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

import trio
from pydantic import ValidationError

from kiwi_gw.api import History, PluginContext, Section, Source, SourceContext, SourceDescription, SourceType
from kiwi_gw.model import Batch, EventSchema, PositionCodec, Positions
from kiwi_gw.testing.batch_rules import broken, check_event_schema, column_names
from kiwi_gw.testing.history_check import check_history
from kiwi_gw.testing.io_watch import watch_io
from kiwi_gw.testing.memory_publisher import MemoryPublisher
from kiwi_gw.testing.staged_run import CancelAt, StagedPublisher, StepWatch

_BUILD_SECONDS = 1.0
_CANCEL_SECONDS = 2.0
_STEP_SECONDS = 0.5
_STEPS = (1, 2, 3, 5, 8)


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What `check_source` saw. events, batches: taken, each event once; runs: how often `run` was called;
    finite: whether it ended by itself; first, positions: where it began and where it is now."""

    events: int
    batches: int
    runs: int
    finite: bool
    first: Positions
    positions: Positions


async def check_source(
    source_type: SourceType,
    settings: Section | Mapping[str, object],
    *,
    source_id: str = "checked",
    sections: Mapping[str, Section] | None = None,
    services: Mapping[str, object] | None = None,
    sources: Mapping[str, Section] | None = None,
    events: int = 10,
    restart: bool = True,
    lazy: bool = False,
    repeatable: bool | None = None,
    timeout_seconds: float = 10.0,
) -> SourceReport:
    """Check a source against the contract; AssertionError says in words which rule it breaks.

    settings: the source's section of the configuration, validated or as the file has it.
    sections, services: what `SourceContext` is to hold; services are open already.
    sources: the settings of the other sources, by id, if it depends on some.
    events: how many it must publish; it needs a few more for the restarts. What feeds it (a producer, a
        server) runs beside this call.
    restart: False for a source that cannot go on behind what was taken. (The gateway needs it to.)
    lazy: it publishes nothing before it has had its first subscription.
    repeatable: from the same start it publishes the same events; by default if it is `replayable`.

    timeout_seconds: how long it may take to be ready, and from one batch to the next.

    Times are Trio's: under a `MockClock` nothing waits. A source that never gives up the event loop
    (an endless loop without a checkpoint) hangs this call too.
    """
    section = _settings(source_type, settings)
    description = source_type.description_of(section)
    context = _context(source_type, section, description, source_id, sections, services, sources)
    _build(source_type, section, context)  # building is repeatable: a second object is of no consequence
    source = _build(source_type, section, context)
    event_schema, codec = check_event_schema(description.schema), description.codec
    check = _Check(source, event_schema, source_type, codec, not lazy, timeout_seconds)
    if restart:
        await _interrupt(check)
    if not check.finite:
        await check.run(CancelAt(events=events))
    if restart and check.finite:
        await _run_at_end(check)
    check.check_jumps()
    replayable = description.replayable
    if restart and (replayable if repeatable is None else repeatable):
        await _read_again(check)
    if replayable:
        await _read_history(check)
    return check.report()


_Row = tuple[int, tuple[object, ...]]


@dataclass(slots=True)
class _Check:
    """The source, and everything that was taken from it so far."""

    source: Source
    event_schema: EventSchema
    source_type: SourceType
    codec: PositionCodec
    subscribed: bool
    timeout: float
    runs: int = 0
    batches: int = 0
    finite: bool = False
    first: Positions | None = None
    positions: dict[int, int] = field(default_factory=dict)
    rows: dict[int, list[_Row]] = field(default_factory=dict)
    holes: set[int] = field(default_factory=set)
    jumps: list[tuple[int, int, int]] = field(default_factory=list)

    async def run(self, stop: CancelAt) -> MemoryPublisher:
        """Run on from where the last run got to, and add what it brings."""
        restarted = self.first is not None
        out = await self.observe(self.positions if restarted else None, stop)
        if self.first is None:
            self.first = out.ready_at
        self.positions = out.positions
        self.batches += len(out.batches)
        for partition, rows in self.rows_of(out).items():
            known = self.rows.setdefault(partition, [])
            offsets = [offset for offset, _ in rows]
            if offsets != list(range(offsets[0], offsets[0] + len(offsets))):
                self.holes.add(partition)
            expected = known[-1][0] + 1 if known else (self.first or {}).get(partition, offsets[0])
            if restarted and offsets[0] > expected:
                self.jumps.append((partition, expected, offsets[0] - 1))
            known.extend(rows)
        return out

    def check_jumps(self) -> None:
        """Check that no offset is missing between two runs where none is missing within a run."""
        for partition, first, last in self.jumps:
            if partition not in self.holes:
                broken(f"after a restart it skipped offsets {first} to {last} of partition {partition}")

    async def observe(self, start: Positions | None, stop: CancelAt) -> MemoryPublisher:
        """Run it once, from `start`, and check this run in itself."""
        self.runs += 1
        out = MemoryPublisher(self.event_schema, start, subscribed=self.subscribed)
        stage = StagedPublisher(out, trio.CancelScope(), stop, self.timeout)
        stage.wait_on()
        returned = await self._run(stage, start)
        self.subscribed = out.subscribed  # a subscription outlives a restart
        if stage.stopped_at is not None and trio.current_time() - stage.stopped_at > _CANCEL_SECONDS:
            broken(f"run took {trio.current_time() - stage.stopped_at:.1f} s to end after it was cancelled")
        if returned and stage.delivered:
            broken("run was cancelled and returned as if it had ended: it swallows trio.Cancelled")
        if out.ready_at is None and (returned or stage.stopped_at is None):
            broken("run returned without calling ready" if returned else f"not ready within {self.timeout} s")
        if not returned and stage.stopped_at is None:
            broken(f"published {out.events} of {stop.events} events, and no more within {self.timeout} s")
        if returned:
            self.finite = True
        self._check_codec(out)
        return out

    async def _run(self, stage: StagedPublisher, start: Positions | None) -> bool:
        """Run it; return whether it returned by itself."""
        returned = False
        steps = StepWatch(stage, trio.lowlevel.current_task())
        trio.lowlevel.add_instrument(steps)
        try:
            with stage.scope:
                await self.source.run(stage, None if start is None else dict(start))
                returned = True
        except Exception as error:
            if stage.out.broken is not None:
                raise stage.out.broken from error
            when = " when it was cancelled" if stage.stopped_at is not None else ""
            raise AssertionError(f"run raised {type(error).__name__}{when}: {error}") from error
        finally:
            trio.lowlevel.remove_instrument(steps)
        stage.out.close()
        if stage.out.broken is not None:  # the source has caught it
            raise stage.out.broken
        if steps.longest > _STEP_SECONDS:
            broken(f"run blocks the event loop: {steps.longest:.2f} s from one checkpoint to the next")
        return returned

    def rows_of(self, out: MemoryPublisher) -> dict[int, list[_Row]]:
        """Return, by partition, its events as (offset, the values that the shape is made of)."""
        names = sorted(column_names(self.event_schema) - {"partition", "offset"})
        rows: dict[int, list[_Row]] = {}
        for batch in out.batches:
            columns = [batch.columns[name] for name in names]
            for index, (partition, offset) in enumerate(zip(batch.partitions, batch.offsets, strict=True)):
                rows.setdefault(partition, []).append((offset, tuple(column[index] for column in columns)))
        return rows

    def report(self) -> SourceReport:
        return SourceReport(
            events=sum(len(rows) for rows in self.rows.values()),
            batches=self.batches,
            runs=self.runs,
            finite=self.finite,
            first=dict(self.first or {}),
            positions=dict(self.positions),
        )

    def _check_codec(self, out: MemoryPublisher) -> None:
        written = self.codec.dump(out.positions)
        if dict(self.codec.load(written)) != out.positions:
            broken(f"the codec does not read back what it wrote: {out.positions} became {written}")


async def _interrupt(check: _Check) -> None:
    stops = [CancelAt(events=1, before_first=True), CancelAt(events=1)]
    for stop in stops + [CancelAt(events=1, step=step) for step in _STEPS]:
        if check.finite:
            return
        await check.run(stop)


async def _run_at_end(check: _Check) -> None:
    """Restart it right after its last event."""
    out = await check.run(CancelAt(events=1))
    if out.events:
        broken(f"run had ended, and published {out.events} more events when it was called from its end")


async def _read_again(check: _Check) -> None:
    total = check.report().events
    out = await check.observe(check.first, CancelAt(events=max(total, 1)))
    for partition, again in check.rows_of(out).items():
        for before, after in zip(check.rows.get(partition, []), again, strict=False):
            if before[0] != after[0]:
                missing, place = (before[0], "later") if before[0] < after[0] else (after[0], "before")
                broken(
                    f"offset {missing} of partition {partition} was not published when it was read {place}: "
                    "the same start must give the same events"
                )
            if before != after:
                broken(
                    f"offset {before[0]} of partition {partition} was {before[1]} and is {after[1]} when it "
                    "is read again: the same start must give the same events"
                )
    if out.events < total:
        broken(f"it ended after {out.events} events when it was read again, and after {total} before")


async def _read_history(check: _Check) -> None:
    source, first = check.source, check.first
    if not isinstance(source, History):
        broken(f"source type {check.source_type.name!r} is replayable, so its sources must be an api.History")
    ready = trio.Event()

    class Stage(MemoryPublisher):
        async def ready(self, positions: Positions) -> None:
            await super().ready(positions)
            ready.set()

    def rows_of(batches: list[Batch]) -> dict[int, list[_Row]]:
        read = MemoryPublisher()
        read.batches = batches
        return check.rows_of(read)

    out = Stage(check.event_schema, check.positions)
    failure: AssertionError | None = None
    with trio.move_on_after(check.timeout) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(check.source.run, out, dict(check.positions))
            await ready.wait()
            try:
                await check_history(
                    source, first or {}, check.positions, check.event_schema, rows_of, check.rows
                )
            except AssertionError as error:
                failure = error  # raised below, outside of the nursery
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if scope.cancelled_caught:
        broken(f"its history was not read within {check.timeout} s")


def _settings(source_type: SourceType, settings: Section | Mapping[str, object]) -> Section:
    model: type[Section] = source_type.settings
    names = model.model_fields
    kind = names.get("type")
    if kind is None or source_type.name not in get_args(kind.annotation):
        broken(f"{model.__name__} must have the field `type: Literal[{source_type.name!r}]`")
    if isinstance(settings, Section):
        if not isinstance(settings, model):
            broken(f"settings are a {type(settings).__name__}, not a {model.__name__}")
        return settings
    # The gateway takes these two out of the file itself where the model has no use for them.
    given = {key: value for key, value in settings.items() if key in names or key not in ("id", "subscriber")}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise AssertionError(f"the settings do not fit {model.__name__}: {error}") from error


def _context(
    source_type: SourceType,
    section: Section,
    description: SourceDescription,
    source_id: str,
    sections: Mapping[str, Section] | None,
    services: Mapping[str, object] | None,
    sources: Mapping[str, Section] | None,
) -> SourceContext:
    """Make what the source is built with, which must hold all that it needs."""
    for names, given, needs, what in (
        (description.sections, sections, "needs", "section"),
        (description.services, services, "needs", "service"),
        (description.depends, sources, "depends on", "source"),
    ):
        for name in names:
            if name not in (given or {}):
                broken(f"source type {source_type.name!r} {needs} the {what} {name!r}: pass it in {what}s=")
    own_id = description.id or source_id
    return SourceContext(
        source_id=own_id,
        plugins=PluginContext(sections or {}, sources={**(sources or {}), own_id: section}),
        services=services or {},
    )


def _build(source_type: SourceType, settings: Section, context: SourceContext) -> Source:
    began = time.perf_counter()
    with watch_io() as seen:
        source: object = source_type.build(settings, context)
    if inspect.iscoroutine(source):
        source.close()
        broken("build must be a plain function, not async")
    if seen:
        broken(f"build does I/O, which belongs into run: {seen[0]}")
    if time.perf_counter() - began > _BUILD_SECONDS:
        broken("build takes more than a second: what takes time belongs into run")
    if not isinstance(source, Source):
        broken(f"build must return a Source, with shape and run, not a {type(source).__name__}")
    return source
