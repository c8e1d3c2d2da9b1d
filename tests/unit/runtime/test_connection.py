"""One client: commands are carried out in order, faults end it alone, and it leaves nothing behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from structlog.typing import EventDict
from trio.testing import MockClock

from kiwi_gw.api import (
    Action,
    Credential,
    Identity,
    Interceptor,
    Positions,
    Publisher,
    Refusal,
    SourceContext,
    SourceInfo,
    Token,
    hookimpl,
)
from kiwi_gw.core.commands import (
    MAX_CALLS,
    AddCredit,
    Call,
    Cancel,
    Close,
    Command,
    Continue,
    Inspect,
    LogIn,
    Reconfigure,
    Reply,
    SetTimer,
)
from kiwi_gw.core.notices import (
    CallDone,
    Cancelled,
    Continued,
    CreditAdded,
    Dismissed,
    Draining,
    Ended,
    Inspected,
    Lagged,
    Notice,
    Opened,
    OpenFailed,
    ReconfigureRefused,
    SourceAppeared,
    TimerFired,
)
from kiwi_gw.core.wire_keys import ChosenKeys
from kiwi_gw.edge.websocket import describe
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import ANONYMOUS, AtTime, Batch, Decode, Encoded, Password, StartAt, WireFormat
from kiwi_gw.runtime.memory_watch import Overload
from tests.unit.core.fakes import names
from tests.unit.runtime.fakes import Bench, Client, Sources, batch, config, log_in, open_it, running, settled

Logged = Callable[[str], list[EventDict]]


class Rules:
    """A plugin. forbidden: ids of sources. interceptor: for everyone. who: what `authenticate` says.
    asked: the tokens that it was asked about."""

    def __init__(self) -> None:
        self.forbidden: set[str] = set()
        self.interceptor: Interceptor | None = None
        self.who: Identity | Refusal | None = None
        self.asked: list[str] = []

    @hookimpl
    def authenticate(self, credential: Credential) -> Identity | Refusal | None:
        if isinstance(credential, Token):
            self.asked.append(credential.text)
        return self.who

    @hookimpl
    def authorize(self, identity: Identity, action: Action, source: SourceInfo) -> Refusal | None:
        return Refusal("forbidden", "not for you") if source.id in self.forbidden else None

    @hookimpl
    def intercept(self, identity: Identity, source: SourceInfo) -> Interceptor | None:
        return self.interceptor


class Fixture:
    """A gateway with the sources `a`, `b` and one that is `late`, each under the test's control."""

    def __init__(self, bench: Bench, outs: dict[str, Publisher], rules: Rules, release: trio.Event) -> None:
        self.gateway, self.connect, self.subscribe = bench.gateway, bench.connect, bench.subscribe
        self.outs, self.rules, self.release = outs, rules, release

    async def publish(self, source_id: str, first: int, size: int = 1) -> None:
        await self.outs[source_id].publish(batch(first, size))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Fixture]:
    outs: dict[str, Publisher] = {}
    release = trio.Event()

    async def run(publisher: Publisher, start: Positions | None, context: SourceContext) -> None:
        if context.source_id == "late":
            await release.wait()
        await publisher.ready({0: 0})
        outs[context.source_id] = publisher
        await trio.sleep_forever()

    rules = Rules()
    sources = Sources(dict.fromkeys(("a", "b", "late"), run))
    text = config("a", "b", "late", plugins=("fake", "rules"))
    async with running(tmp_path, text, fake=sources, rules=rules) as bench:
        yield Fixture(bench, outs, rules, release)


def kinds(client: Client) -> list[str]:
    return [
        type(notice).__name__ for notice in client.session.notices if not isinstance(notice, SourceAppeared)
    ]


# --- subscribing -------------------------------------------------------------------------------


async def test_it_is_told_of_every_source_first(world: Fixture) -> None:
    client = world.connect()
    assert [n.source.id for n in client.session.notices if isinstance(n, SourceAppeared)] == [
        "a",
        "b",
        "late",
    ]


async def test_events_follow_opened_and_nothing_follows_cancelled(world: Fixture) -> None:
    client = world.subscribe("a")
    assert kinds(client) == ["Opened"]
    await world.publish("a", 0, 3)
    client.does(Cancel("a"))
    await world.publish("a", 3, 3)
    assert kinds(client) == ["Opened", "Cancelled"]
    assert client.offsets == [0, 1, 2]
    assert client.connection.subscriptions == {}
    assert client.connection.delivered == 3


