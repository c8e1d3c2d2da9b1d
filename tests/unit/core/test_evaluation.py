"""Queries that are evaluated in turns: who is behind meanwhile, who goes on when; and nothing is lost."""

from __future__ import annotations

from dataclasses import replace
from operator import ne

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kiwi_gw.core import evaluation, evaluation_costs
from kiwi_gw.core.accounts import Account, ClientAccount, Payer
from kiwi_gw.core.encoding import keyed_format
from kiwi_gw.core.evaluation import FIRST_IDLE_SECONDS, IDLE_SECONDS, IDLE_SHARE, Evaluations
from kiwi_gw.core.evaluation_costs import CpuShares, EvaluationCosts
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.publishing import publish
from kiwi_gw.core.round_budget import LIGHT_USER_SECONDS, ROUND_SECONDS
from kiwi_gw.core.states import SubscriptionInput, SubscriptionState
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import AtPositions, Batch, Encoded, Start, StartAt, Steps, TimeSlice, WireFormat
from tests.unit.core.fakes import Client, World, names

DEAR = 0.02
"""Seconds that `slow` takes for one event: four turns."""


def slow(world: World, name: str = "e", seconds: float = DEAR, fails: bool = False) -> WireFormat:
    """Take so long for each event, and give way behind each if it has to."""
    form = names(name)

    def steps(batch: Batch, turn: TimeSlice) -> Steps[Encoded]:
        for left in range(len(batch), 0, -1):
            world.clock.now += seconds
            if turn.over and left > 1:
                turn.held += 1
                yield
        if fails:
            raise EncodingFailed("no")
        return form.encode(batch)

    return replace(form, key=("slow", name), steps=steps, chosen=True)


def world(shares: CpuShares | None = None, limits: HubLimits | None = None) -> World:
    return World(limits or HubLimits(), shares=shares or CpuShares())


def evaluations(world: World) -> Evaluations:
    assert world.evaluations is not None
    return world.evaluations


STEP = FIRST_IDLE_SECONDS / 8


def overdrawn() -> World:
    """Make one whose evaluations have used up for long what they may."""
    one = world()
    one.subscribe(Client(), slow(one, seconds=STEP))
    one.produce(10_000)
    for light_user in (False, True):
        evaluations(one).all.charge(1e6, one.clock.now, light_user=light_user)
    return one


def finish(world: World, seconds: float = 1e9) -> None:
    """Do what the gateway's task does, for so long, on a loop that is never idle."""
    until = world.clock.now + seconds
    while (wait := evaluations(world).go_on(idle=False)) is not None and world.clock.now < until:
        world.clock.now += wait + 1e-6


def test_a_small_batch_earns_a_rest_and_loses_nothing() -> None:
    one = world()
    client = Client()
    subscription = one.subscribe(client, slow(one, seconds=1.6))
    one.produce(1)
    assert client.places == one.made
    wait_seconds = evaluations(one)
    assert wait_seconds.seconds == pytest.approx(1.6)
    one.produce(3)
    assert client.places == one.made[:1]
    assert one.hub.behind == 1
    one.clock.now += 10.0  # those of all and of its connection have something again
    wait = wait_seconds.go_on(idle=False)
    assert wait == pytest.approx((1.6 - 0.05) / 0.05 - 10.0), "in proportion to what it took"
    finish(one)
    assert client.places == one.made
    assert subscription.state is SubscriptionState.LIVE
    assert len(wait_seconds) == 0


def test_no_turn_is_longer_than_one_event() -> None:
    one = world(CpuShares(0, 0, 0))  # no client rests
    client = Client()
    one.subscribe(client, slow(one, seconds=0.001))
    before = one.clock.now
    one.produce(100)
    assert one.clock.now - before <= LIGHT_USER_SECONDS + 0.001
    assert client.places == []
    while client.places != one.made:
        before = one.clock.now
        assert not evaluations(one).go_on(idle=False)
        assert one.clock.now - before <= LIGHT_USER_SECONDS + 0.001


