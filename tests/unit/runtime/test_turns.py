"""Commands of clients that send many: one client's turn in a round of the event loop."""

from __future__ import annotations

import trio

from kiwi_gw.runtime.turns import Turns


class Rounds(trio.abc.Instrument):
    """How often the event loop has got round."""

    def __init__(self) -> None:
        self.number = 0

    def before_io_wait(self, timeout: float) -> None:
        self.number += 1


async def test_of_those_that_wait_one_goes_on_in_each_round_in_order() -> None:
    rounds = Rounds()
    trio.lowlevel.add_instrument(rounds)
    turns = Turns()
    came: list[int] = []
    went: list[tuple[int, int]] = []

    async def client(number: int) -> None:
        came.append(number)
        for _ in range(3):
            await turns.wait()
            went.append((rounds.number, number))

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(client, number)
    trio.lowlevel.remove_instrument(rounds)
    assert [number for _, number in went] == came * 3
    numbers = [number for number, _ in went]
    assert numbers == list(range(numbers[0], numbers[0] + 15)), "each in a round of its own, and none is idle"
    assert not turns.crowded


async def test_who_leaves_while_it_waits_holds_up_nobody() -> None:
    went: list[int] = []
    turns, scopes = Turns(), [trio.CancelScope() for _ in range(6)]

    async def client(number: int) -> None:
        with scopes[number]:
            await turns.wait()
            went.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(client, number)
        await trio.lowlevel.checkpoint()  # all of them have come
        assert turns.crowded
        for number in (2, 3, 5):
            scopes[number].cancel()
    assert sorted(went) == [0, 1, 4]
    assert not turns.crowded


async def test_the_first_of_those_that_wait_may_leave() -> None:
    went: list[int] = []
    turns, scope = Turns(), trio.CancelScope()

    async def client(number: int) -> None:
        await turns.wait()
        went.append(number)

    with scope:
        scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client, 0)
            nursery.start_soon(client, 1)
    assert not went
    assert not turns.crowded
    with trio.fail_after(1):
        await turns.wait()