@pytest.mark.parametrize("source_id", ["nowhere", "b"])
async def test_unknown_and_forbidden_get_the_same_answer(world: Fixture, source_id: str) -> None:
    world.rules.forbidden = {"b"}
    client = world.subscribe(source_id)
    (failed,) = client.told(OpenFailed)
    assert isinstance(failed, OpenFailed)
    assert (failed.code, failed.message) == ("unknown_source", "no source has this id")


async def test_what_cannot_be_is_refused_in_words(world: Fixture) -> None:
    def refuse(info: SourceInfo) -> WireFormat:
        raise SubscribeRefused("fields", "no such field")

    client = world.connect()
    client.does(open_it("a", refuse))
    client.does(replace(open_it("a"), start=AtTime(0)))
    client.does(replace(open_it("b"), until="tomorrow"))
    assert client.refusals == ["fields", "start", "positions"]
    assert client.connection.subscriptions == {}
    assert world.gateway.hub("a").subscribers == world.gateway.hub("b").subscribers == 0  # type: ignore[union-attr]


async def test_credit_for_a_source_that_starts_is_answered_after_opened(world: Fixture) -> None:
    client = world.connect()
    client.does(open_it("late", credit=0), AddCredit("late", 2), AddCredit("late", 3))
    assert kinds(client) == []
    world.release.set()
    await settled()
    assert kinds(client) == ["Opened", "CreditAdded", "CreditAdded"]
    assert [n.credits for n in client.session.notices if isinstance(n, CreditAdded)] == [2, 5]


async def test_a_source_that_does_not_start_in_time(autojump_clock: MockClock, world: Fixture) -> None:
    client = world.connect()
    client.does(open_it("late", credit=0), AddCredit("late", 2))
    await trio.sleep(5.2)
    assert kinds(client) == ["OpenFailed"]
    world.release.set()
    await settled()
    client.does(open_it("late", credit=0))
    assert kinds(client) == ["OpenFailed", "Opened"]  # and not the credit that was given before


async def test_one_that_is_cancelled_while_it_opens_never_opens(world: Fixture) -> None:
    client = world.connect()
    client.does(open_it("late"), Cancel("late"))
    world.release.set()
    await settled()
    assert kinds(client) == ["Cancelled"]


async def test_commands_for_what_is_not_there_are_ignored(world: Fixture) -> None:
    client = world.connect()
    client.does(Cancel("a"), AddCredit("a", 1), Reconfigure("a", lambda info: names()))
    assert kinds(client) == []


async def test_one_that_is_cancelled_by_the_answer_to_its_opening(world: Fixture) -> None:
    client = world.connect()
    client.session.answer = lambda notice: (Cancel("a"),) if isinstance(notice, Opened) else ()
    client.does(open_it("a"))
    assert kinds(client) == ["Opened", "Cancelled"]
    assert client.connection.subscriptions == {}
    assert world.gateway.hub("a").subscribers == 0  # type: ignore[union-attr]


async def test_one_that_subscribes_again_as_soon_as_it_has_ended(world: Fixture) -> None:
    client = world.subscribe("a")
    client.session.answer = lambda notice: (open_it("a"),) if isinstance(notice, Cancelled) else ()
    client.does(Cancel("a"))
    await world.publish("a", 0)
    assert kinds(client) == ["Opened", "Cancelled", "Opened"]
    assert client.offsets == [0]


async def test_recast_goes_on_with_another_format(world: Fixture) -> None:
    client = world.subscribe("a")
    await world.publish("a", 0)
    client.does(Reconfigure("a", lambda info: names("other")))
    await world.publish("a", 1)
    assert b"<e:0:0:" in client.socket.wire
    assert b"<other:0:1:" in client.socket.wire


async def test_a_recast_that_is_not_allowed_any_more_ends_it(world: Fixture) -> None:
    client = world.subscribe("a")
    world.rules.forbidden = {"a"}
    client.does(Reconfigure("a", lambda info: names("other")))
    assert client.ends == ["unauthorized"]


