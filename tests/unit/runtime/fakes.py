"""What surrounds the runtime: sessions, sockets and sources that do what a test says.

The configuration is real: text in a file, read by `kiwi_gw.config.load`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import trio

from kiwi_gw.api import (
    ANONYMOUS,
    Batch,
    ConfigSection,
    Diagnostic,
    EventSchema,
    Field,
    FieldEncoding,
    Identity,
    PluginContext,
    Positions,
    Publisher,
    Refusal,
    Section,
    ServiceType,
    Source,
    SourceContext,
    SourceDescription,
    SourceType,
    hookimpl,
)
from kiwi_gw.config import LoadedConfig, load
from kiwi_gw.core.accounts import ClientAccount
from kiwi_gw.core.commands import Call, Command, Commit, LogIn, Open
from kiwi_gw.core.encoding import EncodingMemo
from kiwi_gw.core.evaluation import Evaluations
from kiwi_gw.core.evaluation_costs import CpuShares
from kiwi_gw.core.notices import CallDone, Ended, Notice, Opened, OpenFailed
from kiwi_gw.core.round_budget import RoundBudget
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.core.window import MemoryBudget
from kiwi_gw.model import Mode, SourceInfo, Token, WireFormat
from kiwi_gw.plugin_manager import PluginManager
from kiwi_gw.runtime.connection import Connection
from kiwi_gw.runtime.delivery_turns import DeliveryTurns
from kiwi_gw.runtime.engine_queries import EngineQueries
from kiwi_gw.runtime.fan_out_pace import FanOutPace
from kiwi_gw.runtime.gateway import Gateway
from kiwi_gw.runtime.hooks import Hooks
from kiwi_gw.runtime.meters import Meters
from kiwi_gw.runtime.offloads import Offloads
from kiwi_gw.runtime.ports import AdmissionSlot
from kiwi_gw.runtime.produce_queue import ProduceQueue
from kiwi_gw.runtime.services import Services
from tests.unit.core.fakes import Clock, FakeFrameWriter, names, parse

SHAPE = EventSchema((Field("sourceId", FieldEncoding.SOURCE_ID), Field("value", FieldEncoding.INT)))


def batch(first: int, size: int = 1, **columns: Sequence[object]) -> Batch:
    """The next `size` events of partition 0, whose value is their offset."""
    offsets = range(first, first + size)
    return Batch({0: first}, [0] * size, offsets, columns or {"value": list(offsets)}, cost=size)


class Socket(FakeFrameWriter):
    """Implements `runtime.ports.ConnectionWriter`. silence: what `unanswered` says."""

    def __init__(self) -> None:
        super().__init__()
        self.close_code: int | None = None
        self.close_reason = ""
        self.taken_at = 0.0
        self.stuck = False
        self.silence: float | None = None
        self.asked = 0
        self.corked = False
        self.over = trio.Event()

    @property
    def sent_bytes(self) -> int:
        return len(self.wire)

    @property
    def unsaid_bytes(self) -> int:
        return self.wire.count(b"\x89\x00") * 2

    @property
    def full(self) -> bool:
        return self.stuck

    def unanswered(self) -> float | None:
        self.asked += 1
        return self.silence

    def send_close(self, code: int, reason: str) -> None:
        if self.close_code is None:
            self.close_code, self.close_reason, self.writable = code, reason, False
            self.over.set()

    def cork(self) -> None:
        self.corked = True

    def uncork(self) -> None:
        self.corked = False


def endless_round() -> RoundBudget:
    """A budget that nothing uses up: no test here renews it."""
    budget = RoundBudget()
    budget.left = budget.light_left = math.inf
    return budget


def _not_configured() -> tuple[LoadedConfig, PluginContext]:
    raise AssertionError("nobody here has a query run")


class FakeContext:
    """Implements `runtime.ports.GatewayContext` over feeds that exist only here: what no plugin forbids is
    allowed, and nothing charged. made: how many events each source has had. leaving: feeds that others have
    replaced."""

    def __init__(self, source_ids: Iterable[str], encodings_bytes: int) -> None:
        self.meters = Meters(10)
        self.refusing = False
        self.clock = Clock()
        self.plugins = PluginManager()
        self.hooks = Hooks(self.plugins)
        self.round = RoundBudget(self.clock)
        self.turns = DeliveryTurns(self.round, lambda: False)
        self.offloads = Offloads(self.round)
        self.budget = MemoryBudget(1 << 60)
        self.evaluations = Evaluations(CpuShares(), self.round, self.clock)
        self.memo = EncodingMemo(encodings_bytes, self.budget, evaluations=self.evaluations)
        parts = self.hooks, Services(), self.memo, self.budget, self.meters, self.clock
        self.engine_queries = EngineQueries(*parts, FanOutPace(self.clock, self.round), _not_configured)
        self.made = dict.fromkeys(source_ids, 0)
        self.hubs: dict[str, SourceHub] = {}
        self.leaving: list[SourceHub] = []

    @property
    def every_feed(self) -> list[SourceHub]:
        return [*self.hubs.values(), *self.leaving]

    def next_batch(
        self, name: str, size: int, columns: Mapping[str, Sequence[object]], cost: int = 0
    ) -> Batch:
        """The next events of a source, all in partition 0."""
        first = self.made[name]
        self.made[name] += size
        return Batch({0: first}, [0] * size, range(first, first + size), columns, cost)

    def hub(self, source_id: str) -> SourceHub | None:
        return self.hubs.get(source_id)

    def sources(self) -> list[SourceInfo]:
        return [hub.info for hub in self.hubs.values()]

    def account(self, who: Hashable) -> ClientAccount:
        return ClientAccount(0)

    def account_left(self, who: Hashable, account: ClientAccount) -> None:
        """Nothing is charged here."""

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        raise AssertionError("nobody here asks to be reminded")

    def continue_later(self, seconds: float, then: Callable[[bool], None]) -> None:
        raise AssertionError("nobody here has anything left to do")

    @property
    def write_seconds(self) -> float:
        return 4

    def produce_queue(self, source_id: str) -> ProduceQueue:
        raise AssertionError("nobody here writes")

    def commit_later(self, command: Commit, within: float, done: Callable[[Refusal | None], None]) -> None:
        raise AssertionError("nobody here commits")

    def call_later(self, request: LogIn, done: Callable[[Identity | Refusal], None]) -> None:
        raise AssertionError("nobody here calls")


class FakeSession:
    """commands: what the next message means. answer: what a notice does. notices: those that came."""

    def __init__(self) -> None:
        self.commands: Iterable[Command] = ()
        self.answer: Callable[[Notice], Iterable[Command]] = lambda notice: ()
        self.notices: list[Notice] = []
        self.came = trio.lowlevel.ParkingLot()

    def receive(self, message: str | bytes, now: float) -> Iterable[Command]:
        commands, self.commands = self.commands, ()
        return commands

    def notice(self, notice: Notice) -> Iterable[Command]:
        self.notices.append(notice)
        self.came.unpark_all()
        return self.answer(notice)

    async def wait_told(self, kind: type[Notice], within: float = 5) -> None:
        """Until a notice of this kind has come."""
        with trio.fail_after(within):
            while not any(isinstance(notice, kind) for notice in self.notices):
                await self.came.park()


def open_it(
    source_id: str, wire: Callable[[SourceInfo], WireFormat] | None = None, *, credit: int | None = None
) -> Open:
    """Subscribe, by push, or by pull with some credit; the handle is the source's id."""
    mode = Mode.PUSH if credit is None else Mode.PULL
    return Open(source_id, source_id, wire or (lambda info: names()), mode, credit or 0)


