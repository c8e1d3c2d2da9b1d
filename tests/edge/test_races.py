"""Everything at once on one connection: unsubscribed while a batch is being sent, subscribed again under the
same name, closed while it drains, sources altered under it (row R15).

A machine drives the whole way of an event without a socket: hubs, the Kiwi protocol, a connection and its
frame writer, over a pipe that takes as much as the machine says. Every client's wire is read from its first
byte, and each of its subscriptions is judged by the checker of the faults.
"""

from __future__ import annotations

import json
import types
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.publishing import publish
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.core.window import ENTRY_OVERHEAD
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialects.kiwi.dialect import KiwiDialect
from kiwi_gw.edge.transports import Bytes
from kiwi_gw.edge.websocket_writer import WebSocketWriter
from kiwi_gw.model import (
    ANONYMOUS,
    Batch,
    CloseReason,
    EventSchema,
    Field,
    FieldEncoding,
    SourceInfo,
)
from kiwi_gw.runtime.connection import Connection
from tests.effort import examples
from tests.faults.checker import Item, Lag, Run, Verdict, announced, judge, produced, received
from tests.heads import HEAD
from tests.integration.wire import CLOSE, TEXT, frames
from tests.unit.runtime.fakes import FakeContext

SOURCES = ("a", "b")
CLIENTS = 3
ENDLESS = 1 << 60
STEPS = 50
SHAPE = EventSchema(
    (
        Field("sourceId", FieldEncoding.SOURCE_ID),
        Field("partition", FieldEncoding.INT),
        Field("offset", FieldEncoding.INT),
    )
)
NO_LIMITS = SessionLimits(commands_per_second=0, requests_per_second=0)
Json = dict[str, Any]


@types.coroutine
def _until_there_is_room() -> Generator[None, None, None]:
    yield


class Pipe:
    """A transport that takes `room` bytes."""

    broken = False
    pending = False

    def __init__(self) -> None:
        self.wire = bytearray()
        self.room = ENDLESS

    def try_send(self, data: Bytes) -> int:
        taken = min(len(data), self.room)
        self.room -= taken
        self.wire += data[:taken]
        return taken

    def try_send_many(self, buffers: Sequence[Bytes]) -> int:
        return self.try_send(b"".join(buffers))

    def flush(self) -> bool:
        return True

    def unanswered(self) -> float | None:
        return None

    async def wait_writable(self) -> None:
        await _until_there_is_room()


class Gateway(FakeContext):
    """Two sources of numbered events."""

    def __init__(self, limits: HubLimits) -> None:
        super().__init__(SOURCES, encodings_bytes=2_000)
        self.limits = limits
        self.steps: dict[str, Generator[Batch | None]] = {}
        for name in SOURCES:
            self.begin(name)

    def begin(self, name: str) -> None:
        info = SourceInfo(name, "fake", SHAPE)
        self.hubs[name] = SourceHub(info, self.limits, self.memo, self.budget, self.clock)
        self.hubs[name].started({0: self.made[name]})

    def publish(self, name: str, size: int) -> None:
        """As much of it as one step of fan-out does."""
        self.finish(name)
        self.steps[name] = publish(self.hubs[name], self.next_batch(name, size, {}))
        next(self.steps[name], None)

    def finish(self, name: str) -> None:
        for _ in self.steps.pop(name, ()):
            pass

    def let_go(self, name: str) -> None:
        """The source is cancelled in the middle of a batch."""
        steps = self.steps.pop(name, None)
        if steps is not None:
            steps.close()

    def replace(self, name: str, end: Callable[[SourceHub], None]) -> None:
        """It ends, and another one takes its name."""
        self.let_go(name)
        end(self.hubs[name])
        self.leaving.append(self.hubs[name])
        self.begin(name)