async def test_a_recast_that_is_one_wire_key_too_many_leaves_it_as_it_was(world: Fixture) -> None:
    hub = world.gateway.hub("a")
    assert hub is not None
    hub.groups.chosen = ChosenKeys(1, 0, 0)
    client, other = world.connect(), world.connect()
    for each in (client, other):
        each.does(open_it("a", lambda info: replace(names("one"), chosen=True)))
    shares = {who: dict(counted) for who, counted in hub.groups.chosen._of.items()}
    client.does(Reconfigure("a", lambda info: replace(names("two"), chosen=True)))
    (refused,) = client.told(ReconfigureRefused)
    assert isinstance(refused, ReconfigureRefused)
    assert (refused.handle, refused.code) == ("a", "too_many_wire_keys")
    assert {who: dict(counted) for who, counted in hub.groups.chosen._of.items()} == shares
    await world.publish("a", 0)
    assert b"<one:0:0:" in client.socket.wire
    assert (client.ends, client.offsets) == ([], [0])


async def test_a_recast_to_less_is_refused_only_for_the_clients_own_shares(world: Fixture) -> None:
    hub = world.gateway.hub("a")
    assert hub is not None
    hub.groups.chosen = ChosenKeys(1, 1, 0)
    ann, more, bob = (world.connect(Identity(name)) for name in ("ann", "ann", "bob"))
    for each in (ann, more, bob):
        each.does(open_it("a", lambda info: replace(names("one"), chosen=True)))
    less = Reconfigure("a", lambda info: replace(names("less"), chosen=True), fewer=True)
    bob.does(less)
    assert (bob.ends, len(hub.groups.chosen)) == ([], 2)
    ann.does(less)
    assert ann.ends == ["unauthorized"]


async def test_shares_follow_a_connection_that_becomes_somebody_else(world: Fixture) -> None:
    hub = world.gateway.hub("a")
    assert hub is not None
    client = world.connect(Identity("ann"))
    client.does(open_it("a", lambda info: replace(names("one"), chosen=True)))
    (subscription,) = client.connection.subscriptions.values()
    assert subscription.payer is not None
    anns = subscription.payer.account
    anns.charge(1.0, world.gateway.clock())
    world.rules.who = Identity("bob")
    client.does(log_in())
    await client.wait_login(Identity)
    mine = ("connection", client.connection.number)
    assert hub.groups.chosen._of.keys() == {("identity", ("name", "bob")), mine}
    assert subscription.payer.account is not anns
    client.leave()
    assert hub.groups.chosen._of == {}
    assert world.gateway.account(("name", "ann")) is anns
    assert world.gateway.account(("name", "bob")).used == 0


async def test_the_types_of_a_source_are_not_for_queries_behind_an_interceptor(world: Fixture) -> None:
    hub = world.gateway.hub("a")
    assert hub is not None
    hub.info = replace(hub.info, decode=Decode(fields="id INT, ssn STRING"))
    given: list[str] = []

    def make(info: SourceInfo) -> WireFormat:
        given.append(info.decode.fields)
        return names()

    for interceptor in (None, Interceptor(lambda record: record, "same")):
        world.rules.interceptor = interceptor
        client = world.connect()
        client.does(open_it("a", make), Reconfigure("a", make))
    assert given == ["id INT, ssn STRING"] * 2 + [""] * 2


async def test_what_came_before_a_subscription_began_is_not_examined_for_it(world: Fixture) -> None:
    await world.publish("a", 0, 3)
    client, past = world.subscribe("a"), world.connect()
    past.does(replace(open_it("a"), start=StartAt.EARLIEST))
    client.does(Inspect("a"))
    await world.publish("a", 3, 2)
    client.does(Inspect("a"))
    past.does(Inspect("a"))
    looked_at = [
        [list(batch.offsets) for batch in notice.newest]
        for each in (client, past)
        for notice in each.told(Inspected)
        if isinstance(notice, Inspected)
    ]
    assert looked_at == [[], [[3, 4]], [[0, 1, 2], [3, 4]]]


async def test_nothing_is_said_of_a_subscription_that_is_over_when_it_is_looked_at(world: Fixture) -> None:
    client = world.subscribe("a")
    client.does(Cancel("a"))
    before = len(client.session.notices)
    client.does(Inspect("a"))
    assert client.session.notices[before:] == []
    assert client.socket.close_code is None


# --- closing -----------------------------------------------------------------------------------