@pytest.mark.parametrize(("used", "budget"), [(0.0, LIGHT_USER_SECONDS), (0.06, ROUND_SECONDS)])
def test_all_that_is_evaluated_in_a_round_shares_its_budget(used: float, budget: float) -> None:
    """Give a client that has used more than a tenth of its share less of a round."""
    one = world()
    account = ClientAccount(one.evaluations.shares.connection)  # type: ignore[union-attr]
    account.charge(used, one.clock.now)
    clients = [Client() for _ in range(4)]
    for number, client in enumerate(clients):
        one.subscribe(client, slow(one, str(number), budget * 0.6), payer=Payer(account, "ann"))
    one.produce(1)
    assert [len(client.places) for client in clients] == [1, 1, 0, 0], "the second one began in time"
    finish(one)
    assert all(client.places == one.made for client in clients)


def test_queries_have_whole_slices_where_others_have_shorter_ones() -> None:
    one = world(limits=HubLimits(slice_seconds=1.0))
    clients = [Client() for _ in range(5)]
    one.subscribe(clients[0])
    for number, client in enumerate(clients[1:]):
        one.subscribe(client, slow(one, str(number), 1e-5))
    steps = publish(one.hub, one.batch([0]), lambda most: 0.0)
    assert [sum(bool(client.places) for client in clients) for _ in steps] == [1, 2], "the last is cut short"
    assert all(client.places for client in clients)


def test_others_are_served_while_one_is_postponed() -> None:
    one = world()
    dear, cheap, plain = Client(), Client(), Client()
    one.subscribe(dear, slow(one, "dear"))
    one.subscribe(cheap, slow(one, "cheap", 1e-5))
    one.subscribe(plain)
    for _ in range(20):
        one.produce(4)
        one.clock.now += 0.01
    assert dear.places == []
    assert cheap.places == plain.places == one.made
    finish(one)
    assert dear.places == one.made


def test_whoever_has_no_query_is_served_before_any_is_evaluated() -> None:
    one = world()
    dear, plain = Client(), Client()
    one.subscribe(dear, slow(one))
    one.subscribe(plain)
    served: list[float] = []

    def taken(size: int) -> int:
        served.append(one.clock.now)
        return size

    plain.writer.take = taken
    began = one.clock.now
    one.produce(1)
    assert served == [began]
    assert dear.places == plain.places == one.made


def test_what_falls_out_of_the_window_meanwhile_is_announced_exactly() -> None:
    one = world(limits=HubLimits(window_events=8))
    client = Client()
    subscription = one.subscribe(client, slow(one))
    for _ in range(10):
        one.produce(4)
    finish(one)
    lost = sum(lag.dropped or 0 for lag in client.lags)
    assert lost > 0
    assert len(client.places) + lost == len(one.made)
    assert client.places == one.made[-len(client.places) :]
    assert subscription.state is SubscriptionState.LIVE
    assert (len(evaluations(one)), evaluations(one)._held) == (0, 0)


def test_budgets_bind_only_while_other_work_waits() -> None:
    one = world()
    client = Client()
    one.subscribe(client, slow(one, seconds=0.1))
    one.produce(5)
    assert evaluations(one).go_on(idle=False)
    one.clock.now += FIRST_IDLE_SECONDS / IDLE_SHARE
    before = one.clock.now
    while client.places != one.made:
        assert not evaluations(one).go_on(idle=True)
    assert one.clock.now - before == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("idle_for", "expected"),
    [
        (FIRST_IDLE_SECONDS / IDLE_SHARE, FIRST_IDLE_SECONDS),
        (0.5 * IDLE_SECONDS / IDLE_SHARE, 0.5 * IDLE_SECONDS),
        (IDLE_SECONDS / IDLE_SHARE, IDLE_SECONDS),
        (10.0, IDLE_SECONDS),
    ],
)
def test_the_turns_of_an_idle_loop_are_longer_the_longer_it_is(idle_for: float, expected: float) -> None:
    one = overdrawn()
    for _ in range(2):
        evaluations(one).go_on(idle=False)
        one.clock.now += idle_for + 1e-9
        before = one.clock.now
        assert evaluations(one).go_on(idle=True) == 0
        assert one.clock.now - before == pytest.approx(expected, abs=1.1 * STEP)


def test_a_loop_that_is_idle_for_a_moment_is_none() -> None:
    one = overdrawn()
    assert (evaluations(one).go_on(idle=False) or 0) > 1
    begins, before = FIRST_IDLE_SECONDS / IDLE_SHARE, one.clock.now
    assert evaluations(one).go_on(idle=True) == pytest.approx(begins)
    one.clock.now += begins / 2
    assert evaluations(one).go_on(idle=True) == pytest.approx(begins / 2)
    assert one.clock.now == before + begins / 2