class Client:
    """One connection, and what it has asked for. said: how many frames of each kind."""

    def __init__(self, gateway: Gateway, number: int) -> None:
        self.gateway = gateway
        self.pipe = Pipe()
        self.said: Counter[str] = Counter()
        self.over = False
        self._drains: list[Coroutine[Any, Any, None]] = []
        self.writer = WebSocketWriter(self.pipe, self._spawn, gateway.clock, gateway.turns, send_bytes=400)
        session = KiwiDialect().open_session(HEAD, {}, ANONYMOUS, NO_LIMITS)
        self.connection = Connection(
            number, gateway, session, self.writer, ANONYMOUS, "kiwi", "here", 0.0, lambda: None
        )
        self.connection.start()

    def say(self, kind: str, source: str, **more: object) -> None:
        self.said[kind] += self.writer.close_code is None
        text = json.dumps({"type": kind, "sourceId": source, **more})
        self.connection.receive(text, self.gateway.clock())

    def reads(self, room: int) -> None:
        self.pipe.room = room
        for drain in self._drains[:]:
            try:
                drain.send(None)
            except StopIteration:
                self._drains.remove(drain)

    def leaves(self) -> None:
        self.connection.end()
        self.writer.abandon()
        for drain in self._drains:
            drain.close()
        self.over = True

    def _spawn(self, drain: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._drains.append(drain())
        self._drains[-1].send(None)
        assert len(self._drains) == 1, "one drain task at most"


@dataclass
class Subscription:
    """What one was given and told. ended: the notice of its end, or an empty one after UNSUBSCRIBE_OK."""

    begin: int
    pull: bool
    history: list[Item] = field(default_factory=list)
    granted: int = 0
    ended: Json | None = None

    @property
    def events(self) -> int:
        return sum(item.last - item.first + 1 for item in self.history if isinstance(item, Run))


class Reading:
    """Takes a wire apart, and asserts whatever can be said of a message from those before it."""

    def __init__(self, wire: bytes, *, whole: bool) -> None:
        self.answers: Counter[str] = Counter()
        self.subscriptions: dict[str, list[Subscription]] = {name: [] for name in SOURCES}
        self.close: int | None = None
        buffer = bytearray(wire)
        for opcode, payload in frames(buffer):
            assert self.close is None, "something follows a close frame"
            if opcode == CLOSE:
                self.close = int.from_bytes(payload[:2], "big")
                continue
            assert opcode == TEXT
            message = json.loads(payload)
            self._take(message["type"], message["data"])
        assert not (whole and buffer), "the last frame is cut off"

    def _open(self, source: str) -> Subscription:
        last = self.subscriptions[source][-1]
        assert last.ended is None, f"{source} has ended"
        return last

    def _take(self, kind: str, data: Json) -> None:
        source = data.get("sourceId", "")
        match kind:
            case "SUBSCRIBE_OK":
                earlier = self.subscriptions[source]
                assert not earlier or earlier[-1].ended is not None, "two at a time"
                earlier.append(Subscription(data["positions"]["0"], data["mode"] == "pull"))
            case "UNSUBSCRIBE_OK":
                self._open(source).ended = {}
            case "REQUEST_OK":
                one = self._open(source)
                one.granted += data["n"]
                assert data["credits"] <= one.granted - one.events
            case "RESULT":
                one = self._open(source)
                one.history.append(Run(data["partition"], data["offset"], data["offset"]))
                # A reply may come with the events that it sets free, but never behind them.
                assert not one.pull or one.events <= one.granted, "more than was asked for"
            case "NOTICE" if data["type"] == "LAG":
                ranges = {int(p): (first, last) for p, (first, last) in data["ranges"].items()}
                self._open(source).history.append(Lag(data["behind"], data["dropped"], data["count"], ranges))
            case "NOTICE" if data["type"] == "SUBSCRIPTION_CLOSED":
                self._open(source).ended = data
            case "NOTICE":
                assert data["type"] == "DRAINING"
            case _:
                assert kind in ("SUBSCRIBE_ERROR", "UNSUBSCRIBE_ERROR", "REQUEST_ERROR"), kind
        self.answers[kind.partition("_")[0]] += kind not in ("RESULT", "NOTICE")


def check(one: Subscription, end: int) -> None:
    """All that it was to have until `end`, or until it ended, came once and in order or was announced."""
    if one.ended is None:
        assert judge(one.history, produced({0: end}, {0: one.begin})) == Verdict()
        return
    reached = one.ended["positions"]["0"] if one.ended else _reached(one)
    assert judge(one.history, produced({0: reached}, {0: one.begin})) == Verdict()
    if one.ended:
        assert reached + one.ended["dropped"] <= end


def _reached(one: Subscription) -> int:
    """Where a subscription was that its client has ended: behind all that it had or was told of."""
    everything = [*received(one.history).values(), *announced(one.history).values()]
    return max((last + 1 for offsets in everything for _, last in offsets), default=one.begin)


sources = st.sampled_from(SOURCES)
which = st.integers(0, CLIENTS - 1)
modes = st.sampled_from(["push", "pull"])


class Machine(RuleBasedStateMachine):
    @initialize(window=st.integers(4, 30), entries=st.integers(2, 20))
    def start(self, window: int, entries: int) -> None:
        limits = HubLimits(
            window_events=window, window_bytes=entries * ENTRY_OVERHEAD, direct_bytes=300, slice_seconds=0
        )
        self.gateway = Gateway(limits)
        self.numbers = iter(range(1, 1_000_000))
        self.clients = [Client(self.gateway, next(self.numbers)) for _ in range(CLIENTS)]

    # --- sources ---

    @rule(source=sources, size=st.integers(1, 12))
    def produce(self, source: str, size: int) -> None:
        self.gateway.publish(source, size)

    @rule(source=sources)
    def go_on(self, source: str) -> None:
        next(self.gateway.steps.get(source, iter(())), None)

    @rule(source=sources)
    def let_go(self, source: str) -> None:
        self.gateway.let_go(source)

    @rule(source=sources)
    def alter(self, source: str) -> None:
        self.gateway.replace(source, lambda hub: hub.removed(CloseReason.ALTERED, "altered", 5))

    @rule(source=sources)
    def fail(self, source: str) -> None:
        self.gateway.replace(source, lambda hub: hub.failed("it can never work"))

    @rule(seconds=st.sampled_from([0.3, 1.0, 5.0]))
    def wait(self, seconds: float) -> None:
        self.gateway.clock.now += seconds
        for hub in self.gateway.every_feed:
            hub.sweep()

    # --- clients ---

    @rule(number=which, source=sources, mode=modes, policy=st.sampled_from(["drop_oldest", "close"]))
    def subscribe(self, number: int, source: str, mode: str, policy: str) -> None:
        self.clients[number].say("SUBSCRIBE", source, mode=mode, overflow=policy)

    @rule(number=which, source=sources)
    def unsubscribe(self, number: int, source: str) -> None:
        self.clients[number].say("UNSUBSCRIBE", source)

    @rule(number=which, source=sources, mode=modes)
    def subscribe_again(self, number: int, source: str, mode: str) -> None:
        self.clients[number].say("UNSUBSCRIBE", source)
        self.clients[number].say("SUBSCRIBE", source, mode=mode)

    @rule(number=which, source=sources, n=st.sampled_from([1, 3, 20]))
    def request(self, number: int, source: str, n: int) -> None:
        self.clients[number].say("REQUEST", source, n=n)

    @rule(number=which, room=st.sampled_from([0, 1, 90, 500, ENDLESS]))
    def read(self, number: int, room: int) -> None:
        self.clients[number].reads(room)

    @rule(number=which)
    def drain(self, number: int) -> None:
        self.clients[number].connection.drain("draining", 100)

    @precondition(lambda self: any(client.writer.close_code for client in self.clients))
    @rule()
    def those_who_were_sent_away_come_back(self) -> None:
        for number, client in enumerate(self.clients):
            if client.writer.close_code is not None:
                client.reads(ENDLESS)
                self.judged(client)
                client.leaves()
                self.clients[number] = Client(self.gateway, next(self.numbers))

    @rule(number=which)
    def vanish(self, number: int) -> None:
        client = self.clients[number]
        client.leaves()
        Reading(bytes(client.pipe.wire), whole=False)
        self.clients[number] = Client(self.gateway, next(self.numbers))

    # --- the end ---

    def judged(self, client: Client) -> None:
        """Everything has been read, and every source has done what it had begun."""
        for source in SOURCES:
            self.gateway.finish(source)
        reading = Reading(bytes(client.pipe.wire), whole=True)
        assert reading.close == client.writer.close_code
        assert reading.answers == +client.said, "every frame has one answer"
        for source, subscriptions in reading.subscriptions.items():
            for one in subscriptions:
                out_of_credit = one.pull and one.events == one.granted
                if one.ended is None and (out_of_credit or reading.close):
                    one.ended = {}  # it stands where its credit has ended, or the connection has
                check(one, self.gateway.made[source])

    def teardown(self) -> None:
        if not hasattr(self, "gateway"):
            return
        gateway = self.gateway
        for source in SOURCES:
            gateway.finish(source)
        for client in self.clients:
            client.reads(ENDLESS)
        for client in self.clients:
            self.judged(client)
            client.leaves()
        for hub in gateway.every_feed:
            assert hub.subscribers == hub.wire_keys == hub.behind == 0
            hub.close()
        assert gateway.budget.used == gateway.memo.bytes == 0


def test_whatever_happens_at_once_is_exact() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples(60),
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
