"""What clients that send many commands cost others: who sends few waits for nobody, the others for a turn."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio

from kiwi_gw.core import round_budget
from kiwi_gw.core.round_budget import ROUND_SECONDS, RoundBudget
from kiwi_gw.edge import websocket
from kiwi_gw.edge.frame_reader import FrameReader
from kiwi_gw.runtime.command_scheduler import ALLOWANCE_SECONDS, TURN_SECONDS, CommandScheduler
from kiwi_gw.runtime.connection import Connection
from tests.edge.hooks_bench import running
from tests.edge.wire import CLOSE, PING, TEXT, command, connect, frame

REQUEST = frame(TEXT, b'{"type":"REQUEST","sourceId":"a","n":1}')
SECONDS = 15e-6
"""What it takes to carry that out."""


class Clock:
    """Moves where somebody works: a test takes the same rounds on every machine. In the place of `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Rounds(trio.abc.Instrument):
    """How often the event loop has got round, and the budget of each."""

    def __init__(self, clock: Clock) -> None:
        self.number = 0
        self.budget = RoundBudget(lambda: clock.now)
        self._clock = clock
        self._began = clock.now

    def before_io_wait(self, timeout: float) -> None:
        self.number += 1
        self.budget.renew(self._clock.now - self._began)
        self._began = self._clock.now


class Stub:
    """A connection, its frame writer, its meters and its transport. seconds: that a message takes, and those
    that the events take which it lets out.

    data: what its client sends, in one read each. did: in which round each message was carried out, each ping
    answered, and its close frame answered.
    """

    calls = None
    offloads = None
    turns = None
    writes = None
    control_full = False
    delivery_seconds = 0.0
    dialect = "kiwi"
    heard_at = 0.0
    received_bytes = 0

    def __init__(
        self, clock: Clock, rounds: Rounds, seconds: float, data: list[bytes], events: float = 0.0
    ) -> None:
        self.clock, self.rounds, self.seconds, self.data, self.events = clock, rounds, seconds, data, events
        self.did: dict[str, list[int]] = {"receive": [], "pong": [], "end": []}

    def start(self) -> None:
        pass

    def receive(self, message: str | bytes, now: float) -> None:
        self.clock.now += self.seconds + self.events
        self.delivery_seconds += self.events
        self.did["receive"].append(self.rounds.number)

    def pong(self, frame: bytes) -> None:
        self.did["pong"].append(self.rounds.number)

    def end_with(self, frame: bytes, code: int) -> None:
        self.did["end"].append(self.rounds.number)

    async def wait_room(self) -> None:
        pass

    async def receive_some(self, most: int) -> bytes:
        await trio.lowlevel.checkpoint()
        return self.data.pop(0) if self.data else b""

    async def live(self, waiting: CommandScheduler) -> None:
        stub: Any = self
        reading = websocket.ClientInput(stub, stub, FrameReader(65_536), stub, waiting.allowance())
        await websocket._converse(stub, stub, stub, reading, waiting, b"")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(websocket, "time", clock)
    return clock


async def lived(clock: Clock, rounds: Rounds, clients: list[Stub], busy: float) -> None:
    """Have them live beside a task that uses the loop for so many seconds in each round."""
    waiting = CommandScheduler(rounds.budget)
    trio.lowlevel.add_instrument(rounds)
    async with trio.open_nursery() as outer:

        async def others() -> None:
            while True:
                clock.now += busy
                await trio.lowlevel.checkpoint()

        outer.start_soon(others)
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(client.live, waiting)
        outer.cancel_scope.cancel()
    trio.lowlevel.remove_instrument(rounds)


async def test_a_thousand_small_commands_beside_long_rounds_wait_for_nobody(clock: Clock) -> None:
    """Not for each other, and not for those who flood."""
    rounds = Rounds(clock)
    small = [Stub(clock, rounds, SECONDS, [REQUEST]) for _ in range(1_000)]
    heavy = [Stub(clock, rounds, SECONDS, [REQUEST * 80] * 5) for _ in range(10)]
    await lived(clock, rounds, [*heavy, *small], busy=0.005)
    assert all(len(client.did["receive"]) == 1 for client in small)
    assert max(client.did["receive"][0] for client in small) <= 3
    assert all(len(client.did["receive"]) == 400 for client in heavy)
    assert max(client.did["receive"][-1] for client in heavy) > 20


async def test_the_events_that_commands_let_out_are_not_charged(clock: Clock) -> None:
    """They take as long with push, which waits for no turn."""
    rounds = Rounds(clock)
    pull = [Stub(clock, rounds, SECONDS, [REQUEST] * 8, events=2 * TURN_SECONDS) for _ in range(20)]
    await lived(clock, rounds, pull, busy=0.00005)
    for client in pull:
        first = client.did["receive"][0]
        assert client.did["receive"] == list(range(first, first + 8))


@pytest.mark.parametrize("at_once", [80, 8])
async def test_clients_that_flood_have_the_budget_of_a_round_together(clock: Clock, at_once: int) -> None:
    """In large pieces or in small ones. One turn may go beyond it, which comes off the next round."""
    rounds = Rounds(clock)
    heavy = [Stub(clock, rounds, SECONDS, [REQUEST * at_once] * (400 // at_once)) for _ in range(10)]
    await lived(clock, rounds, heavy, busy=0.00005)
    did = Counter(number for client in heavy for number in client.did["receive"])
    fit, turn = ROUND_SECONDS / SECONDS, TURN_SECONDS / SECONDS + 1
    first = min(did)
    assert sum(did.values()) == 4_000
    assert max(count for number, count in did.items() if number > first + 3) <= fit + turn
    assert rounds.number >= 4_000 / fit - 10


async def test_control_frames_and_signs_of_life_wait_for_no_turn(clock: Clock) -> None:
    rounds = Rounds(clock)
    heavy = [Stub(clock, rounds, TURN_SECONDS, [REQUEST * 20] * 5) for _ in range(10)]
    both = [frame(TEXT, b"dear"), frame(PING, b"there?"), frame(PING) + frame(CLOSE, b"\x03\xe8")]
    one = Stub(clock, rounds, 10.0, both)
    await lived(clock, rounds, [*heavy, one], busy=0.00005)
    assert one.did["pong"] == [one.did["receive"][0] + 1, one.did["receive"][0] + 2]
    assert one.did["end"] == one.did["pong"][1:]
    assert one.heard_at > 1010


async def test_of_clients_that_send_many_commands_one_goes_on_in_a_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who needs many rounds of the loop is not late by what all of them ask for in each."""
    rounds: list[set[int]] = [set()]
    began: set[int] = set()

    class Seen(trio.abc.Instrument):
        def after_io_wait(self, timeout: float) -> None:
            rounds.append(set())

    carry_out = Connection.receive

    def dear(self: Connection, message: str | bytes, now: float) -> None:
        until = time.monotonic() + ALLOWANCE_SECONDS
        while time.monotonic() < until:
            pass
        if self.number in began:  # the first was not known to be dear
            rounds[-1].add(self.number)
        began.add(self.number)
        carry_out(self, message, now)

    monkeypatch.setattr(Connection, "receive", dear)
    monkeypatch.setattr(round_budget, "ROUND_SHARE", 0.0)  # however long this machine takes for a round
    monkeypatch.setattr(round_budget, "ROUND_SECONDS", TURN_SECONDS)
    async with running() as (gateway, _), AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(gateway)) for _ in range(5)]
        trio.lowlevel.add_instrument(watch := Seen())
        for client in clients:
            await client.send(command("UNSUBSCRIBE", "a") * 30)
        for client in clients:
            for _ in range(30):
                assert (await client.message())["type"] == "UNSUBSCRIBE_ERROR"
        trio.lowlevel.remove_instrument(watch)
    assert sum(map(len, rounds)) == 5 * 29
    assert max(map(len, rounds)) == 1