def test_what_many_light_users_have_begun_is_not_begun_anew() -> None:
    one, users = world(), 100
    clients = [Client() for _ in range(users)]
    for number, client in enumerate(clients):
        payer = Payer(ClientAccount(0.1), str(number))
        one.subscribe(client, slow(one, str(number), seconds=50e-6), payer=payer)
    one.produce(18, cost=250 * 1024)
    finish(one)
    assert all(client.places == one.made for client in clients)
    assert evaluations(one).seconds < 1.1 * users * 18 * 50e-6


def test_what_an_idle_loop_gave_away_is_charged_to_nobody() -> None:
    one = world()
    client, payer = Client(), Payer(ClientAccount(0.1), "ann")
    one.subscribe(client, slow(one, seconds=0.1), payer=payer)
    one.produce(5)
    wait_seconds = evaluations(one)
    costs = next(iter(wait_seconds._jobs)).costs
    charged = wait_seconds.all.used, costs.own.used, payer.account.used
    while client.places != one.made:
        wait_seconds.go_on(idle=True)
    assert wait_seconds.seconds == pytest.approx(0.5), "counted all the same"
    assert (wait_seconds.all.used, costs.own.used, payer.account.used) == charged
    assert costs.own.wait_seconds(one.clock.now) == pytest.approx((0.1 - 0.05) / 0.05 - 0.4)


def test_what_nobody_waits_for_is_not_evaluated() -> None:
    one = world(CpuShares(0, 0, 0))
    client = Client()
    subscription = one.subscribe(client, slow(one, seconds=0.001), credit=0)
    one.produce(3)
    one.produce(100)
    subscription.add_credit(1_000)
    finish(one)
    assert client.places == one.made
    assert evaluations(one).seconds == pytest.approx(0.103), "each event once"
    assert one.memo.misses == 2


def test_a_query_that_goes_and_comes_back_is_the_same_query() -> None:
    one = world(CpuShares(0, 0, 0.05))
    first = one.subscribe(Client(), slow(one, seconds=1.0))
    one.produce(1)
    first.cancel()
    client = Client()
    one.subscribe(client, slow(one, seconds=1.0))
    one.produce(1)
    assert client.places == [], "it rests"
    before = one.clock.now
    finish(one)
    assert client.places == one.made[1:]
    assert one.clock.now - before == pytest.approx((1.0 - 0.05) / 0.05 + 1.0, abs=0.01)


@pytest.mark.parametrize("bound", ["all", "connection", "query"])
def test_each_of_the_three_budgets_binds_alone(bound: str) -> None:
    one = world(replace(CpuShares(0, 0, 0), **{bound: 0.1}))
    payer = Payer(ClientAccount(one.evaluations.shares.connection), "ann")  # type: ignore[union-attr]
    clients = [Client() for _ in range(3)]
    for number, client in enumerate(clients):
        one.subscribe(client, slow(one, str(number), 0.03), payer=payer)
    began = one.clock.now
    for _ in range(10):
        one.produce(1)
        finish(one)
    for client in clients:
        assert client.places == one.made
    used = 10 * 0.03 * (1 if bound == "query" else 3)
    assert one.clock.now - began >= (used - 0.1 - 2 * 0.03) / 0.1


def test_connections_with_one_query_pay_for_it_together() -> None:
    one = world(CpuShares(0, 0.1, 0))
    payers = [Payer(ClientAccount(0.1), name) for name in ("ann", "bob")]
    for payer in payers:
        one.subscribe(Client(), slow(one), payer=payer)
    one.produce(5)
    finish(one)
    assert [payer.account.used for payer in payers] == pytest.approx([0.05, 0.05])
    # One that has nothing left does not hold up who shares its query.
    payers[0].account.charge(100.0, one.clock.now)
    began = one.clock.now
    one.produce(1)
    finish(one)
    assert one.clock.now - began < 1


def test_of_thousands_with_one_query_a_few_at_a_time_pay_and_all_pay_the_same_in_the_end() -> None:
    costs = EvaluationCosts(Account(0))
    accounts = [ClientAccount(0.1) for _ in range(3_200)]
    for account in accounts:
        costs.add_payer(Payer(account, "ann"))
    before = [0.0] * len(accounts)
    for _ in range(200):
        costs.charge(0.005, 0.0)
        used = [account.used for account in accounts]
        assert sum(map(ne, before, used)) <= evaluation_costs._BILLED
        before = used
    assert used == pytest.approx([200 * 0.005 / 3_200] * 3_200)
    assert costs.wait_seconds(0.0) == 0


