"""Queries over whole sources: each is a source of its own, with one subscription, and leaves nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from kiwi_gw.api import EngineQuery, Publisher, SourceFailed, hookimpl
from kiwi_gw.core.commands import AddCredit, Cancel, Inspect, Reconfigure
from kiwi_gw.core.notices import Cancelled, Ended, Inspected, Notice, Opened, OpenFailed, SourceAppeared
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import SourceInfo, WireFormat
from kiwi_gw.runtime import engine_queries
from kiwi_gw.runtime.engine_queries import SHARED_ID
from tests.unit.core.fakes import names
from tests.unit.runtime.engines import Engine, Rules, Run, ask, endless, rows
from tests.unit.runtime.fakes import Bench, Client, Sources, config, open_it, running, settled

Logged = Callable[[str], list[EventDict]]
PLUGINS = ("fake", "engine", "rules")
OPEN = ("running", "in the middle of a batch", "not read")


@dataclass
class World:
    """A gateway with the sources `a` and `b`, an engine and rules. used: bytes that it held before."""

    bench: Bench
    engine: Engine
    rules: Rules
    tasks: int
    used: int

    @property
    def nothing_is_left(self) -> bool:
        gateway = self.bench.gateway
        tasks = trio.lowlevel.current_statistics().tasks_living
        left = (self.engine.running, len(gateway.engine_queries), gateway.memory.used - self.used)
        return left == ([], 0, 0) and tasks == self.tasks

    def connect(self) -> Client:
        return self.bench.connect()


@asynccontextmanager
async def world(folder: Path, engine: Engine | None = None, more: str = "") -> AsyncIterator[World]:
    engine, rules = engine or Engine(), Rules()
    text = config("a", "b", plugins=PLUGINS, more=more)
    async with running(folder, text, fake=Sources(), engine=engine, rules=rules) as bench:
        tasks = trio.lowlevel.current_statistics().tasks_living
        yield World(bench, engine, rules, tasks, bench.gateway.memory.used)


def gives(batches: int, size: int = 1) -> Run:
    """A query whose result has so many rows."""

    async def run(publisher: Publisher, query: EngineQuery) -> None:
        await publisher.ready({0: 0})
        for number in range(batches):
            await publisher.publish(rows(number * size, size))

    return run


def ends(client: Client) -> list[tuple[str, str]]:
    return [(n.reason.value, n.message) for n in client.told(Ended) if isinstance(n, Ended)]


def failures(client: Client) -> list[tuple[str, str]]:
    return [(n.code, n.message) for n in client.told(OpenFailed) if isinstance(n, OpenFailed)]


def story(client: Client) -> list[type[Notice]]:
    return [type(notice) for notice in client.session.notices if not isinstance(notice, SourceAppeared)]


# --- the result --------------------------------------------------------------------------------


async def test_the_rows_come_and_then_the_end(tmp_path: Path) -> None:
    async with world(tmp_path, Engine(gives(3, 2))) as it:
        client = it.connect()
        client.does(ask("a", "b"))
        await settled()
        assert client.offsets == [0, 1, 2, 3, 4, 5]
        assert story(client) == [Opened, Ended]
        assert ends(client) == [("ended", "the query has ended")]
        assert client.connection.subscriptions == {}
        assert it.nothing_is_left


async def test_it_is_none_of_the_gateways_sources(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        client, other = it.connect(), it.connect()
        client.does(ask("a"))
        await settled()
        assert len(it.bench.gateway.engine_queries) == 1
        assert [info.id for info in it.bench.gateway.sources()] == ["a", "b"]
        assert [runner.hub.info.id for runner in it.bench.gateway.runners()] == ["a", "b"]
        assert it.bench.gateway.hub(SHARED_ID) is None
        assert len(other.told(SourceAppeared)) == len(it.connect().told(SourceAppeared)) == 2
        other.does(open_it(SHARED_ID))
        assert other.refusals == ["unknown_source"]


async def test_all_of_them_are_counted_under_one_id(tmp_path: Path) -> None:
    async with world(tmp_path, Engine(gives(2))) as it:
        client = it.connect()
        for number in range(5):
            client.does(ask("a", handle=f"q{number}", credit=7))
            await settled()
        meters = {meter.label: meter for meter in it.bench.gateway.meters.sources()}
        assert set(meters) <= {"a", "b", SHARED_ID}
        assert meters[SHARED_ID].delivered["fake"] == 10
        assert meters[SHARED_ID].ended == {"ended": 5}
        assert len(set(it.engine.built)) == 5, "the engine can tell them apart"


async def test_what_is_not_read_waits_for_credit_and_the_engine_is_not_held(tmp_path: Path) -> None:
    engine = Engine(gives(4, 3), services_of_queries=("engine",))
    engine.may_open.set()
    async with world(tmp_path, engine) as it:
        client = it.connect()
        client.does(ask("a", credit=2))
        await settled()
        assert (client.offsets, engine.running) == ([0, 1], [])
        assert story(client) == [Opened]
        client.does(AddCredit("q", 9))
        await settled()
        assert client.offsets == list(range(11))
        client.does(AddCredit("q", 1))
        await settled()
        assert client.offsets == list(range(12))
        assert ends(client) == [("ended", "the query has ended")]


async def test_a_limit_ends_it_and_stops_the_engine(tmp_path: Path) -> None:
    async with world(tmp_path, Engine(gives(100, 10))) as it:
        client = it.connect()
        client.does(ask("a", limit=25))
        await settled()
        assert client.offsets == list(range(25))
        assert [reason for reason, _ in ends(client)] == ["limit"]
        assert it.nothing_is_left


async def test_a_client_that_is_too_slow_is_told_so(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Its bound is that of the result, and for what is kept of it, that of all windows."""
    async with world(tmp_path, Engine(gives(100, 10))) as it:
        slow, patient = it.connect(), it.connect()
        slow.does(ask("a", credit=1, result_bytes=10_000))
        patient.does(ask("a", credit=1, result_bytes=100_000))
        await trio.sleep(0.5)
        words = "the result was not read in time, and there is no more room for what is left of it"
        assert ends(slow) == [("overflow", words)]
        assert ends(patient) == []
        patient.does(AddCredit("q", 1_000))
        await trio.sleep(0.5)
        assert patient.offsets == list(range(1_000))
        assert it.nothing_is_left


