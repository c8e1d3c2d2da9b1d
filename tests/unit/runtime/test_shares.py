"""What clients use of what all have together ends with them: wire keys, accounts, evaluations that wait.

A machine has clients of three identities subscribe, exchange what they have, become somebody else and vanish,
in the middle of whatever it is, while sources start, end and are altered under them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kiwi_gw.api import hookimpl
from kiwi_gw.core.accounts import ClientAccount
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.publishing import publish
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialects.kiwi.dialect import KiwiDialect
from kiwi_gw.dialects.zetta import ZettaDialect
from kiwi_gw.dialects.zetta.settings import ZettaSource
from kiwi_gw.model import (
    ANONYMOUS,
    CloseReason,
    EventSchema,
    EventTransform,
    Field,
    FieldEncoding,
    Identity,
    Refusal,
    SourceInfo,
    Transformed,
)
from kiwi_gw.runtime.connection import Connection
from tests.effort import examples
from tests.heads import HEAD
from tests.unit.runtime.fakes import FakeContext, Socket

SOURCES = {"arms": "hub/arm/{key}/state", "flat": "hub/flat/1/state"}
CLIENTS = 4
SHAPE = EventSchema((Field("sourceId", FieldEncoding.SOURCE_ID), Field("value", FieldEncoding.TEXT)))
LIMITS = HubLimits(max_wire_keys=4, wire_keys_identity=3, wire_keys_connection=2, window_events=6)
NO_LIMITS = SessionLimits(commands_per_second=0, requests_per_second=0)
TOPICS = (
    "**",
    "hub/arm/1/state",
    "hub/**?where data > 1",
    "**?where data > 2",
    "hub/flat/1/state?select data.x",
    "hub/query/where id = 1",
)


class World(FakeContext):
    """behind: identities whose events are intercepted. lent: accounts that connections have, by whose they
    are. due: what is to be done later."""

    def __init__(self) -> None:
        super().__init__(SOURCES, encodings_bytes=1 << 20)
        self.behind: set[str] = set()
        self.forbidden: set[str] = set()
        self.lent: Counter[Hashable] = Counter()
        self.due: list[Callable[[], None]] = []
        self.is_now: Identity | None = None
        self.plugins.register(self, "world")
        for name in SOURCES:
            self.begin(name)

    def begin(self, name: str) -> SourceInfo:
        """A source that does not run yet."""
        info = SourceInfo(name, "fake", SHAPE, blocks={"zetta": ZettaSource(topic=SOURCES[name])})
        self.hubs[name] = SourceHub(info, LIMITS, self.memo, self.budget, self.clock)
        return info

    def publish(self, name: str, size: int) -> None:
        hub = self.hubs[name]
        hub.started({0: self.made[name]})
        columns = {"key": [b"1", b"2", b"3"][:size], "value": [b"1", b'{"x":2}', b"3"][:size]}
        for _ in publish(hub, self.next_batch(name, size, columns, cost=size)):
            pass

    def account(self, who: Hashable) -> ClientAccount:
        self.lent[who] += 1
        return ClientAccount(0.1)

    def account_left(self, who: Hashable, account: ClientAccount) -> None:
        self.lent[who] -= 1

    @hookimpl
    def reauthenticate(self) -> Identity | None:
        return self.is_now

    @hookimpl
    def authorize(self, identity: Identity) -> Refusal | None:
        return Refusal("forbidden", "not for you") if identity.name in self.forbidden else None

    @hookimpl
    def intercept(self, identity: Identity) -> EventTransform | None:
        same = EventTransform(lambda batch: Transformed(), identity.name)
        return same if identity.name in self.behind else None

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        self.due.append(then)

    def continue_later(self, seconds: float, then: Callable[[bool], None]) -> None:
        self.due.append(lambda: then(False))


which = st.integers(0, CLIENTS - 1)
sources = st.sampled_from(sorted(SOURCES))
names = st.sampled_from(["ann", "bob", "anonymous"])


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.zetta = ZettaDialect("hub", wall=lambda: 0, clock=self.world.clock)
        self.number = 0
        self.clients: list[tuple[Connection, Socket]] = []
        for number in range(CLIENTS):
            self.come(ANONYMOUS if number else Identity("ann"), kiwi=number == 1)

    def come(self, identity: Identity, *, kiwi: bool) -> None:
        self.number += 1
        dialect = KiwiDialect() if kiwi else self.zetta
        name = "kiwi" if kiwi else "zetta"
        session, socket = dialect.open_session(HEAD, {}, identity, NO_LIMITS), Socket()
        connection = Connection(
            self.number, self.world, session, socket, identity, name, "here", 0.0, lambda: None
        )
        connection.start()
        self.clients.append((connection, socket))

    def say(self, client: int, **message: Any) -> None:
        self.clients[client][0].receive(json.dumps(message), self.world.clock())

    # --- clients ---

    @rule(client=which, topic=st.sampled_from(TOPICS), limit=st.sampled_from([None, None, 1, 3]))
    def subscribe(self, client: int, topic: str, limit: int | None) -> None:
        more = {} if limit is None else {"limit": limit}
        self.say(client, type="subscribe", topic=topic, **more)

    @rule(client=which, number=st.integers(1, 6))
    def unsubscribe(self, client: int, number: int) -> None:
        self.say(client, type="unsubscribe", subscriptionId=number)

    @rule(source=sources, where=st.sampled_from([None, "value = '1'", "value = '2'", "wrong ("]))
    def kiwi(self, source: str, where: str | None) -> None:
        more = {} if where is None else {"where": where}
        self.say(1, type="SUBSCRIBE", sourceId=source, **more)

    @rule(source=sources)
    def kiwi_leaves(self, source: str) -> None:
        self.say(1, type="UNSUBSCRIBE", sourceId=source)

    @rule(client=which, name=names)
    def become(self, client: int, name: str) -> None:
        self.world.is_now = ANONYMOUS if name == "anonymous" else Identity(name)
        self.clients[client][0].reauthorize()
        self.world.is_now = None

    @rule(name=names, behind=st.booleans(), forbidden=st.booleans())
    def rules_change(self, name: str, behind: bool, forbidden: bool) -> None:
        for names_, is_in in ((self.world.behind, behind), (self.world.forbidden, forbidden)):
            (names_.add if is_in else names_.discard)(name)
        for connection, _ in self.clients:
            connection.reauthorize()

    @rule(client=which, takes=st.booleans())
    def reads(self, client: int, takes: bool) -> None:
        socket = self.clients[client][1]
        socket.take = (lambda size: size) if takes else lambda size: 0
        if takes:
            socket.drain()

    @rule(client=which, name=names, first=st.booleans())
    def vanish(self, client: int, name: str, first: bool) -> None:
        connection = self.clients[client][0]
        if first:
            connection.send_close(1001, "draining")
        connection.end()
        self.come(ANONYMOUS if name == "anonymous" else Identity(name), kiwi=client == 1)
        self.clients[client] = self.clients.pop()

    # --- sources ---

    @rule(source=sources, size=st.integers(1, 3))
    def publish(self, source: str, size: int) -> None:
        self.world.publish(source, size)

    @rule(source=sources, fails=st.booleans())
    def alter(self, source: str, fails: bool) -> None:
        hub = self.world.hubs[source]
        if fails:
            hub.failed("it can never work")
        else:
            hub.removed(CloseReason.ALTERED, "altered", 5)
        self.world.leaving.append(hub)
        info = self.world.begin(source)
        for connection, _ in self.clients:
            connection.source_appeared(info)

    @rule(seconds=st.sampled_from([0.0, 0.3, 6.0]))
    def wait(self, seconds: float) -> None:
        self.world.clock.now += seconds
        due, self.world.due = self.world.due, []
        for then in due:
            then()
        for hub in self.world.every_feed:
            hub.sweep()
        for _ in range(20):
            self.world.evaluations.go_on(idle=True)

    # --- what holds ---

    @invariant()
    def what_is_counted_is_what_there_is(self) -> None:
        for hub in self.world.every_feed:
            expected: Counter[object] = Counter()
            of: dict[Hashable, Counter[object]] = {}
            payers: dict[object, Counter[ClientAccount]] = {}
            size = 0
            for connection, _ in self.clients:
                for item in connection.subscriptions.values():
                    if item.hub is not hub or item.closed:
                        continue
                    size += 1
                    if item.group.costs is not None and item.payer is not None:
                        payers.setdefault(item.group.costs, Counter())[item.payer.account] += 1
                    if item.group.wire.chosen:
                        assert item.payer is not None
                        assert item.payer.identity == connection.access.who
                        expected[item.group] += 1
                        for who in (("identity", item.payer.identity), ("connection", connection.number)):
                            of.setdefault(who, Counter())[item.group] += 1
            assert (hub.groups.chosen._all, hub.groups.chosen._of) == (expected, of)
            assert hub.subscribers == size == sum(group.size for group in hub.groups)
            for group in hub.groups:
                assert group.costs is None or group.costs.payers == payers.get(group.costs, {})

    def teardown(self) -> None:
        for connection, _ in self.clients:
            connection.end()
        for hub in self.world.every_feed:
            assert hub.subscribers == hub.wire_keys == len(hub.groups.chosen) == 0
            assert hub.groups.chosen._of == {}
        assert +self.world.lent == Counter()
        assert len(self.world.evaluations) == 0


def test_whatever_clients_used_together_is_given_back_when_they_are_gone() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples(60),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