def test_a_format_that_fails_ends_its_group_and_nobody_else() -> None:
    one = world()
    bad, good = Client(), Client()
    one.subscribe(bad, slow(one, "bad", fails=True))
    one.subscribe(good)
    one.produce(3)
    finish(one)
    assert [end.message for end in bad.ends] == ["no"]
    assert good.places == one.made
    assert len(evaluations(one)) == 0


def test_nobody_is_evaluated_for_who_is_gone() -> None:
    one = world()
    subscription = one.subscribe(Client(), slow(one))
    one.produce(3)
    used = evaluations(one).seconds
    subscription.cancel()
    finish(one)
    assert evaluations(one).seconds == used
    assert len(evaluations(one)) == 0


def test_what_is_held_of_postponed_evaluations_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "MOST_HELD", 10_000)
    one = world()
    clients = [Client() for _ in range(10)]
    for number, client in enumerate(clients):
        one.subscribe(client, slow(one, str(number)))
    one.produce(3, cost=1_000)
    for _ in range(100):
        assert evaluations(one)._held <= 10_000
        one.clock.now += evaluations(one).go_on(idle=False) or 0.0
    finish(one)
    for client in clients:
        assert client.places == one.made
    assert evaluations(one)._held == 0


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from([0.0, 0.001, 0.1]), st.integers(0, 3)), max_size=12
    ),
    st.sampled_from([1e-6, 0.002, 0.03]),
    st.booleans(),
)
def test_whatever_happens_every_event_comes_once_or_is_announced(
    batches: list[tuple[int, float, int]], seconds: float, small: bool
) -> None:
    one = world(limits=HubLimits(window_events=6 if small else 1_000))
    clients = [Client(), Client()]
    for number, client in enumerate(clients):
        one.subscribe(client, slow(one, str(number), seconds))
    for events, pause, turns in batches:
        one.produce(events)
        one.clock.now += pause
        for _ in range(turns):
            evaluations(one).go_on(idle=pause > 0)
    finish(one)
    for client in clients:
        lost = sum(lag.dropped or 0 for lag in client.lags)
        assert sorted(set(client.places)) == client.places
        assert len(client.places) + lost == len(one.made)
        assert small or client.places == one.made


@pytest.mark.slow
@pytest.mark.parametrize("idle", [False, True])
def test_hundreds_that_rest_do_not_delay_the_one_behind_them(idle: bool) -> None:
    one = world(limits=HubLimits(slice_seconds=1.0))
    clients = [Client() for _ in range(602)]
    for number, client in enumerate(clients):
        payer = Payer(ClientAccount(0.1), number)
        # The one before the last uses up the turn, so that the last is postponed.
        one.subscribe(
            client, slow(one, str(number), LIGHT_USER_SECONDS if number == 600 else 1e-3), payer=payer
        )
        if number < 600:
            payer.account.charge(100.0, one.clock.now)
    one.produce(1)
    began = one.clock.now
    assert len(evaluations(one)) == 601
    for _ in range(5):
        evaluations(one).go_on(idle=idle)
    assert clients[-1].places == one.made
    assert one.clock.now - began <= 6e-3
    wait = evaluations(one).go_on(idle=False)
    assert wait == pytest.approx(evaluation._LOOK_AGAIN_SECONDS, abs=0.01)
    finish(one)
    assert all(client.places == one.made for client in clients)


def test_who_uses_little_does_not_wait_for_who_uses_much() -> None:
    one = world(CpuShares(0.25, 0.1, 0.05))
    dear = [Client() for _ in range(10)]
    for number, client in enumerate(dear):
        payer = Payer(ClientAccount(0.1), number)
        for query in range(4):
            one.subscribe(client, slow(one, f"{number} {query}"), payer=payer)
    good = Client()
    one.subscribe(good, slow(one, "good", 1e-5), payer=Payer(ClientAccount(0.1), "good"))
    for number in range(400):
        one.produce(2)
        due = one.clock.now + 0.02
        while one.clock.now < due:
            wait = evaluations(one).go_on(idle=False)
            one.clock.now += 0.001 if wait is None else min(wait, 0.001) + 1e-6
        assert number < 250 or good.places == one.made, "at once, after what all may use when they begin"
    used, passed = evaluations(one).seconds, one.clock.now
    assert used <= 0.25 * (passed + 1) + 2 * DEAR