def log_in(text: str = "any", handle: Hashable = "login") -> Call:
    return Call(handle, LogIn(Token(text)))


class Client:
    """One connection with its fakes. cut: whether it was cut off."""

    def __init__(
        self, gateway: Gateway, identity: Identity, login_seconds: float | None, slot: AdmissionSlot | None
    ) -> None:
        self.session, self.socket = FakeSession(), Socket()
        self.cut = False
        self._gateway = gateway
        self.connection = Connection(
            gateway.next_number(),
            gateway,
            self.session,
            self.socket,
            identity,
            "fake",
            "here",
            trio.current_time(),
            self._cut,
            slot,
            login_seconds,
        )

    def does(self, *commands: Command) -> None:
        """It sends a message that means this."""
        self.session.commands = commands
        self.connection.receive("...", trio.current_time())

    @property
    def logins(self) -> list[Identity | Refusal]:
        """What came of its calls."""
        return [notice.result for notice in self.session.notices if isinstance(notice, CallDone)]

    async def wait_login(self, result: type[Identity] | type[Refusal]) -> None:
        """Until a call had such a result."""
        with trio.fail_after(5):
            while not any(isinstance(found, result) for found in self.logins):
                await self.session.came.park()

    def leave(self) -> None:
        self.connection.end()
        self._gateway.connection_closed(self.connection)

    def told(self, kind: type[Notice]) -> list[Notice]:
        return [notice for notice in self.session.notices if isinstance(notice, kind)]

    @property
    def ends(self) -> list[str]:
        """Why its subscriptions ended."""
        return [notice.reason.value for notice in self.session.notices if isinstance(notice, Ended)]

    @property
    def refusals(self) -> list[str]:
        return [notice.code for notice in self.session.notices if isinstance(notice, OpenFailed)]

    @property
    def opened(self) -> int:
        return len(self.told(Opened))

    @property
    def offsets(self) -> list[int]:
        """The events that it was sent."""
        return [event.place[1] for event in parse(bytes(self.socket.wire)) if hasattr(event, "place")]

    def _cut(self) -> None:
        self.cut = True


