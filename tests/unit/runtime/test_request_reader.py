"""Reading, and what else is done, for a plain request: what ends it, and what it is refused."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kiwi_gw.api import (
    ANONYMOUS,
    CommitRefused,
    Identity,
    Interceptor,
    Refusal,
    RefusalCode,
    SourceFailed,
    SourceInfo,
    hookimpl,
)
from kiwi_gw.dialect_api.http import RequestLimit
from kiwi_gw.dialect_api.reading import ReadingOver
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import AtTime, Outgoing, Published, StartAt
from kiwi_gw.runtime import request_load
from kiwi_gw.runtime.gateway import Gateway
from kiwi_gw.runtime.memory_watch import Overload
from kiwi_gw.runtime.request_load import RequestLoad
from kiwi_gw.runtime.request_reader import RequestReader
from kiwi_gw.runtime.request_rights import RequestRights
from kiwi_gw.testing import Script, ScriptedSources, open_gateway
from tests.unit.core.fakes import names

CONFIG = """\
plugins: [scripted{plugins}]
window: {{events: 10}}
sources: [{{type: scripted, id: s}}]
"""


@asynccontextmanager
async def gateway_of(*, replayable: bool = True, **plugins: object) -> AsyncIterator[tuple[Gateway, Script]]:
    """A gateway whose source has three events. replayable: and is written to."""
    sources = ScriptedSources(writable=replayable)
    text = CONFIG.format(plugins="".join(f", {name}" for name in plugins))
    async with open_gateway(text, plugins={"scripted": sources, **plugins}) as gateway:
        with trio.fail_after(10):
            await sources["s"].publish([b"a", b"b", b"c"])
            yield gateway.gateway, sources["s"]


def reader_of(
    gateway: Gateway, start: StartAt = StartAt.EARLIEST, who: Identity = ANONYMOUS
) -> RequestReader:
    return RequestRights(gateway, who).read("s", names(), start)


async def test_what_is_left_of_a_source_that_ends_says_where_it_was() -> None:
    async with gateway_of() as (gateway, script), reader_of(gateway) as reader:
        await script.end()
        assert sum(run.events for run in await reader.next(2, 1 << 20, 0)) == 2
        assert (reader.positions, reader.over) == ({0: 2}, None)
        assert sum(run.events for run in await reader.next(2, 1 << 20, 0)) == 1
        assert reader.positions == {0: 3}
        assert await reader.next(2, 1 << 20, math.inf) == ()
        assert reader.over is not None
        assert reader.over.code == "ended"


async def test_being_behind_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway_of() as (gateway, _), reader_of(gateway) as reader:
        (subscription,) = reader._connection.subscriptions.values()
        subscription.reader.lag.due = True
        assert sum(run.events for run in await reader.next(10, 1 << 20, 0)) == 3
        assert reader.lost == []


async def test_what_is_left_out_is_passed_by() -> None:
    async with gateway_of() as (gateway, script):
        wire = names(keep=lambda place: place[1] == 4)
        async with RequestRights(gateway, ANONYMOUS).read("s", wire, StartAt.EARLIEST) as reader:
            assert await reader.next(10, 1 << 20, 0) == ()
            assert reader.positions == {0: 3}
            await script.publish([b"d", b"e"])
            runs = await reader.next(10, 1 << 20, 0)
            assert [run.batch.offsets[index] for run in runs for index, _ in run.fragments] == [4]
            assert reader.positions == {0: 5}


async def test_what_was_overtaken_is_lost_and_told_before_the_rest() -> None:
    async with (
        gateway_of(replayable=False) as (gateway, script),
        reader_of(gateway, StartAt.LATEST) as reader,
    ):
        for _ in range(4):
            await script.publish([b"x"] * 10)
        assert await reader.next(100, 1 << 20, math.inf) == ()
        assert reader.lost == [{0: (3, 32)}]
        reader.lost.clear()
        assert sum(run.events for run in await reader.next(100, 1 << 20, 0)) == 10
        assert (reader.positions, reader.lost) == ({0: 43}, [])


async def test_a_client_whose_credentials_are_withdrawn_is_told_so() -> None:
    async with gateway_of() as (gateway, _):
        async with reader_of(gateway, StartAt.LATEST) as reader:
            (connection,) = gateway.connections
            connection.dismiss(Refusal("token_expired", "log in anew"))
            assert await reader.next(10, 1 << 20, math.inf) == ()
            assert reader.over == ReadingOver(RefusalCode.TOKEN_EXPIRED, "log in anew")
        assert not gateway.connections


async def test_who_is_closed_before_it_is_open_is_refused() -> None:
    async with gateway_of() as (gateway, script):
        script.history.hold()

        async def drain() -> None:
            await wait_all_tasks_blocked()
            (connection,) = gateway.connections
            connection.drain("stops", retry_after_ms=100)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drain)
            with pytest.raises(SubscribeRefused) as refused:
                async with RequestRights(gateway, ANONYMOUS).read("s", names(), AtTime(0)):
                    raise AssertionError("it is not known where that is")
        assert refused.value.code == RefusalCode.UNAVAILABLE
        assert not gateway.connections


async def test_what_is_refused_while_memory_is_short() -> None:
    async with gateway_of() as (gateway, script):
        gateway.memory_watch.level = Overload.REFUSING
        with pytest.raises(RequestLimit, match="memory is short"):
            async with reader_of(gateway):
                raise AssertionError("there is no memory for it")
        with pytest.raises(RequestLimit, match="memory is short"):
            await RequestRights(gateway, ANONYMOUS).writer("s").produce([Outgoing(None, b"x")], 1)
        assert script.positions == {0: 3}
        assert not gateway.connections


async def test_what_is_written_is_bounded_and_may_be_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway_of() as (gateway, script):
        writer = RequestRights(gateway, ANONYMOUS).writer("s")
        assert await writer.produce([], 1) == []
        monkeypatch.setattr(request_load, "MOST_BYTES", 10_000)
        with pytest.raises(RequestLimit, match="too many bytes"):
            await writer.produce([Outgoing(None, b"x" * 10_000)], 1)
        (result,) = await writer.produce([Outgoing(None, b"x" * 1_000)], 1)
        assert result == Published(0, 3)
        assert (script.positions, gateway.request_load.produced_bytes) == ({0: 4}, 0)


def test_bodies_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_load, "MOST_BYTES", 10)
    load = RequestLoad()
    with load.body("a") as one, load.body("a") as two, load.body("b") as another:
        one(2)
        two(3)
        with pytest.raises(RequestLimit, match="too many requests are being read"):
            one(1)  # as much is left for others
        with pytest.raises(RequestLimit):
            another(6)
        another(2)
    with load.body("b"):
        pass
    assert load == RequestLoad()


async def test_a_source_that_does_not_run_knows_no_places_and_no_groups() -> None:
    async with gateway_of() as (gateway, script):
        rights = RequestRights(gateway, ANONYMOUS)
        assert await rights.places("s", StartAt.LATEST) == {0: 3}
        await script.fail(SourceFailed("gone"))
        while gateway.running_source("s") is not None:
            await trio.lowlevel.checkpoint()
        for asked in (rights.places("s", StartAt.LATEST), rights.group_state("s", "g")):
            with pytest.raises(CommitRefused, match="does not run") as refused:
                await asked
            assert (refused.value.code, refused.value.retry) == (RefusalCode.UNAVAILABLE, True)


class Broken:
    """Cannot say what `nobody` may see."""

    @hookimpl
    def intercept(self, identity: Identity, source: SourceInfo) -> Interceptor | None:
        if identity.name == "nobody":
            raise OSError("who?")
        return None


async def test_of_whom_it_is_not_known_what_it_sees_it_is_the_same_as_nobody() -> None:
    async with gateway_of(broken=Broken()) as (gateway, _):
        views = [RequestRights(gateway, Identity(name)).view("s") for name in ("nobody", "nobody", "a", "b")]
        assert views[0] != views[1]
        assert views[2] == views[3] == ()
        gone = RequestRights(gateway, ANONYMOUS).view("none")
        assert gone != RequestRights(gateway, ANONYMOUS).view("none")