def test_the_same_query_asked_for_again_while_it_rests_gets_everything() -> None:
    one = world()
    form = slow(one)
    gone = one.subscribe(Client(), form)
    one.produce(1)
    one.produce(3)
    here = {str(partition): offset for partition, offset in gone.positions.items()}
    gone.cancel()
    assert len(evaluations(one)) == 0, "nobody waits for it"
    client = Client()
    again = one.subscribe(client, form, start=AtPositions(here))
    finish(one)
    assert client.places == one.made[1:]
    assert again.state is SubscriptionState.LIVE


def test_a_query_that_is_exchanged_and_comes_back_while_it_rests_goes_on() -> None:
    one = world()
    client = Client()
    form, other = slow(one), slow(one, "other")
    subscription = one.subscribe(client, form)
    one.produce(1)
    one.produce(3)
    subscription.hub.reconfigure(subscription, keyed_format(other), {})
    subscription.hub.reconfigure(subscription, keyed_format(form), {})
    finish(one)
    assert client.places == one.made
    assert len(evaluations(one)) == 0


class Crowd(RuleBasedStateMachine):
    """Let clients come, go, exchange their queries and come back where they were, while queries rest."""

    def __init__(self) -> None:
        super().__init__()
        self.one = world()
        self.payers = [Payer(ClientAccount(0.1), name) for name in ("ann", "bob")]
        self.here: list[tuple[Client, Subscription, int]] = []
        self.left: list[int] = []

    def form(self, number: int) -> WireFormat:
        return slow(self.one, f"q{number}", (1e-5, 0.004, 0.06)[number])

    @rule(query=st.integers(0, 2), payer=st.integers(0, 1), back=st.booleans())
    def subscribe(self, query: int, payer: int, back: bool) -> None:
        client = Client()
        start: Start = StartAt.LATEST
        first = len(self.one.made)
        if back and self.left:
            first = self.left.pop()
            start = AtPositions({"0": first})
        subscription = self.one.subscribe(client, self.form(query), payer=self.payers[payer], start=start)
        self.here.append((client, subscription, first))

    @precondition(lambda self: self.here)
    @rule(
        which=st.integers(0, 9),
        item=st.sampled_from([SubscriptionInput.UNSUBSCRIBE, SubscriptionInput.DISCONNECT]),
    )
    def leave(self, which: int, item: SubscriptionInput) -> None:
        _, subscription, _ = self.here.pop(which % len(self.here))
        self.left.append(subscription.positions[0])
        subscription.cancel(item)

    @precondition(lambda self: self.here)
    @rule(which=st.integers(0, 9), query=st.integers(0, 2), whole=st.booleans())
    def exchange(self, which: int, query: int, whole: bool) -> None:
        _, subscription, _ = self.here[which % len(self.here)]
        if whole:
            subscription.hub.reconfigure(subscription, keyed_format(self.form(query)), {})
        else:
            self.one.hub.groups.move(subscription, keyed_format(self.form(query)), all_at_once=True)
            subscription.writer.mark_ready(subscription)

    @rule(events=st.integers(1, 4))
    def publish(self, events: int) -> None:
        self.one.produce(events)

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.1, 10.0]), idle=st.booleans())
    def rest(self, seconds: float, idle: bool) -> None:
        self.one.clock.now += seconds
        evaluations(self.one).go_on(idle=idle)

    @invariant()
    def what_is_noted_is_in_step(self) -> None:
        jobs = evaluations(self.one)
        noted = [job for found in jobs._by_entry.values() for job in found.values()]
        assert set(noted) == set(jobs._jobs)
        assert len(noted) == len(jobs._jobs)
        assert jobs._held == sum(job.held for job in noted)
        assert all(job.group.size > 0 for job in noted)

    def teardown(self) -> None:
        finish(self.one)
        for client, subscription, first in self.here:
            assert client.places == [place for place in self.one.made if place[1] >= first]
            assert subscription.state is SubscriptionState.LIVE
        assert (len(evaluations(self.one)), evaluations(self.one)._held) == (0, 0)


TestEverybodyGetsEverythingInTheEnd = Crowd.TestCase
TestEverybodyGetsEverythingInTheEnd.settings = settings(max_examples=100, stateful_step_count=30)