async def test_nothing_is_begun_behind_a_hangup(world: Fixture) -> None:
    client = world.connect()
    client.does(Close(1008, "enough"), open_it("a"), Reply(b"{9}"))
    client.does(open_it("b"))
    assert client.socket.close_code == 1008
    assert client.connection.subscriptions == {}
    assert world.gateway.hub("a").subscribers == 0  # type: ignore[union-attr]
    assert bytes(client.socket.wire) == b""


async def test_hanging_up_and_leaving_let_go_of_everything(world: Fixture) -> None:
    hub = world.gateway.hub("a")
    assert hub is not None
    for leaves in (True, False):
        client = world.subscribe("a", "late")
        await world.publish("a", hub.window.head, 2)
        assert hub.subscribers == 1
        if leaves:
            client.leave()
        else:
            client.connection.send_close(1001, "bye")
        assert hub.subscribers == 0
        assert client.connection.delivered == 2
        assert kinds(client) == ["Opened"]
    assert world.gateway.hub("late").subscribers == 0  # type: ignore[union-attr]


async def test_whoever_has_left_is_told_nothing(world: Fixture) -> None:
    client = world.subscribe("a")
    (subscription,) = client.connection.subscriptions.values()
    client.leave()
    client.connection.notify(subscription, Cancelled("a"))
    assert kinds(client) == ["Opened"]


@pytest.mark.parametrize(
    ("wants", "not_within", "notice"),
    [(SetTimer(1.5), 1, TimerFired()), (Continue(1000.0), 0, Continued(idle=True))],
    ids=["a reminder", "to go on, which is sooner on an idle loop"],
)
async def test_a_session_gets_what_it_wants_later_when_the_client_can_take_what_it_says(
    autojump_clock: MockClock, world: Fixture, wants: Command, not_within: float, notice: Notice
) -> None:
    clients = ready, stalled, gone = world.connect(), world.connect(), world.connect()
    stalled.socket.stuck = True
    for client in clients:
        client.does(wants)
    gone.leave()
    for seconds, told in ((not_within, [0, 0, 0]), (1, [1, 0, 0]), (1, [1, 1, 0])):
        stalled.socket.stuck = told != [1, 1, 0]
        await trio.sleep(seconds)
        assert [len(client.told(type(notice))) for client in clients] == told
    assert ready.told(type(notice)) == [notice]


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_client_is_not_read_before_the_turn_that_its_session_waits_for(
    autojump_clock: MockClock, world: Fixture, leaves: bool
) -> None:
    client = world.connect()
    client.does(Continue(0))
    turns = client.connection.turns
    assert turns is not None
    assert not turns.full
    client.does(Continue(0, pause=True))
    assert turns.full
    if leaves:
        client.connection.send_close(1001, "bye")
        assert not turns.full
    with trio.fail_after(5):
        await turns.wait_room()
    assert len(client.told(Continued)) == (0 if leaves else 2)


async def test_drain_says_when_to_come_back_where_the_protocol_can(world: Fixture) -> None:
    silent, speaking = world.connect(), world.connect()
    speaking.session.answer = lambda notice: (Reply(b"{7}"),) if isinstance(notice, Draining) else ()
    for client in (silent, speaking):
        client.connection.drain("draining", 250)
    assert (silent.socket.close_code, speaking.socket.close_code) == (1001, 1012)
    assert bytes(speaking.socket.wire) == b"{7}"
    assert [n.retry_after_ms for n in speaking.session.notices if isinstance(n, Draining)] == [250]


async def test_what_the_log_says_of_it(world: Fixture) -> None:
    client = world.subscribe("a")
    await world.publish("a", 0, 4)
    client.leave()
    line = describe(client.connection, client.connection.opened_at + 1.5)
    assert line == {
        "conn_id": 1,
        "dialect": "fake",
        "remote": "here",
        "identity": "anonymous",
        "duration": 1.5,
        "code": None,
        "bytes": len(client.socket.wire),
        "delivered": 4,
    }


# --- faults of ours ----------------------------------------------------------------------------


def breaks(kind: type[Notice]) -> Callable[[Notice], Iterable[Command]]:
    def answer(notice: Notice) -> Iterable[Command]:
        if isinstance(notice, kind):
            raise ZeroDivisionError("a bug in a dialect")
        return ()

    return answer