async def test_memory_that_others_need_is_taken_from_a_result_that_is_not_read(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    more = "window: {memory_bytes: 1 MiB, bytes: 1 MiB, encodings_bytes: 1 KiB}"
    async with world(tmp_path, Engine(gives(90, 100)), more) as it:
        clients = [it.connect() for _ in range(3)]
        for client in clients:
            client.does(ask("a", credit=1))
        await trio.sleep(0.5)
        assert it.bench.gateway.memory.used <= 1024 * 1024
        reasons = [reason for client in clients for reason, _ in ends(client)]
        assert reasons
        assert set(reasons) == {"overflow"}


async def test_it_may_be_looked_at_and_written_otherwise(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        client = it.connect()
        client.does(ask("a"))
        await settled()
        it.rules.only = "nobody"  # who has a result may see it
        client.does(Reconfigure("q", lambda info: names("other")), Inspect("q"))
        (inspected,) = client.told(Inspected)
        assert isinstance(inspected, Inspected)
        assert (inspected.source.id, inspected.sent) == (SHARED_ID, 1)
        assert ends(client) == []


# --- refused -----------------------------------------------------------------------------------


async def test_without_an_engine_it_is_refused_at_once(tmp_path: Path) -> None:
    text = config("a", plugins=("fake",))
    async with running(tmp_path, text, fake=Sources()) as bench:
        client = bench.connect()
        client.does(ask("a"))
        words = "nothing here runs queries that need more than one event"
        assert failures(client) == [("no_query_engine", words)]


async def test_what_the_engine_does_not_run_is_refused_in_its_words(tmp_path: Path) -> None:
    async with world(tmp_path, Engine(refuses="`a` is no topic")) as it:
        client = it.connect()
        client.does(ask("a"))
        assert failures(client) == [("query", "`a` is no topic")]
        assert (it.engine.built, it.nothing_is_left) == ([], True)


@pytest.mark.parametrize("answer", [ValueError("oh"), "an engine"])
async def test_an_engine_that_cannot_even_answer(tmp_path: Path, logged: Logged, answer: object) -> None:
    class Broken:
        @hookimpl
        def query_engine(self) -> object:
            if isinstance(answer, Exception):
                raise answer
            return answer

    text = config("a", plugins=("fake", "broken"))
    async with running(tmp_path, text, fake=Sources(), broken=Broken()) as bench:
        client = bench.connect()
        client.does(ask("a"))
        client.does(ask("a"))
        assert client.refusals == ["internal_error"] * 2
        assert bench.gateway.hooks.failures == {"query_engine": 2}
        assert len(logged("a plugin failed")) == 1


async def test_a_wire_format_that_is_refused_costs_nothing(tmp_path: Path) -> None:
    def refuse(info: SourceInfo) -> WireFormat:
        raise SubscribeRefused("query", "there is no such column")

    async with world(tmp_path) as it:
        client = it.connect()
        client.does(replace(ask("a"), wire=refuse))
        assert failures(client) == [("query", "there is no such column")]
        assert it.nothing_is_left


async def test_there_is_a_bound_for_all_protocols_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_queries, "MAX_QUERIES", 2)
    async with world(tmp_path) as it:
        client = it.connect()
        for name in "xyz":
            client.does(ask("a", handle=name))
        assert client.refusals == ["busy"]
        client.does(Cancel("x"))
        await settled()
        client.does(ask("a", handle="z"))
        assert client.refusals == ["busy"]


# --- faults ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ready", [False, True])
async def test_the_engines_words_reach_the_client(tmp_path: Path, logged: Logged, ready: bool) -> None:
    async def run(publisher: Publisher, query: EngineQuery) -> None:
        if ready:
            await publisher.ready({0: 0})
            await publisher.publish(rows(0))
        raise SourceFailed("`total` cannot be a sum of text")

    async with world(tmp_path, Engine(run)) as it:
        client = it.connect()
        client.does(ask("a"))
        await settled()
        told, other = (ends, failures) if ready else (failures, ends)
        assert told(client) == [("failed", "`total` cannot be a sum of text")]
        assert other(client) == []
        assert len(it.engine.built) == 1, "it is not tried again"
        assert not logged("query raised")
        assert it.nothing_is_left


@pytest.mark.parametrize("ready", [False, True])
async def test_what_breaks_in_it_is_for_the_log(tmp_path: Path, logged: Logged, ready: bool) -> None:
    async def run(publisher: Publisher, query: EngineQuery) -> None:
        if ready:
            await publisher.ready({0: 0})
        raise KeyError("secret")

    async with world(tmp_path, Engine(run)) as it:
        client = it.connect()
        client.does(ask("a"))
        await settled()
        told = ends(client) if ready else failures(client)
        assert told == [("failed", "the query has failed in the gateway; the error is in its log")]
        (line,) = logged("query raised")
        assert isinstance(line["exc_info"], KeyError)
        assert client.socket.close_code is None
        assert len(it.engine.built) == 1
        assert it.nothing_is_left


async def test_one_that_is_never_ready_and_returns(tmp_path: Path, logged: Logged) -> None:
    async def run(publisher: Publisher, query: EngineQuery) -> None:
        await trio.lowlevel.checkpoint()

    async with world(tmp_path, Engine(run)) as it:
        client = it.connect()
        client.does(ask("a"))
        await settled()
        assert client.refusals == ["failed"]
        assert len(logged("query raised")) == 1
        assert it.nothing_is_left


async def test_a_service_that_nobody_provides(tmp_path: Path, logged: Logged) -> None:
    async with world(tmp_path, Engine(services_of_queries=("nobody's",))) as it:
        client = it.connect()
        client.does(ask("a"))
        await settled()
        assert client.refusals == ["failed"]
        assert len(logged("query raised")) == 1
        assert it.nothing_is_left


@pytest.mark.parametrize("service", [False, True])
async def test_one_that_hangs_at_its_start_is_given_up(
    tmp_path: Path, autojump_clock: MockClock, service: bool
) -> None:
    async def run(publisher: Publisher, query: EngineQuery) -> None:
        await trio.sleep_forever()

    engine = Engine(run, 60_000, ("engine",) if service else ())
    async with world(tmp_path, engine) as it:
        client = it.connect()
        client.does(ask("a"))
        await trio.sleep(59)
        assert (client.refusals, engine.service) == ([], "opening" if service else "closed")
        await trio.sleep(2)
        assert failures(client) == [("failed", "the query was not ready within 60 s; try again")]
        assert engine.service == "closed"
        assert it.nothing_is_left


# --- given back --------------------------------------------------------------------------------


def cancels(client: Client) -> None:
    client.does(Cancel("q"))


def vanishes(client: Client) -> None:
    client.leave()


def is_closed(client: Client) -> None:
    client.connection.send_close(1000, "")


WAYS = [cancels, vanishes, is_closed]
STAGES = ["at once", "service", "not ready", *OPEN]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("way", WAYS)
async def test_whenever_its_client_goes_it_is_stopped_and_nothing_is_left(
    tmp_path: Path, autojump_clock: MockClock, way: Callable[[Client], None], stage: str
) -> None:
    async def run(publisher: Publisher, query: EngineQuery) -> None:
        if stage == "not ready":
            await trio.sleep_forever()
        await publisher.ready({0: 0})
        await publisher.publish(rows(0, 10_000))
        if stage == "running":
            await trio.sleep_forever()

    engine = Engine(run, services_of_queries=("engine",))
    if stage != "service":
        engine.may_open.set()
    async with world(tmp_path, engine) as it:
        client = it.connect()
        client.does(ask("a", credit=1 if stage == "not read" else 10**6, result_bytes=10**7))
        if stage == "in the middle of a batch":
            while not client.offsets:
                await trio.lowlevel.checkpoint()
            assert len(client.offsets) < 10_000
        elif stage != "at once":
            await trio.sleep(1)
        way(client)
        assert story(client)[-1:] == ([Cancelled] if way is cancels else [Opened] if stage in OPEN else [])
        await trio.sleep(2)  # services linger for a second
        assert engine.service == "closed"
        assert it.nothing_is_left
        told = len(client.session.notices)
        await trio.sleep(10)
        assert len(client.session.notices) == told


async def test_memory_is_given_back_before_the_engine_has_stopped(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async def run(publisher: Publisher, query: EngineQuery) -> None:
        await publisher.ready({0: 0})
        await publisher.publish(rows(0, 100))
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(20)
            await publisher.publish(rows(100, 100))

    async with world(tmp_path, Engine(run)) as it:
        client = it.connect()
        client.does(ask("a", credit=1))
        await trio.sleep(1)
        assert it.bench.gateway.memory.used > it.used
        client.does(Cancel("q"))
        await trio.sleep(1)
        assert it.engine.running
        assert it.bench.gateway.memory.used == it.used
        await trio.sleep(20)
        assert it.nothing_is_left


async def test_who_comes_back_while_the_service_opens_has_the_same_service(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    engine = Engine(services_of_queries=("engine",), start_ms=60_000)
    async with world(tmp_path, engine) as it:
        first, second = it.connect(), it.connect()
        first.does(ask("a"))
        second.does(ask("b"))
        await trio.sleep(5)
        first.leave()
        await trio.sleep(5)
        assert engine.service == "opening"
        engine.may_open.set()
        await trio.sleep(1)
        assert second.offsets == [0]
        assert engine.opened == 1


async def test_a_gateway_that_stops_ends_them(tmp_path: Path) -> None:
    async def run(publisher: Publisher, query: EngineQuery) -> None:
        if query.sql == "hangs":
            await trio.sleep_forever()
        await endless(publisher, query)

    engine = Engine(run)
    async with world(tmp_path, engine) as it:
        client, opening = it.connect(), it.connect()
        client.does(ask("a", credit=0))
        opening.does(ask("a", sql="hangs"))
        await settled()
        queries = it.bench.gateway.engine_queries
    assert ends(client) == [("failed", "the gateway stops")]
    assert failures(opening) == [("failed", "the gateway stops")]
    assert (engine.running, len(queries)) == ([], 0)
    opening.does(ask("a"))
    assert failures(opening)[1:] == [("busy", "the gateway stops")]


async def test_a_thousand_leave_nothing(tmp_path: Path) -> None:
    """Ended, cancelled, vanished, failed: by turns."""

    async def run(publisher: Publisher, query: EngineQuery) -> None:
        await publisher.ready({0: 0})
        await publisher.publish(rows(0, 20))
        if query.sql == "fails":
            raise SourceFailed("no")
        if query.sql != "ends":
            await trio.sleep_forever()

    async with world(tmp_path, Engine(run)) as it:
        for _ in range(250):
            client = it.connect()
            for sql in ("ends", "fails", "cancelled", "vanishes"):
                client.does(ask("a", sql=sql, handle=sql, credit=20 if sql == "ends" else 7))
            await settled()
            client.does(Cancel("cancelled"))
            client.leave()
            assert sorted(client.ends) == ["ended", "failed"]
            await settled()
        assert len(it.engine.built) == 1_000
        assert it.nothing_is_left
        assert it.bench.gateway.connections == set()
        assert len(it.bench.gateway.encodings._order) == 0


async def test_endless_is_endless(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with world(tmp_path, Engine(endless)) as it:
        client = it.connect()
        client.does(ask("a"))
        await trio.sleep(15)
        assert (client.offsets, ends(client), len(it.engine.running)) == ([0], [], 1)
