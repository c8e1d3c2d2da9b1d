"""How those that are behind share the rounds of the event loop."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
import trio.testing

from kiwi_gw.core.round_budget import RoundBudget
from kiwi_gw.runtime.delivery_turns import DELIVERY_SECONDS, RESTING_ROUNDS, DeliveryTurns
from kiwi_gw.runtime.loop_rounds import renew_in_each_round

HALF = DELIVERY_SECONDS / 2


class Setting:
    """sent: who did, and in which round."""

    def __init__(self) -> None:
        self.rounds = RoundBudget()
        self.written = False
        self.turns = DeliveryTurns(self.rounds, lambda: self.written)
        self.sent: list[tuple[str, int]] = []

    async def pass_rounds(self, count: int) -> None:
        for _ in range(count):
            await trio.lowlevel.checkpoint()


class Client:
    """Wants so many turns, each of so many seconds."""

    def __init__(self, setting: Setting, name: str, turns: int, seconds: float) -> None:
        self._setting, self._name, self._left, self._seconds = setting, name, turns, seconds
        setting.turns.add(self)

    def take_turn(self) -> None:
        self._setting.sent.append((self._name, self._setting.rounds.number))
        self._setting.turns.charge(self._seconds)
        self._left -= 1
        if self._left:
            self._setting.turns.add(self)


@pytest.fixture
async def setting(nursery: trio.Nursery) -> Setting:
    one = Setting()
    nursery.start_soon(renew_in_each_round, one.rounds)
    nursery.start_soon(one.turns.run)
    await trio.testing.wait_all_tasks_blocked()
    return one


async def test_they_have_turns_in_their_order_as_many_in_a_round_as_fit(setting: Setting) -> None:
    for name in "abc":
        Client(setting, name, 3, HALF)
    await setting.pass_rounds(20)
    assert "".join(name for name, _ in setting.sent) == "abc" * 3
    rounds = [number for _, number in setting.sent]
    assert max(map(rounds.count, rounds)) == 2
    assert rounds[-1] - rounds[0] == 4


async def test_none_has_two_turns_in_one_pass_however_short_they_are(setting: Setting) -> None:
    Client(setting, "a", 4, 0.0)
    Client(setting, "b", 1, 0.0)
    await setting.pass_rounds(20)
    assert len({number for name, number in setting.sent if name == "a"}) == 4


async def test_one_that_takes_longer_has_the_round_for_itself(setting: Setting) -> None:
    for name in "ab":
        Client(setting, name, 2, 10 * DELIVERY_SECONDS)
    await setting.pass_rounds(20)
    assert len({number for _, number in setting.sent}) == 4


async def test_while_clients_write_most_rounds_are_free_of_it(setting: Setting) -> None:
    setting.written = True
    Client(setting, "a", 5, DELIVERY_SECONDS)
    await setting.pass_rounds(40)
    rounds = [number for _, number in setting.sent]
    assert [after - before for before, after in pairwise(rounds)] == [RESTING_ROUNDS + 1] * 4


async def test_without_a_queue_one_sends_at_once_what_fits_into_the_round(setting: Setting) -> None:
    assert setting.turns.may_send()
    setting.turns.charge(HALF)
    assert setting.turns.may_send()
    setting.turns.charge(HALF)
    assert not setting.turns.may_send()
    await setting.pass_rounds(1)
    assert setting.turns.may_send()


async def test_nobody_goes_before_those_who_wait(setting: Setting) -> None:
    Client(setting, "a", 1, 0.0)
    assert not setting.turns.may_send()
    await setting.pass_rounds(3)
    assert setting.turns.may_send()