async def test_a_session_that_fails_in_a_fan_out_ends_its_connection_alone(
    world: Fixture, logged: Logged
) -> None:
    broken, healthy = world.connect(), world.connect()
    broken.session.answer = breaks(Lagged)
    for client in (broken, healthy):
        client.does(open_it("a"))
    (subscription,) = broken.connection.subscriptions.values()
    subscription.reader.lag.due = True
    subscription.writer.mark_ready(subscription)
    await world.publish("a", 0, 3)
    await world.publish("a", 3, 3)
    assert healthy.offsets == [0, 1, 2, 3, 4, 5]
    assert broken.socket.close_code == 1011
    (line,) = logged("connection failed")
    assert line["err_id"] in broken.socket.close_reason
    assert logged("source raised; it is restarted") == []


async def test_a_format_that_fails_ends_its_own_subscriptions_alone(world: Fixture, logged: Logged) -> None:
    def encode(batch: Batch) -> Encoded:
        raise ZeroDivisionError

    broken, again, healthy = world.connect(), world.connect(), world.connect()
    for client in (broken, again):
        client.does(open_it("a", lambda info: WireFormat("broken", encode)))
    healthy.does(open_it("a"))
    await world.publish("a", 0, 3)
    assert healthy.offsets == [0, 1, 2]
    assert broken.ends == again.ends == ["failed"]
    assert broken.socket.close_code is None
    assert len(logged("events could not be encoded")) == 1
    assert logged("source raised; it is restarted") == []


@pytest.mark.parametrize("kind", [Ended, Draining, SourceAppeared])
async def test_a_session_that_fails_while_others_are_told(
    world: Fixture, kind: type[Notice], logged: Logged
) -> None:
    broken, healthy = world.subscribe("a"), world.subscribe("a")
    broken.session.answer = breaks(kind)
    hub = world.gateway.hub("a")
    assert hub is not None
    if kind is Ended:
        hub.failed("over")
        assert healthy.ends == ["failed"]
    elif kind is Draining:
        await world.gateway.drain("draining", 0)
        assert healthy.socket.close_code == 1001
    else:
        for client in (broken, healthy):
            client.connection.source_appeared(hub.info)
        assert healthy.socket.close_code is None
    assert broken.socket.close_code == 1011
    assert len(logged("connection failed")) == 1


async def test_replies_are_corked_only_while_commands_are_carried_out(world: Fixture) -> None:
    client = world.connect()
    corked: list[bool] = []

    def answer(notice: Notice) -> Iterable[Command]:
        corked.append(client.socket.corked)
        return (Reply(b"{1}"),)

    client.session.answer = answer
    client.does(open_it("a", credit=0), AddCredit("a", 1))
    assert corked == [True, True]
    assert not client.socket.corked

    def fails(notice: Notice) -> Iterable[Command]:
        raise ZeroDivisionError

    client.session.answer = fails
    client.does(Cancel("a"))
    assert not client.socket.corked


# --- identities --------------------------------------------------------------------------------


async def test_an_identity_may_change_and_takes_its_rights_along(world: Fixture) -> None:
    client = world.subscribe("a", "b")
    world.rules.who = Identity("ann")
    world.rules.forbidden = {"b"}
    client.does(log_in())
    await client.wait_login(Identity)
    assert client.connection.identity.name == "ann"
    assert client.ends == ["unauthorized"]
    assert list(client.connection.subscriptions) == ["a"]


async def test_one_connection_too_many_of_an_identity_is_refused_as_its_credentials_are(
    world: Fixture,
) -> None:
    class Full:
        client = None

        def identify(self, identity: Identity) -> Refusal | None:
            return Refusal("too_many_connections", "no") if identity.name == "ann" else None

    client = world.connect(slot=Full())
    world.rules.who = Identity("ann")
    client.does(log_in())
    await client.wait_login(Refusal)
    assert client.connection.identity is ANONYMOUS
    assert client.socket.close_code is None
    world.rules.who = Identity("bob")
    client.does(log_in())
    await client.wait_login(Identity)
    assert client.connection.identity.name == "bob"


