"""The frame writer over a transport that takes as much as the test says."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from kiwi_gw.core.commands import Reply
from kiwi_gw.core.notices import Notice, Opened
from kiwi_gw.core.round_budget import RoundBudget
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.dialect_api.frames import BINARY, CLOSE, PING, PONG, TEXT, close_frame, header, text_frame
from kiwi_gw.edge.transports import Bytes
from kiwi_gw.edge.websocket_writer import WebSocketWriter
from kiwi_gw.model import Batch, Encoded, WireFormat
from kiwi_gw.runtime.delivery_turns import DELIVERY_SECONDS, DeliveryTurns
from kiwi_gw.runtime.loop_rounds import renew_in_each_round
from kiwi_gw.runtime.meters import STALLS, Histogram
from tests.edge.wire import Frame, FrameReader
from tests.unit.core.fakes import Clock, World

PONG_A, PONG_B = header(1, PONG) + b"a", header(1, PONG) + b"b"


def waiting_bytes(writer: WebSocketWriter) -> int:
    """What a connection owns that its client has not taken."""
    return len(writer._partial_frame) + writer._control_bytes + len(writer._pong or b"")


class FakeTransport:
    """Takes the next of `takes` bytes per call, then everything; or nothing while `full`.

    With `secretly` it takes everything at once and keeps it (`pending`) until it is not full, as TLS does.
    """

    def __init__(self, takes: Sequence[int] = (), *, secretly: bool = False) -> None:
        self.wire = bytearray()
        self.takes = deque(takes)
        self.full = False
        self.broken = False
        self.waiters = 0
        self._secretly = secretly
        self._hidden = b""
        self._writable = trio.Event()

    @property
    def pending(self) -> bool:
        return bool(self._hidden)

    def try_send(self, data: Bytes) -> int:
        if self.broken or not self.flush():
            return 0
        if self._secretly:
            self._hidden = bytes(data)
            self.flush()
            return len(data)
        taken = 0 if self.full else min(len(data), self.takes.popleft() if self.takes else len(data))
        self.wire += data[:taken]
        return taken

    def try_send_many(self, buffers: Sequence[Bytes]) -> int:
        return self.try_send(b"".join(buffers))

    def flush(self) -> bool:
        if self._hidden and not self.full:
            self.wire += self._hidden
            self._hidden = b""
        return not self._hidden

    def unanswered(self) -> float | None:
        return None

    async def wait_writable(self) -> None:
        self.waiters += 1
        assert self.waiters == 1, "two tasks wait for one socket"
        try:
            await trio.lowlevel.checkpoint()
            while self.full and not self.broken:
                await self._writable.wait()
        finally:
            self.waiters -= 1

    def drain(self) -> None:
        """The client reads again."""
        self.full = False
        self._writable.set()
        self._writable = trio.Event()

    def breaks(self) -> None:
        self.broken = True
        self._writable.set()


def number(batch: Batch) -> Encoded:
    """Fragments: a binary frame with the offset in it, of very different sizes."""
    frames = [header(5 + o * 37 % 500, BINARY) + b"%05d" % o + bytes(o * 37 % 500) for o in batch.offsets]
    ends: list[int] = []
    for item in frames:
        ends.append((ends[-1] if ends else 0) + len(item))
    return Encoded(b"".join(frames), ends)


NUMBERS = WireFormat("numbers", number)


class Owner:
    """Writes every notice as a text frame, as a connection does."""

    def __init__(self, writer: WebSocketWriter) -> None:
        self.writer = writer
        self.notices: list[Notice] = []

    def notify(self, subscription: Subscription, notice: Notice) -> None:
        self.notices.append(notice)
        if not isinstance(notice, Opened):
            self.writer.control(text_frame(type(notice).__name__.encode()))


class Bench:
    """A frame writer on a fake transport, and a source to feed it. `spawned`: the drain tasks so far."""

    def __init__(
        self,
        nursery: trio.Nursery | None,
        transport: FakeTransport,
        control_bytes: int = 16 * 1024,
        send_bytes: int = 256 * 1024,
    ) -> None:
        self.nursery = nursery
        self.transport = transport
        self.clock = Clock()
        self.spawned = 0
        self.closings = 0
        self.stalls = Histogram(STALLS)
        self.rounds = RoundBudget()
        self.turns = DeliveryTurns(self.rounds, lambda: False)
        self.writer = WebSocketWriter(
            transport,
            self.spawn,
            self.clock,
            self.turns,
            control_bytes,
            send_bytes,
            self.closing,
            self.stalls,
        )
        self.world = World()
        self.owner = Owner(self.writer)

    def spawn(self, task: Callable[[], Awaitable[Any]]) -> None:
        self.spawned += 1
        assert self.nursery is not None
        self.nursery.start_soon(task)

    def closing(self) -> None:
        self.closings += 1

    def subscribe(self, handle: str = "h", credit: int | None = None) -> Subscription:
        client: Any = self.owner
        return self.world.subscribe(client, NUMBERS, handle=handle, credit=credit)

    def queue(self, events: int = 1) -> None:
        """Have so many events wait for a turn."""
        pull = self.subscribe(credit=0)
        self.world.produce(events)
        self.turns.charge(DELIVERY_SECONDS)
        pull.add_credit(events)

    def frames(self) -> list[Frame]:
        """What is on the wire, which must be whole frames."""
        reader = FrameReader()
        frames = reader.feed(self.transport.wire)
        assert reader.whole, "a frame was left cut"
        return frames

    def texts_so_far(self) -> list[bytes]:
        """Those that are on the wire whole, if the last frame is not."""
        return [frame.payload for frame in FrameReader().feed(self.transport.wire) if frame.opcode == TEXT]

    def texts(self) -> list[bytes]:
        return [frame.payload for frame in self.frames() if frame.opcode == TEXT]

    def offsets(self) -> list[int]:
        return [int(frame.payload[:5]) for frame in self.frames() if frame.opcode == BINARY]


@asynccontextmanager
async def bench(
    takes: Sequence[int] = (), *, secretly: bool = False, control_bytes: int = 16 * 1024
) -> AsyncIterator[Bench]:
    async with trio.open_nursery() as nursery:
        yield Bench(nursery, FakeTransport(takes, secretly=secretly), control_bytes)
        nursery.cancel_scope.cancel()


async def quiet() -> None:
    """Until every task waits for something."""
    await trio.testing.wait_all_tasks_blocked()


# --- what a client reads, whatever the kernel takes -----------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), st.integers(1, 40)),
        st.tuples(st.just("control"), st.integers(0, 3)),
        st.tuples(st.just("pong"), st.integers(0, 9)),
        st.tuples(st.just("corked"), st.integers(0, 3)),
        st.tuples(st.just("full"), st.just(0)),
        st.tuples(st.just("drain"), st.just(0)),
        st.tuples(st.just("rest"), st.just(0)),
        st.tuples(st.just("used up"), st.just(0)),
    ),
    max_size=40,
)
TAKES = st.lists(st.one_of(st.integers(0, 60), st.integers(0, 6000)), max_size=60)


@given(steps=STEPS, takes=TAKES, secretly=st.booleans(), subscriptions=st.integers(1, 3))
def test_the_wire_is_whole_frames_in_a_legal_order(
    steps: list[tuple[str, int]], takes: list[int], secretly: bool, subscriptions: int
) -> None:
    async def main() -> None:
        async with bench(takes, secretly=secretly) as b:
            assert b.nursery is not None
            b.nursery.start_soon(renew_in_each_round, b.rounds)
            b.nursery.start_soon(b.turns.run)
            for handle in range(subscriptions):
                b.subscribe(str(handle))
            expected_texts: list[bytes] = []
            pongs = 0
            produced = 0
            for act, n in steps:
                if act == "batch":
                    b.world.produce(n)
                    produced += n
                elif act == "control":
                    expected_texts.append(b"%d.%d" % (produced, len(expected_texts)))
                    b.writer.control(text_frame(expected_texts[-1]))
                elif act == "pong":
                    pongs += 1
                    b.writer.pong(header(1, PONG) + b"%d" % n)
                elif act == "corked":
                    b.writer.cork()
                    for _ in range(n):
                        expected_texts.append(b"%d.%d" % (produced, len(expected_texts)))
                        b.writer.control(text_frame(expected_texts[-1]))
                    b.writer.uncork()
                elif act == "full":
                    b.transport.full = True
                elif act == "drain":
                    b.transport.drain()
                elif act == "used up":
                    b.turns.charge(DELIVERY_SECONDS)
                else:
                    await quiet()
                assert b.transport.waiters <= 1
                assert not (b.writer.awaits_turn and b.writer.writable)
                assert len(b.turns._waiting) <= 1
            b.transport.drain()
            await quiet()
            frames = b.frames()
            texts = [f.payload for f in frames if f.opcode == TEXT]
            assert texts == expected_texts
            # Everybody got everything once and in order.
            numbers = b.offsets()
            assert sorted(numbers) == sorted([*range(produced)] * subscriptions)
            assert in_order(numbers, subscriptions)
            assert len([f for f in frames if f.opcode == PONG]) <= pongs
            assert b.writer.idle
            assert b.writer.writable
            assert waiting_bytes(b.writer) == 0
            assert b.writer.sent_bytes == len(b.transport.wire)

    trio.run(main)


def in_order(numbers: list[int], readers: int) -> bool:
    """Whether a run is a merge of as many ascending runs from 0."""
    ahead: dict[int, int] = {0: readers}  # next number -> readers that wait for it
    for n in numbers:
        if not ahead.get(n):
            return False
        ahead[n] -= 1
        ahead[n + 1] = ahead.get(n + 1, 0) + 1
    return True


async def test_a_reply_goes_behind_the_frame_that_was_cut_and_before_all_other_events() -> None:
    async with bench(takes=[30, 0]) as b:
        b.subscribe()
        b.world.produce(3)
        assert len(b.transport.wire) == 30
        b.writer.control(text_frame(b"reply"))
        b.writer.pong(PONG_A)
        assert len(b.transport.wire) == 30, "nothing may come between the halves of a frame"
        await quiet()
        kinds = [(f.opcode, f.payload[:5]) for f in b.frames()]
        assert kinds == [
            (BINARY, b"00000"),
            (BINARY, b"00001"),
            (TEXT, b"reply"),
            (PONG, b"a"),
            (BINARY, b"00002"),
        ]


# --- bounds ---------------------------------------------------------------------------------------


async def test_whoever_makes_replies_waits_while_the_lane_is_full() -> None:
    async with bench(control_bytes=1000) as b:
        b.transport.full = True
        passed = 0

        async def reader() -> None:
            nonlocal passed
            while True:
                await b.writer.wait_room()
                b.writer.control(text_frame(bytes(98)))
                passed += 1
                await trio.lowlevel.checkpoint()

        assert b.nursery is not None
        b.nursery.start_soon(reader)
        await quiet()
        stalled = passed
        assert b.writer.control_full
        # What was gathered to be written, and the control queue behind it: each at most its limit.
        assert waiting_bytes(b.writer) <= 1000 + 100
        b.transport.takes.extend([0] * 5)
        b.transport.drain()
        with trio.fail_after(5):
            while passed < stalled + 100:
                await trio.lowlevel.checkpoint()
                assert waiting_bytes(b.writer) <= 1000 + 100


async def test_pongs_that_wait_become_one() -> None:
    async with bench() as b:
        b.transport.full = True
        b.writer.control(text_frame(b"first"))
        for _ in range(1000):
            b.writer.pong(PONG_A)
        b.writer.pong(PONG_B)
        assert waiting_bytes(b.writer) < 20
        b.transport.drain()
        await quiet()
        assert [(f.opcode, f.payload) for f in b.frames()] == [(TEXT, b"first"), (PONG, b"b")]


async def test_a_stalled_client_costs_the_tail_of_one_frame() -> None:
    async with bench(takes=[100, 0]) as b:
        b.subscribe()
        b.world.produce(5)
        b.transport.full = True
        await quiet()
        for _ in range(500):
            b.world.produce(100)
        assert waiting_bytes(b.writer) < 600
        b.transport.drain()
        await quiet()
        assert b.offsets() == [*range(50_005)]


# --- the end --------------------------------------------------------------------------------------


async def test_nothing_follows_a_close_frame() -> None:
    async with bench() as b:
        subscription = b.subscribe()
        b.world.produce(2)
        b.writer.send_close(1008, "enough")
        b.writer.control(text_frame(b"late"))
        b.writer.pong(PONG_A)
        b.writer.send_close(1000, "twice")
        b.world.produce(2)  # the subscription is still there: the library closed, not the connection
        b.writer.mark_ready(subscription)
        b.writer.cork()
        b.writer.control(text_frame(b"later"))
        b.writer.uncork()
        await quiet()
        assert [f.opcode for f in b.frames()] == [BINARY, BINARY, CLOSE]
        assert b.transport.wire.endswith(close_frame(1008, "enough"))
        assert b.writer.close_code == 1008
        assert not b.writer.writable
        assert b.closings == 1


async def test_nothing_follows_a_close_frame_that_had_to_wait() -> None:
    async with bench(takes=[20, 0]) as b:
        subscription = b.subscribe()
        b.world.produce(3)
        b.transport.full = True
        await quiet()
        b.writer.send_close(1001, "bye")
        b.world.produce(3)
        b.writer.mark_ready(subscription)
        b.transport.drain()
        await quiet()
        assert [f.opcode for f in b.frames()] == [BINARY, BINARY, CLOSE]


async def test_wait_idle_ends_when_the_close_frame_is_with_the_kernel() -> None:
    async with bench() as b:
        b.transport.full = True
        b.writer.send_close(1001, "bye")
        done = trio.Event()

        async def wait() -> None:
            await b.writer.wait_idle()
            done.set()

        assert b.nursery is not None
        b.nursery.start_soon(wait)
        await quiet()
        assert not done.is_set()
        b.transport.drain()
        await quiet()
        assert done.is_set()


@pytest.mark.parametrize("what", ["wait_idle", "wait_room"])
async def test_waiting_ends_when_the_connection_breaks(what: str) -> None:
    async with bench(control_bytes=10) as b:
        b.transport.full = True
        for _ in range(3):
            b.writer.control(text_frame(bytes(20)))
        assert b.writer.control_full
        ended = trio.Event()

        async def wait() -> None:
            await getattr(b.writer, what)()
            ended.set()

        assert b.nursery is not None
        b.nursery.start_soon(wait)
        await quiet()
        assert not ended.is_set()
        b.transport.breaks()
        await quiet()
        assert ended.is_set()
        assert not b.writer.writable


async def test_abandoned_it_holds_nothing_and_lets_everybody_go() -> None:
    async with bench(control_bytes=10, takes=[30, 0]) as b:
        subscription = b.subscribe()
        b.world.produce(9)
        b.transport.full = True
        await quiet()
        b.writer.control(text_frame(bytes(20)))
        b.writer.pong(PONG_A)
        assert b.nursery is not None
        b.nursery.start_soon(b.writer.wait_room)
        await quiet()
        subscription.cancel()
        b.writer.abandon()
        assert waiting_bytes(b.writer) == 0
        assert b.writer.close_code == 1006
        size = len(b.transport.wire)
        b.transport.drain()
        b.world.produce(9)
        await quiet()
        assert len(b.transport.wire) == size


# --- tasks ----------------------------------------------------------------------------------------


async def test_a_client_that_takes_everything_costs_no_task() -> None:
    async with bench() as b:
        b.subscribe()
        for _ in range(20):
            b.world.produce(10)
            b.writer.control(text_frame(b"x"))
        assert b.spawned == 0
        assert b.offsets() == [*range(200)]


async def test_there_is_one_drain_task_at_most_and_none_when_it_is_done() -> None:
    async with bench() as b:
        subscriptions = [b.subscribe(str(n)) for n in range(5)]
        b.transport.full = True
        for _ in range(20):
            b.world.produce(10)
            b.writer.control(text_frame(b"x"))
            b.writer.pong(PONG_A)
            for subscription in subscriptions:
                b.writer.mark_ready(subscription)
            await quiet()
        assert b.spawned == 1
        b.transport.drain()
        await quiet()
        assert b.transport.waiters == 0
        b.transport.full = True
        b.world.produce(1)
        await quiet()
        assert b.spawned == 2


async def test_what_tls_has_taken_but_not_sent_is_sent_without_another_event() -> None:
    async with bench(secretly=True) as b:
        b.subscribe()
        b.transport.full = True
        b.world.produce(3)
        assert b.transport.pending
        assert not b.writer.writable
        assert not b.writer.idle
        b.transport.drain()
        await quiet()
        assert b.offsets() == [0, 1, 2]
        assert b.writer.writable


async def test_a_wake_while_it_pumps_is_served_by_the_same_pump() -> None:
    async with bench() as b:
        b.writer.cork()
        pulls = [b.subscribe(str(n), credit=0) for n in range(3)]
        b.world.produce(4)
        for subscription in pulls:
            subscription.add_credit(4)
        assert b.offsets() == []
        b.writer.uncork()
        assert b.offsets() == [0, 1, 2, 3] * 3
        assert b.spawned == 0


async def test_replies_collected_under_a_cork_go_before_the_events_that_they_set_free() -> None:
    async with bench() as b:
        subscription = b.subscribe(credit=0)
        b.world.produce(2)
        b.writer.cork()
        subscription.add_credit(2)
        for frame in (Reply(text_frame(b"one")), Reply(text_frame(b"two"))):
            b.writer.control(frame.frame)
        assert not b.transport.wire
        b.writer.uncork()
        assert [f.payload[:5] for f in b.frames()] == [b"one", b"two", b"00000", b"00001"]


async def test_subscriptions_take_turns() -> None:
    async with bench() as b:
        b.writer._send_bytes = 1000  # a small turn
        for handle in range(3):
            b.subscribe(str(handle))
        b.transport.full = True
        for _ in range(30):
            b.world.produce(3)
        b.transport.drain()
        await quiet()
        numbers = b.offsets()
        assert in_order(numbers, 3)
        furthest = [numbers.index(89), len(numbers) - 1 - numbers[::-1].index(0)]
        assert furthest[1] < furthest[0], "all have begun long before one is done"


async def test_what_does_not_fit_into_a_round_has_a_turn_in_the_next_and_replies_do_not_wait_for_it() -> None:
    async with bench() as b:
        b.queue(2)
        assert not b.writer.full, "its socket takes everything"
        assert not b.writer.writable, "fan-out would overtake it"
        b.writer.control(text_frame(b"reply"))
        assert [f.payload for f in b.frames()] == [b"reply"]
        b.rounds.renew(0.0)
        b.writer.take_turn()
        assert b.offsets() == [0, 1]
        assert b.writer.writable
        assert b.spawned == 0


async def test_where_others_wait_it_sends_once_in_each_turn() -> None:
    async with bench() as b:
        sent: list[int] = []

        class Other:
            def take_turn(self) -> None:
                sent.append(len(b.transport.wire))
                if b.writer.awaits_turn:
                    b.turns.add(self)

        b.writer._send_bytes = 1000
        b.subscribe()
        b.transport.full = True
        for _ in range(30):
            b.world.produce(3)
        b.turns.add(Other())
        b.transport.drain()
        await quiet()
        assert not sent, "and none without a turn"
        assert b.nursery is not None
        b.nursery.start_soon(b.turns.run)
        await quiet()
        assert b.offsets() == [*range(90)]
        steps = [after - before for before, after in pairwise(sent)]
        assert len(steps) > 10
        assert max(steps) <= 1000 + 510, "more than a send"


@pytest.mark.parametrize("taken", [3, 0])
async def test_a_reply_that_is_cut_waits_for_the_socket_and_not_for_a_turn(taken: int) -> None:
    async with bench(takes=[taken]) as b:
        b.queue()
        b.writer.control(text_frame(b"reply"))
        assert not b.texts_so_far()
        await quiet()
        assert b.texts_so_far() == [b"reply"]
        b.rounds.renew(0.0)
        b.writer.take_turn()
        assert b.offsets() == [0]
        assert b.writer.writable


async def test_what_is_raised_in_a_turn_ends_its_connection_and_no_turn_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as b:
        ended: list[BaseException] = []

        def spawn(task: Callable[[], Awaitable[Any]]) -> None:
            async def guarded() -> None:
                try:
                    await task()
                except RuntimeError as error:
                    ended.append(error)

            b.spawn(guarded)

        def breaks(buffers: Sequence[Bytes]) -> int:
            raise RuntimeError("broken")

        class Other:
            turns = 0

            def take_turn(self) -> None:
                self.turns += 1

        monkeypatch.setattr(b.writer, "_spawn", spawn)
        monkeypatch.setattr(b.transport, "try_send_many", breaks)
        other = Other()
        b.queue()
        b.turns.add(other)
        b.rounds.renew(0.0)
        assert b.nursery is not None
        b.nursery.start_soon(b.turns.run)
        await quiet()
        assert other.turns == 1
        assert len(ended) == 1


async def test_what_sends_nothing_takes_its_part_of_the_round_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as b:
        pull, other = b.subscribe("one", credit=0), b.subscribe("other", credit=0)
        b.world.produce(1)

        def slowly(max_bytes: int, max_events: int | None = None) -> None:
            b.clock.now += DELIVERY_SECONDS

        monkeypatch.setattr(Subscription, "prepare", lambda self, size: slowly(size))
        pull.add_credit(1)
        assert not b.writer.awaits_turn
        other.add_credit(1)
        assert b.writer.awaits_turn


async def test_one_that_is_gone_has_no_turn() -> None:
    async with bench() as b:
        b.queue()
        b.writer.abandon()
        b.writer.take_turn()
        assert not b.transport.wire
        assert not b.writer.writable


async def test_it_knows_when_the_socket_last_took_something() -> None:
    async with bench() as b:
        b.clock.now = 5.0
        b.writer.control(header(0, PING))
        assert b.writer.taken_at == 5.0
        b.transport.full = True
        b.clock.now = 9.0
        b.writer.control(header(0, PING))
        assert b.writer.taken_at == 5.0


# --- what is measured -------------------------------------------------------------------------------


async def test_what_events_take_is_told_apart_from_what_replies_take(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as b:
        pull = b.subscribe(credit=0)
        b.world.produce(3)
        send = b.transport.try_send

        def slowly(data: Bytes) -> int:
            b.clock.now += 1.0
            return send(data)

        monkeypatch.setattr(b.transport, "try_send", slowly)
        b.writer.control(text_frame(b"alone"))
        assert b.writer.delivery_seconds == 0.0
        pull.add_credit(2)
        assert b.writer.delivery_seconds == 1.0
        b.rounds.renew(0.0)
        b.writer.cork()
        b.writer.control(text_frame(b"with an event"))
        pull.add_credit(1)
        b.writer.uncork()
        assert b.writer.delivery_seconds == 2.0
        assert b.offsets() == [0, 1, 2]


async def test_it_is_measured_how_long_the_socket_takes_nothing() -> None:
    async with bench() as b:
        for seconds in (20.0, 0.0005, 2.0):  # the second one is no stall
            b.transport.full = True
            b.writer.control(text_frame(b"one"))
            await quiet()
            b.clock.now += seconds
            b.transport.drain()
            await quiet()
        assert b.stalls.sum == pytest.approx(22.0)
        b.transport.full = True
        b.writer.control(text_frame(b"never"))
        await quiet()
        b.clock.now += 7.0
        b.transport.breaks()
        await quiet()
        assert sum(b.stalls.counts) == 3
        assert b.stalls.sum == pytest.approx(29.0), "also if it ends with it"