class FakeSettings(Section):
    type: Literal["fake"]
    id: str
    note: str = ""


class DialSettings(Section):
    number: int = 1


Run = Callable[[Publisher, Positions | None, SourceContext], Awaitable[None]]
OpenService = Callable[[PluginContext], AbstractAsyncContextManager[object]]


class _Source:
    def __init__(self, run: Run, context: SourceContext) -> None:
        self._run, self._context = run, context

    async def run(self, publisher: Publisher, start: Positions | None) -> None:
        await self._run(publisher, start, self._context)


async def live(publisher: Publisher, start: Positions | None, context: SourceContext) -> None:
    """What a source does if a test says nothing: it works and has no events."""
    await publisher.ready({0: 0} if start is None else start)
    await trio.sleep_forever()


@dataclass
class Sources:
    """A plugin with the source type `fake` and the section `dial`. run: what its sources do, by id."""

    run: dict[str, Run] = field(default_factory=dict)
    services_of_sources: tuple[str, ...] = ()
    open: dict[str, OpenService] = field(default_factory=dict)
    shape: Callable[[Section], EventSchema] = lambda settings: SHAPE
    start_ms: int = 5_000
    vet: Callable[[Section, SourceContext], Awaitable[Sequence[Diagnostic]]] | None = None
    built: list[str] = field(default_factory=list)

    def _describe(self, settings: Section) -> SourceDescription:
        return SourceDescription(self.shape(settings), services=self.services_of_sources, sections=("dial",))

    @hookimpl
    def source_types(self) -> Sequence[SourceType]:
        return (
            SourceType(
                "fake",
                FakeSettings,
                self._build,
                SHAPE,
                self._describe,
                start_ms=self.start_ms,
                vet=self.vet,
            ),
        )

    @hookimpl
    def services(self) -> Sequence[ServiceType]:
        return [ServiceType(name, opened, ("dial",)) for name, opened in self.open.items()]

    @hookimpl
    def config_sections(self) -> Sequence[ConfigSection]:
        return (ConfigSection("dial", DialSettings),)

    def _build(self, settings: Section, context: SourceContext) -> Source:
        self.built.append(context.source_id)
        return _Source(self.run.get(context.source_id, live), context)


def config(*ids: str, plugins: Iterable[str] = ("fake",), more: str = "") -> str:
    """The text of a configuration with these sources: `a`, or `a note` with another note."""
    parts = [(name, note) for name, _, note in (item.partition(" ") for item in ids)]
    sources = "".join(f"  - {{type: fake, id: {name}, note: '{note}'}}\n" for name, note in parts)
    return f"plugins: [{', '.join(plugins)}]\nsources:\n{sources or '  []'}\n{more}\n"


class Bench:
    """A gateway that runs, on a configuration in a file."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.file = gateway.loaded.path

    def connect(
        self,
        identity: Identity = ANONYMOUS,
        login_seconds: float | None = None,
        slot: AdmissionSlot | None = None,
    ) -> Client:
        client = Client(self.gateway, identity, login_seconds, slot)
        self.gateway.connection_opened(client.connection)
        client.connection.start()
        return client

    def subscribe(self, *source_ids: str) -> Client:
        """A new client that has subscribed to these sources."""
        client = self.connect()
        client.does(*map(open_it, source_ids))
        return client

    def write(self, text: str) -> None:
        """The configuration file, written anew as a whole."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.file)


def load_text(folder: Path, text: str, plugins: Mapping[str, object]) -> LoadedConfig:
    known = PluginManager()
    for name, plugin in plugins.items():
        known.register(plugin, name)
    file = folder / "kiwi.yml"
    file.write_text(text)
    return load(file, {}, known)


@asynccontextmanager
async def running(folder: Path, text: str, **plugins: object) -> AsyncIterator[Bench]:
    """A gateway with these plugins, on Trio's clock, all of whose tasks have come to rest."""
    gateway = Gateway(load_text(folder, text, plugins), trio.current_time)
    async with trio.open_nursery() as nursery:
        await nursery.start(gateway.run)
        await trio.testing.wait_all_tasks_blocked()
        yield Bench(gateway)
        nursery.cancel_scope.cancel()


async def settled() -> None:
    """Until every task waits for something."""
    await trio.testing.wait_all_tasks_blocked()