async def test_the_first_subscription_of_a_connection_is_too_much_where_memory_is_short(
    world: Fixture,
) -> None:
    there, late = world.subscribe("a"), world.connect()
    world.gateway.memory_watch.level = Overload.REFUSING
    there.does(open_it("b"))
    assert there.opened == 2
    late.does(open_it("a"))
    assert (late.socket.close_code, late.socket.close_reason) == (1013, "try_again_later")
    assert late.told(Dismissed) == [Dismissed("the gateway is short of memory; try again later")]
    assert late.opened == 0
    world.gateway.memory_watch.level = Overload.SHEDDING
    assert world.subscribe("a").opened == 1


async def test_a_refusal_leaves_the_identity_as_it_is(world: Fixture) -> None:
    client = world.subscribe("a")
    world.rules.who = Refusal("invalid_token", "no")
    client.does(log_in())
    await client.wait_login(Refusal)
    assert client.connection.identity.name == "anonymous"
    assert client.ends == []


async def test_calls_are_answered_one_at_a_time_and_in_order(world: Fixture) -> None:
    client = world.subscribe("a")
    world.rules.who = Identity("ann")
    client.does(*(log_in(str(number), number) for number in range(100)))
    refused = [notice for notice in client.session.notices if isinstance(notice, CallDone)]
    assert [notice.handle for notice in refused] == list(range(MAX_CALLS, 100))
    assert all(isinstance(notice.result, Refusal) and notice.result.code == "busy" for notice in refused)
    client.session.notices.clear()
    calls = client.connection.calls
    assert calls is not None
    assert calls.full
    await calls.wait_room()
    answered = [notice for notice in client.session.notices if isinstance(notice, CallDone)]
    assert answered == [CallDone(number, Identity("ann")) for number in range(MAX_CALLS)]
    assert world.rules.asked == [str(number) for number in range(MAX_CALLS)]
    assert client.connection.identity.name == "ann"
    world.rules.who = Refusal("invalid_token", "no")
    client.session.notices.clear()
    client.does(log_in("another"))
    await client.wait_login(Refusal)
    assert client.logins == [world.rules.who]


async def test_a_client_is_read_again_while_a_call_that_it_need_not_wait_for_is_under_way(
    world: Fixture,
) -> None:
    client = world.connect()
    client.does(replace(log_in(), pause=False))
    calls = client.connection.calls
    assert calls is not None
    assert not calls.full
    client.does(*[replace(log_in(), pause=False)] * (MAX_CALLS - 1))
    assert calls.full
    await calls.wait_room()
    assert len(client.logins) == 1  # room for one


async def test_calls_end_with_the_connection(world: Fixture) -> None:
    client = world.connect()
    world.rules.who = Identity("ann")
    client.does(log_in(), log_in())
    calls = client.connection.calls
    assert calls is not None
    client.connection.send_close(1000, "over")
    await calls.wait_room()
    await settled()
    assert client.logins == []
    assert client.connection.identity is ANONYMOUS


