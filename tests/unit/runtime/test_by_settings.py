"""A source type whose sources differ in what they need and can do, and depend on each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from kiwi_gw.api import (
    BY_PARTITION,
    PluginContext,
    PositionCodec,
    Positions,
    Publisher,
    Section,
    ServiceType,
    Source,
    SourceContext,
    SourceDescription,
    SourceType,
    hookimpl,
)
from kiwi_gw.config import load_again
from kiwi_gw.core.notices import OpenFailed
from kiwi_gw.runtime.gateway import Gateway
from tests.unit.runtime.fakes import SHAPE, FakeSettings, Sources, config, load_text, running, settled

OWN = PositionCodec(lambda positions: {"n": positions[0]}, lambda value: {0: 0})


def _note(settings: Section) -> str:
    assert isinstance(settings, FakeSettings)
    return settings.note


class _Live:
    async def run(self, out: object, start: object) -> None:
        await out.ready({0: 0})  # type: ignore[attr-defined]
        await trio.sleep_forever()


def _describe(settings: Section) -> SourceDescription:
    note = _note(settings)
    return SourceDescription(
        SHAPE,
        services=["pool"] if note == "pool" else (),
        codec=OWN if note == "own" else BY_PARTITION,
        replayable=note == "again",
        depends=note[1:] if note.startswith("<") else (),
    )


class Kinds:
    """Its sources do what their note says; `<a` depends on `a`. built: contexts of the sources, by id."""

    def __init__(self) -> None:
        self.configured: list[PluginContext] = []
        self.built: list[SourceContext] = []
        self.opened = 0

    @hookimpl
    def configure(self, context: PluginContext) -> None:
        self.configured.append(context)

    @hookimpl
    def source_types(self) -> list[SourceType]:
        return [
            SourceType(
                "fake",
                FakeSettings,
                self._build,
                SHAPE,
                _describe,
            )
        ]

    @hookimpl
    def services(self) -> list[ServiceType]:
        return [ServiceType("pool", self._pool)]

    @asynccontextmanager
    async def _pool(self, context: PluginContext) -> AsyncIterator[object]:
        self.opened += 1
        yield object()

    def _build(self, settings: Section, context: SourceContext) -> Source:
        self.built.append(context)
        return _Live()


async def test_what_a_source_is_can_depend_on_its_settings(tmp_path: Path) -> None:
    kinds = Kinds()
    async with running(tmp_path, config("a", "b pool", "c own", "d again"), fake=kinds) as bench:
        await settled()
        infos = {info.id: info for info in bench.gateway.sources()}
        assert [infos[key].codec is OWN for key in "abcd"] == [False, False, True, False]
        assert [infos[key].replayable for key in "abcd"] == [False, False, False, True]
        assert {built.source_id: [*built.services] for built in kinds.built} == {
            "a": [],
            "b": ["pool"],
            "c": [],
            "d": [],
        }
        assert kinds.opened == 1
        # The one that says that it can be read again, and cannot, has failed alone.
        assert [runner.hub.state.value for runner in bench.gateway.runners()].count("failed") == 1


async def test_a_plugin_sees_all_sources_and_which_worker_it_is(tmp_path: Path) -> None:
    kinds = Kinds()
    gateway = Gateway(
        load_text(tmp_path, config("b <a", "a x", "c again"), {"fake": kinds}),
        trio.current_time,
        worker=1,
        workers=3,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(gateway.run)
        await settled()
        for context in (*kinds.configured, *(built.plugins for built in kinds.built)):
            assert [(key, _note(settings)) for key, settings in context.sources.items()] == [
                ("b", "<a"),
                ("a", "x"),
                ("c", "again"),
            ]
            assert (context.worker, context.workers) == (1, 3)
        assert len(kinds.built) == 3
        nursery.cancel_scope.cancel()


async def test_who_depends_on_an_altered_source_restarts_with_the_new_settings(tmp_path: Path) -> None:
    kinds = Kinds()
    async with running(tmp_path, config("b <a", "a 1", "c"), fake=kinds) as bench:
        watching = bench.subscribe("b", "c")
        bench.write(config("b <a", "a 2", "c"))
        difference = bench.gateway.apply(load_again(bench.gateway.loaded))
        assert (difference.altered, difference.untouched) == (("b", "a"), ("c",))
        await settled()
        built = [context for context in kinds.built if context.source_id == "b"]
        assert [_note(context.plugins.sources["a"]) for context in built] == ["1", "2"]
        assert [context.source_id for context in kinds.built].count("c") == 1
        assert watching.opened == 2


@pytest.mark.parametrize(
    ("more", "seconds"), [("", 5), ("subscriber: {subscribe_timeout_ms: 9s}", 9), ("slow", 60)]
)
async def test_a_subscription_waits_as_long_as_the_type_of_its_source_may_take(
    tmp_path: Path, autojump_clock: MockClock, more: str, seconds: float
) -> None:
    """Unless the configuration says how long."""

    async def starts(publisher: Publisher, start: Positions | None, context: SourceContext) -> None:
        await trio.sleep_forever()

    sources = Sources({"a": starts}, start_ms=60_000 if more == "slow" else 5_000)
    text = config("a", more="" if more == "slow" else more)
    async with running(tmp_path, text, fake=sources) as bench:
        began = trio.current_time()
        client = bench.subscribe("a")
        await client.session.wait_told(OpenFailed, within=100)
        assert seconds <= trio.current_time() - began <= seconds + 1


async def test_a_source_is_told_whether_it_takes_the_place_of_another(tmp_path: Path) -> None:
    kinds = Kinds()
    async with running(tmp_path, config("a", "b", "c"), fake=kinds) as bench:
        for now in (config("a", "b 2", "d"), config("a", "b 2", "c 2")):
            bench.write(now)
            bench.gateway.apply(load_again(bench.gateway.loaded))
            await settled()
        told = [(context.source_id, context.altered) for context in kinds.built]
        assert sorted(told[:3]) == [("a", False), ("b", False), ("c", False)]
        assert (sorted(told[3:5]), told[5:]) == ([("b", True), ("d", False)], [("c", True)])
