"""See that policy `block` keeps its promise for any source that publishes as `runtime.source_runner` does.

A machine holds a batch back while somebody holds the source, and goes on with it step by step, while clients
of all kinds come, read in odd bytes, grant piecemeal and leave, and another source needs memory. Nobody loses
an event who is sent what is there or has granted credit in time, and the source always gets on in the end.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kiwi_gw.core.commands import LabelLimit
from kiwi_gw.core.delivery import MAX_CREDIT
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.publishing import publish
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.window import ENTRY_OVERHEAD, Window, tell_parked
from kiwi_gw.model import PIECE_BYTES, AtPositions, Batch, Gap, OverflowPolicy, StartAt
from tests.effort import examples
from tests.unit.core.fakes import ENDLESS, JOINED, BoundedClient, Place, World, names

TIMEOUT = 30


def kept(place: Place) -> bool:
    return place[1] % 3 != 0


FORMS = {
    (filtered, framed): names(
        "f" * filtered + "j" * framed + "e",
        keep=kept if filtered else None,
        framing=JOINED if framed else None,
    )
    for filtered in (False, True)
    for framed in (False, True)
}


@dataclass(frozen=True)
class Wish:
    """Hold what a client asks for. back: it begins so many events before the head, -1: with a snapshot."""

    filtered: bool
    framed: bool
    credit: int | None
    capacity: int | None
    limit: int | None
    back: int
    room: int


WISHES = st.builds(
    Wish,
    filtered=st.booleans(),
    framed=st.booleans(),
    credit=st.none() | st.integers(0, 9),
    capacity=st.none() | st.none() | st.integers(1, 20),
    limit=st.none() | st.none() | st.integers(10, 40),
    back=st.sampled_from([0, 0, 3, 10, -1]),
    room=st.sampled_from([ENDLESS, 0, 20, 100]),
)


class Reader(BoundedClient):
    """Act as a client that takes no more than there is room for, and know what it is to have."""

    def __init__(self, world: World, wish: Wish) -> None:
        super().__init__()
        self.writer.max_bytes = 64
        self.room = wish.room
        self.wish = wish
        self.world = world
        self.left = False
        self.credit_at = world.clock()  # when it had credit last
        self.late = False  # it had none for too long
        window = world.hub.window
        self.begin = window.head if wish.back < 0 else max(window.base, window.head - wish.back)
        entry = window.find(self.begin)
        here = window.positions if entry is None else entry.batch.positions_at(self.begin - entry.base)
        start = StartAt.SNAPSHOT if wish.back < 0 else AtPositions(world.hub.dump(here))
        self.lost = window.lost  # by the source
        self.subscription: Subscription = world.subscribe(
            self,
            FORMS[wish.filtered, wish.framed],
            credit=wish.credit,
            capacity=wish.capacity,
            limits={} if wish.limit is None else {None: LabelLimit(wish.limit)},
            start=start if wish.back else StartAt.LATEST,
        )

    def take_in(self, room: int) -> None:
        self.room = room
        self.writer.drain()

    def grant(self, n: int) -> None:
        if self.wish.credit is not None and not self.subscription.closed:
            self.credit_at = self.world.clock()
            self.subscription.add_credit(n)

    def pass_time(self) -> None:
        if self.wish.credit is None or self.subscription.delivery.credits:
            self.credit_at = self.world.clock()
        self.late = self.late or self.world.clock() - self.credit_at >= TIMEOUT

    def check(self) -> None:
        """See that it has had everything once and in order, all being read."""
        wire = [offset for _, offset in self.places]
        assert wire == sorted(set(wire))
        if self.late:
            return
        window = self.world.hub.window
        if self.wish.back == 0:
            dropped = sum(lag.dropped or 0 for lag in self.lags)
            missing = window.lost - self.lost
            assert dropped == missing or (self.subscription.closed and dropped < missing)
        due = [n for n in range(self.begin, window.head) if not self.wish.filtered or kept((0, n))]
        live = [offset for offset in wire if offset >= self.begin]
        if self.subscription.closed:
            assert live == due[: len(live)]
            assert self.left or len(wire) == self.wish.limit
        else:
            assert live == due


PIECES = st.sampled_from([0, 0, 0.1, 1, 3, 8])
LOST = st.integers(0, 5).map(lambda n: n == 0)


class Machine(RuleBasedStateMachine):
    @initialize(
        events=st.integers(2, 12),
        entries=st.integers(1, 12),
        memory=st.sampled_from([ENDLESS, 8, 20]),
        fallback=st.sampled_from([OverflowPolicy.DROP_OLDEST, OverflowPolicy.CLOSE, OverflowPolicy.LATEST]),
        wishes=st.lists(WISHES, min_size=1, max_size=4),
    )
    def begin(
        self, events: int, entries: int, memory: int, fallback: OverflowPolicy, wishes: list[Wish]
    ) -> None:
        limits = HubLimits(
            window_events=events,
            window_bytes=entries * (ENTRY_OVERHEAD + PIECE_BYTES // 2),
            direct_bytes=60,
            slice_seconds=0,
            overflow=OverflowPolicy.BLOCK,
            block_fallback=fallback,
            block_timeout=TIMEOUT,
            last_values=True,
        )
        self.world = World(limits, memory * PIECE_BYTES // 2, memo_bytes=600, start={0: 0, 1: 0})
        self.other = Window(100, ENDLESS, self.world.budget, {0: 0})
        self.readers: list[Reader] = []
        self.batch: Batch | None = None  # it is to be published next
        self.steps: Generator[Batch | None] | None = None
        for wish in wishes:
            self.subscribe(wish)

    # --- the source ---

    @rule(size=st.integers(0, 12), pieces=PIECES, lost=LOST)
    def produce(self, size: int, pieces: float, *, lost: bool) -> None:
        """Have a batch that is cut into about so many pieces published as far as can be."""
        self.come(size, pieces, lost=lost)
        while self.step():
            pass

    @rule(size=st.integers(0, 12), pieces=PIECES, lost=LOST)
    def come(self, size: int, pieces: float, *, lost: bool) -> None:
        """Have a batch come, if there is none, and nothing done with it yet. lost: the source lost an event
        of another partition before it."""
        if self.steps is None:
            first = self.world.next[0]
            keys = [b"%d" % (n % 7) for n in range(first, first + size)]
            gone = self.world.next[1]
            gap = Gap({1: (gone, gone)}, 1) if lost else None
            self.batch = self.world.batch([0] * size, cost=int(pieces * PIECE_BYTES), keys=keys, gap=gap)
            self.steps = publish(self.world.hub, self.batch)

    @rule()
    def go_on(self) -> None:
        self.step()

    def step(self) -> bool:
        """Do one step, as `HubPublisher.publish` does, or wait. Return whether there was something to do."""
        hub = self.world.hub
        if self.steps is None or (self.batch is not None and hub.blocking.holding(self.batch)):
            return False
        try:
            self.batch = next(self.steps)
        except StopIteration:
            self.steps = None
        return True

    @rule()
    def abandon(self) -> None:
        """Have the source be cancelled half-way, and begin anew where the window ends."""
        if self.steps is not None:
            self.steps.close()
            self.steps = None
            window = self.world.hub.window
            del self.world.made[window.head :]
            self.world.next = dict(window.positions)

    @rule(size=st.integers(1, 4))
    def grow(self, size: int) -> None:
        """Have another source need memory."""
        offset = self.other.head
        self.other.append(Batch({0: offset}, [0], [offset], {}, size * PIECE_BYTES // 2), tell_parked)

    @rule(seconds=st.sampled_from([1, 14, 14, 14, 14, 31]))
    def wait(self, seconds: float) -> None:
        self.step()
        self.world.clock.now += seconds
        for reader in self.readers:
            reader.pass_time()
        self.world.hub.sweep()

    # --- the clients ---

    @precondition(lambda self: len(self.readers) < 7)
    @rule(wish=WISHES)
    def subscribe(self, wish: Wish) -> None:
        self.readers.append(Reader(self.world, wish))

    @rule(which=st.integers(0, 6), n=st.sampled_from([1, 1, 2, 5, 20]))
    def grant(self, which: int, n: int) -> None:
        self.readers[which % len(self.readers)].grant(n)

    @rule(which=st.integers(0, 6), room=st.sampled_from([0, 1, 5, 13, 40, 150, ENDLESS]))
    def read(self, which: int, room: int) -> None:
        self.readers[which % len(self.readers)].take_in(room)

    @rule(which=st.integers(0, 20))
    def leave(self, which: int) -> None:
        if which < len(self.readers):
            self.readers[which].left = True
            self.readers[which].subscription.cancel()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        going = True
        while going:
            for reader in self.readers:
                reader.grant(MAX_CREDIT)
                reader.take_in(ENDLESS)
                assert reader.subscription.closed or reader.subscription.reader.cursor.caught_up or self.steps
            going = self.step()
        assert self.steps is None, "the source is held by those who have had everything"
        for reader in self.readers:
            reader.check()


def test_nothing_is_lost_to_who_holds_the_source_and_it_gets_on_when_they_have_read() -> None:
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=examples(700), stateful_step_count=50, deadline=None)
    )