async def test_a_password_is_asked_about_with_where_it_comes_from(
    world: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[LogIn] = []
    monkeypatch.setattr(world.gateway, "call_later", lambda request, done: asked.append(request))
    for given in (Password("ann", "x"), Password("ann", "x", "elsewhere:1"), Token("any")):
        world.connect().does(Call("login", LogIn(given)))
    here = world.connect().connection.remote
    assert here
    assert [login.credential for login in asked] == [
        Password("ann", "x", here),
        Password("ann", "x", "elsewhere:1"),
        Token("any"),
    ]


# --- a client that has yet to log in ------------------------------------------------------------


async def test_who_has_not_logged_in_sees_nothing_and_subscribes_to_nothing(world: Fixture) -> None:
    client = world.connect(login_seconds=60)
    client.connection.source_appeared(world.gateway.hub("a").info)  # type: ignore[union-attr]
    client.connection.reauthorize()
    client.does(open_it("a"))
    assert client.refusals == ["not_logged_in"]
    assert client.told(SourceAppeared) == []
    world.rules.who = Refusal("invalid_token", "no")
    client.does(log_in())
    await client.wait_login(Refusal)
    client.does(open_it("a"))
    assert client.refusals == ["not_logged_in"] * 2
    world.rules.who = Identity("ann")
    client.does(log_in())
    await client.wait_login(Identity)
    assert client.told(SourceAppeared) == [SourceAppeared(info) for info in world.gateway.sources()]
    client.does(open_it("a"))
    assert client.opened == 1
    assert client.socket.close_code is None


async def test_who_does_not_log_in_in_time_is_closed(world: Fixture) -> None:
    quick = world.connect(login_seconds=1)
    world.rules.who = Identity("ann")
    quick.does(log_in())
    await quick.wait_login(Identity)
    late = world.connect(login_seconds=1)  # when this one's time is over, so is the other's
    with trio.fail_after(5):
        await late.socket.over.wait()
    assert (late.socket.close_code, late.socket.close_reason) == (4401, "auth_timeout")
    assert quick.socket.close_code is None


async def test_an_answer_that_comes_when_the_client_has_left(world: Fixture) -> None:
    client = world.subscribe("a")
    world.rules.who = Identity("ann")
    client.does(log_in())
    client.leave()
    stays = world.connect()
    stays.does(log_in())
    await stays.wait_login(Identity)
    assert client.logins == []
    assert client.connection.identity.name == "anonymous"


async def test_another_identity_reads_on_behind_its_own_interceptor(world: Fixture) -> None:
    client, other = world.subscribe("a"), world.subscribe("a")
    await world.publish("a", 0, 2)
    world.rules.who = Identity("ann")
    world.rules.interceptor = Interceptor(
        lambda record: record if record["offset"] != 3 else None, key="not the third"
    )
    client.does(log_in())
    await client.wait_login(Identity)
    await world.publish("a", 2, 3)
    assert client.offsets == [0, 1, 2, 4]
    assert other.offsets == [0, 1, 2, 3, 4]
    assert world.gateway.hub("a").wire_keys == 2  # type: ignore[union-attr]


async def test_a_subscription_that_waits_for_its_source_opens_behind_the_interceptor_of_the_new_rules(
    world: Fixture,
) -> None:
    client = world.subscribe("late")
    world.rules.interceptor = Interceptor(lambda record: None, key="nothing")
    client.connection.reauthorize()
    world.release.set()
    await settled()
    await world.publish("late", 0)
    assert (client.opened, client.offsets) == (1, [])


async def test_rights_that_are_withdrawn(world: Fixture) -> None:
    client = world.subscribe("a", "b")
    world.rules.forbidden = {"a"}
    client.connection.reauthorize()
    assert client.ends == ["unauthorized"]
    assert list(client.connection.subscriptions) == ["b"]


# --- interceptors ------------------------------------------------------------------------------


async def test_an_interceptor_that_fails_closes_the_subscriptions_it_has_and_no_others(
    world: Fixture, logged: Logged
) -> None:
    before = world.subscribe("a")
    world.rules.interceptor = Interceptor(lambda record: 1 / 0, "k")  # type: ignore[arg-type, return-value]
    after = world.subscribe("a", "b")
    await world.publish("a", 0)
    assert before.offsets == [0]
    assert after.ends == ["failed"]
    assert list(after.connection.subscriptions) == ["b"]
    assert world.gateway.hooks.failures == {"interceptor": 1}
    assert len(logged("a plugin failed")) == 1
    assert world.gateway.hub("a").subscribers == 1  # type: ignore[union-attr]


async def test_a_hook_that_fails_is_an_error_for_the_client_and_counted(world: Fixture) -> None:
    world.rules.interceptor = Interceptor(lambda record: record, ["not hashable"])  # type: ignore[arg-type]
    client = world.subscribe("a")
    assert client.refusals == ["internal_error"]
    assert world.gateway.hooks.failures == {"intercept": 1}
    assert world.gateway.hub("a").subscribers == 0  # type: ignore[union-attr]


async def test_a_client_that_comes_back_has_what_it_left_of_its_account(
    world: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, ann, bob, now = replace(names(), chosen=True), Identity("ann"), Identity("bob"), 0.0
    monkeypatch.setattr(world.gateway, "clock", lambda: now)

    def used(identity: Identity) -> float:
        """What was used before on the account of a new connection, which uses a second more and goes."""
        client = world.connect(identity)
        client.does(open_it("a", lambda info: chosen))
        (subscription,) = client.connection.subscriptions.values()
        assert subscription.payer is not None
        account = subscription.payer.account
        before = account.used
        account.charge(1.0, now)
        client.connection.end()
        return before

    assert [used(ann), used(ann), used(bob), used(ann), used(bob)] == [0, 1, 0, 2, 1]
    now = 1_000.0
    assert used(ann) == 0, "it was full again"
