"""Queries over whole sources, by a protocol and an engine of the test's own, over real sockets."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from kiwi_gw.api import (
    AS_JSON,
    Batch,
    Encoded,
    EngineQuery,
    EventSchema,
    Field,
    FieldEncoding,
    HeadCredential,
    Identity,
    PluginContext,
    Positions,
    Publisher,
    QueriedTable,
    QueryEngine,
    Section,
    ServiceType,
    Source,
    SourceContext,
    SourceFailed,
    SourceInfo,
    WireFormat,
    hookimpl,
)
from kiwi_gw.dialect_api import (
    Cancel,
    Cancelled,
    Command,
    Dialect,
    DialectContext,
    DialectType,
    Document,
    Ended,
    Notice,
    Opened,
    OpenFailed,
    OpenQuery,
    Reply,
    Route,
    Session,
    SessionLimits,
    WebSocketRoute,
    text_frame,
)
from kiwi_gw.testing import GatewayUnderTest
from tests.edge.hooks_bench import running
from tests.edge.wire import TEXT, Client, Over, connect, frame

# --- the protocol: "COUNT a b" has rows for an answer, and how it ended ----------------------------


def wire(source: SourceInfo) -> WireFormat:
    def encode(batch: Batch) -> Encoded:
        buffer, ends = bytearray(), []
        for key, value in zip(batch.columns["key"], batch.columns["value"], strict=True):
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            buffer += text_frame(key + b"=" + value)
            ends.append(len(buffer))
        return Encoded(bytes(buffer), ends)

    return WireFormat("counts", encode)


@dataclass(slots=True, eq=False)
class CountSession:
    """open: queries of all connections together."""

    open: Counter[str]
    mine: int = 0

    def receive(self, message: str | bytes, now: float) -> Iterable[Command]:
        match str(message).split():
            case ["COUNT", *names]:
                self._add(1)
                tables = {f"t{n}": QueriedTable(name, AS_JSON) for n, name in enumerate(names)}
                yield OpenQuery("count", EngineQuery("SELECT COUNT(*) FROM t0", tables), wire)
            case ["STOP"]:
                yield Cancel("count")

    def notice(self, notice: Notice) -> Iterable[Command]:
        match notice:
            case Opened(_, source):
                yield say(f"of {source.type}")
            case OpenFailed(_, code, message) | Ended(_, _, code, message):
                self._add(-1)
                yield say(f"{getattr(code, 'value', code)}: {message}")
            case Cancelled():
                self._add(-1)
                yield say("stopped")

    def ended(self) -> None:
        self._add(-self.mine)

    def _add(self, n: int) -> None:
        self.mine += n
        self.open["all"] += n


def say(text: str) -> Reply:
    return Reply(text_frame(text.encode()))


class CountSettings(Section):
    """There are none."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Implements `Dialect`."""

    open: Counter[str]

    @property
    def routes(self) -> Sequence[Route]:
        return (WebSocketRoute("/counts"),)

    @property
    def documents(self) -> Mapping[str, Document]:
        return {}

    def open_session(
        self, head: HeadCredential, parameters: Mapping[str, str], identity: Identity, limits: SessionLimits
    ) -> Session:
        return CountSession(self.open)


@dataclass
class Protocol:
    """A plugin with that protocol."""

    open: Counter[str] = field(default_factory=Counter)
    warmed_up: int = 0

    @hookimpl
    def dialect_types(self) -> Sequence[DialectType[CountSettings]]:
        return (DialectType("counts", CountSettings, self._build, warm_up=self._warm_up),)

    def _warm_up(self) -> None:
        self.warmed_up += 1

    def _build(self, settings: CountSettings, context: DialectContext) -> Dialect:
        return Counts(self.open)


# --- the engine ------------------------------------------------------------------------------------

SHAPE = EventSchema((Field("key", FieldEncoding.JSON), Field("value", FieldEncoding.JSON)))


@dataclass
class Engine:
    """A plugin that counts to `rows`, in batches, and then does `last`. driver: its service, while open."""

    rows: int = 3
    batch: int = 2
    value: bytes = b"1"
    last: Callable[[], object] = lambda: None
    hangs: bool = False
    driver: list[str] = field(default_factory=list)
    running: int = 0
    made: int = 0
    changed: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)

    @hookimpl
    def query_engine(self) -> QueryEngine:
        return QueryEngine(SHAPE, ("counter-driver",), self._refusal, self._build, 60_000)

    @hookimpl
    def services(self) -> Sequence[ServiceType]:
        return [ServiceType("counter-driver", self._open)]

    @asynccontextmanager
    async def _open(self, context: PluginContext) -> AsyncIterator[str]:
        self.driver.append("open")
        try:
            yield "driver"
        finally:
            self.driver.append("closed")

    def _refusal(self, query: EngineQuery, context: PluginContext) -> str | None:
        return "one source at a time" if len(query.tables) > 1 else None

    def _build(self, query: EngineQuery, context: SourceContext) -> Source:
        assert context.services == {"counter-driver": "driver"}
        return Count(self)

    def moved(self, n: int) -> None:
        self.running += n
        self.changed.unpark_all()

    async def wait_running(self, n: int) -> None:
        with trio.fail_after(10):
            while self.running != n:
                await self.changed.park()


class Count:
    """Implements `api.Source`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        engine = self._engine
        engine.made += 1
        engine.moved(1)
        try:
            await publisher.ready({0: 0})
            for first in range(0, engine.rows, engine.batch):
                size = min(engine.batch, engine.rows - first)
                offsets = range(first, first + size)
                columns = {"key": [b"%d" % n for n in offsets], "value": [engine.value] * size}
                cost = size * (100 + len(engine.value))
                await publisher.publish(Batch({0: first}, [0] * size, offsets, columns, cost))
            engine.last()
            if engine.hangs:
                await trio.sleep_forever()
        finally:
            engine.moved(-1)


# --- tests -----------------------------------------------------------------------------------------


async def lines(client: Client, n: int) -> list[str]:
    return [(await client.frame()).payload.decode() for _ in range(n)]


async def ask(client: Client, text: str) -> None:
    await client.send(frame(TEXT, text.encode()))


async def test_an_engine_answers_a_protocol_that_has_queries_over_whole_sources() -> None:
    protocol, engine = Protocol(), Engine()
    async with running(protocol, engine) as (gateway, _), connect(gateway, "/counts") as client:
        assert engine.driver == [], "nothing is opened before it is needed"
        await ask(client, "COUNT a")
        assert await lines(client, 5) == ["of query", "0=1", "1=1", "2=1", "ended: the query has ended"]
        await ask(client, "COUNT a b")
        assert await lines(client, 1) == ["query: one source at a time"]
        await ask(client, "COUNT nothing")
        assert await lines(client, 1) == ["unknown_source: no source has this id"]
        assert (engine.driver, engine.made) == (["open"], 1)
        assert protocol.open["all"] == 0


async def test_a_protocol_is_warmed_up_once_before_its_first_client() -> None:
    protocol = Protocol()
    async with running(protocol) as (gateway, _), connect(gateway, "/counts"):
        assert protocol.warmed_up == 1


async def test_a_gateway_without_an_engine_says_so() -> None:
    async with running(Protocol()) as (gateway, _), connect(gateway, "/counts") as client:
        await ask(client, "COUNT a")
        words = "nothing here runs queries that need more than one event"
        assert await lines(client, 1) == [f"no_query_engine: {words}"]


async def test_its_words_reach_the_client_behind_the_rows() -> None:
    def fail() -> None:
        raise SourceFailed("the driver has no memory left")

    engine = Engine(last=fail)
    async with running(Protocol(), engine) as (gateway, _), connect(gateway, "/counts") as client:
        await ask(client, "COUNT a")
        got = await lines(client, 5)
        assert got[-1] == "failed: the driver has no memory left"


async def test_a_client_may_read_it_later_than_it_is_made() -> None:
    """Its window holds what does not fit into the socket; the engine is done long before."""
    engine = Engine(rows=1_000, batch=50, value=b"x" * 10_000)
    async with running(Protocol(), engine) as (gateway, _):
        async with connect(gateway, "/counts", receive_buffer=4096) as client:
            await ask(client, "COUNT a")
            await engine.wait_running(1)
            await engine.wait_running(0)
            assert gateway.gateway.memory.used > 5_000_000
            got = await lines(client, 1_002)
            assert [line.partition("=")[0] for line in got[1:-1]] == [str(n) for n in range(1_000)]
            assert got[-1] == "ended: the query has ended"
        await given_back(gateway)


async def given_back(gateway: GatewayUnderTest) -> None:
    with trio.fail_after(10):
        while len(gateway.gateway.engine_queries) or gateway.gateway.memory.used:
            await trio.lowlevel.checkpoint()


async def test_clients_that_vanish_leave_nothing_running() -> None:
    """Half of them while their socket is full."""
    protocol, engine = Protocol(), Engine(rows=500, batch=50, value=b"x" * 10_000, hangs=True)
    async with running(protocol, engine) as (gateway, _):
        for number in range(20):
            async with connect(gateway, "/counts", receive_buffer=4096) as client:
                await ask(client, "COUNT a")
                await engine.wait_running(1)
                if number % 2:
                    await lines(client, 501)
            await engine.wait_running(0)
            await given_back(gateway)
        with trio.fail_after(10):
            while protocol.open["all"]:
                await trio.lowlevel.checkpoint()
        assert engine.made == 20
        assert engine.driver == ["open"], "the next one came before it had closed"


async def test_a_gateway_that_stops_ends_them() -> None:
    protocol, engine = Protocol(), Engine(hangs=True)
    async with running(protocol, engine) as (gateway, _), connect(gateway, "/counts") as client:
        await ask(client, "COUNT a")
        await lines(client, 4)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(gateway.stop)
            over = await client.over()
        assert isinstance(over, Over)
        assert over.code == 1001
        assert (engine.running, engine.driver) == (0, ["open", "closed"])
        assert protocol.open["all"] == 0


async def test_a_stopped_query_may_be_followed_by_another() -> None:
    engine = Engine(hangs=True)
    async with running(Protocol(), engine) as (gateway, _), connect(gateway, "/counts") as client:
        for _ in range(3):
            await ask(client, "COUNT a")
            await lines(client, 4)
            await ask(client, "STOP")
            assert await lines(client, 1) == ["stopped"]
        await engine.wait_running(0)
        assert engine.made == 3
