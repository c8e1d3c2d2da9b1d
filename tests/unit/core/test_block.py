"""The policy `block`: who holds the source, for how long, and what happens then."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import pytest

from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.notices import PositionsReported
from kiwi_gw.core.publishing import publish
from kiwi_gw.core.states import SubscriptionState
from kiwi_gw.core.window import ENTRY_OVERHEAD, Window, tell_parked
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import PIECE_BYTES, Batch, CloseReason, Gap, OverflowPolicy, StartAt
from tests.unit.core.fakes import REPLAYABLE, Client, World

BLOCK = HubLimits(window_events=10, overflow=OverflowPolicy.BLOCK, block_timeout=30)


def batch(world: World, size: int = 1) -> Batch:
    """Make the one that is to come next."""
    return Batch(dict(world.next), [0] * size, range(world.next[0], world.next[0] + size), {}, 0)


def stalled(world: World, **options: object) -> Client:
    client = Client()
    world.subscribe(client, **options)  # type: ignore[arg-type]
    client.writer.take = lambda size: 0
    return client


def test_a_push_subscription_holds_the_source_while_it_has_no_room() -> None:
    world = World(BLOCK)
    client = stalled(world, capacity=4)
    freed: list[str] = []
    world.hub.on_freed = lambda: freed.append("freed")
    world.produce(3)
    assert world.hub.blocking.holding(batch(world)) == []
    assert [s.handle for s in world.hub.blocking.holding(batch(world, 2))] == ["h"]
    world.pass_time(1e6)
    assert world.hub.blocking.holding(batch(world, 2))
    client.writer.take = lambda size: size
    client.writer.drain()
    assert freed
    assert world.hub.blocking.holding(batch(world, 2)) == []
    assert client.places == world.made


def test_what_the_bytes_of_the_window_would_not_hold_waits_too() -> None:
    world = World(HubLimits(window_bytes=3 * ENTRY_OVERHEAD, overflow=OverflowPolicy.BLOCK))
    stalled(world)
    for _ in range(3):
        assert world.hub.blocking.holding(batch(world)) == []
        world.produce(1)
    assert world.hub.blocking.holding(batch(world))
    assert len(world.hub.window) == 3


def test_who_is_within_an_entry_holds_the_source_for_all_of_the_entry() -> None:
    """The window gives up whole entries."""
    world, client = World(BLOCK), Client()
    subscription = world.subscribe(client)
    client.writer.take = lambda size: size // 2
    world.produce(6)
    assert 0 < subscription.seq < 6
    assert world.hub.blocking.holding(batch(world, 4)) == []
    assert world.hub.blocking.holding(batch(world, 5))
    client.writer.take = lambda size: size
    client.writer.drain()
    assert world.hub.blocking.holding(batch(world, 5)) == []
    assert client.places == world.made


def test_what_it_has_not_read_goes_to_no_other_source_that_needs_memory() -> None:
    world = World(HubLimits(overflow=OverflowPolicy.BLOCK), memory=5 * ENTRY_OVERHEAD, memo_bytes=0)
    client, other = Client(), Window(100, 1 << 30, world.budget, {0: 0})
    subscription = world.subscribe(client, credit=0)
    for _ in range(5):
        world.produce(1)
    assert world.hub.blocking.holding(batch(world)) == []
    for offset in range(3):
        other.append(Batch({0: offset}, [0], [offset], {}, 0), tell_parked)
        assert world.hub.blocking.holding(batch(world))
    assert (len(world.hub.window), len(other)) == (5, 1)
    subscription.add_credit(5)
    assert world.hub.blocking.holding(batch(world)) == []
    assert client.places == world.made
    subscription.cancel()
    other.append(Batch({0: 3}, [0], [3], {}, 0), tell_parked)
    assert (len(world.hub.window), len(other)) == (3, 2)


def test_one_that_is_caught_up_holds_nothing_however_large_the_batch() -> None:
    world, client = World(BLOCK), Client()
    world.subscribe(client, capacity=2)
    assert world.hub.blocking.holding(batch(world, 50)) == []
    world.produce(50)
    assert client.places == world.made


@pytest.mark.parametrize("fallback", [OverflowPolicy.DROP_OLDEST, OverflowPolicy.CLOSE])
def test_a_batch_larger_than_its_capacity_comes_whole(fallback: OverflowPolicy) -> None:
    world, client = World(replace(BLOCK, block_fallback=fallback)), Client(lambda size: size // 2)
    world.subscribe(client, capacity=2)
    world.produce(8)
    world.pass_time(1)
    assert world.hub.blocking.holding(batch(world))
    client.writer.take = lambda size: size
    client.writer.drain()
    assert client.places == world.made
    assert [lag.dropped for lag in client.lags] == [0]


def test_who_has_not_been_told_of_a_loss_holds_the_source_for_what_would_push_it_out() -> None:
    world, client = World(replace(BLOCK, window_events=2)), Client(lambda size: 0)
    world.subscribe(client)
    gap = Gap({1: (0, 0)}, 1)
    for _ in publish(world.hub, world.batch([], gap=gap)):
        pass
    assert world.hub.blocking.holding(batch(world, 2)) == []
    assert world.hub.blocking.holding(batch(world, 3))
    client.writer.take = lambda size: size
    client.writer.drain()
    assert world.hub.blocking.holding(batch(world, 3)) == []
    world.produce(3)
    assert client.places == world.made
    assert [lag.dropped for lag in client.lags] == [1]


def in_pieces(world: World, events: int) -> Generator[Batch | None]:
    """Begin to publish a batch, of two events a piece."""
    return publish(world.hub, world.batch([0] * events, cost=events // 2 * PIECE_BYTES))


def test_a_batch_larger_than_the_window_waits_between_its_pieces_for_who_was_caught_up() -> None:
    world, client = World(replace(BLOCK, window_events=4)), Client(lambda size: (size + 1) // 2)
    world.subscribe(client)
    waited = 0
    for piece in in_pieces(world, 20):
        if piece is not None and world.hub.blocking.holding(piece):
            waited += 1
            while world.hub.blocking.holding(piece):
                client.writer.drain()
    client.writer.take = lambda size: size
    client.writer.drain()
    assert waited
    assert client.places == world.made
    assert client.lags == []


def test_what_is_cancelled_while_it_is_held_is_not_taken() -> None:
    """The source is to give it again: it knows from where."""
    world, client = World(replace(BLOCK, window_events=4)), Client(lambda size: 0)
    world.subscribe(client)
    steps = in_pieces(world, 20)
    next(piece for piece in steps if piece is not None and world.hub.blocking.holding(piece))
    steps.close()
    assert world.hub.positions == {0: 4}
    client.writer.take = lambda size: size
    client.writer.drain()
    assert client.places == world.made[:4]


def test_without_credit_it_holds_the_source_for_a_time_then_the_fallback_acts_announced() -> None:
    world, client = World(BLOCK), Client()
    subscription = world.subscribe(client, credit=0, capacity=4)
    world.produce(4)
    assert world.hub.blocking.holding(batch(world))
    world.pass_time(29)
    assert world.hub.blocking.holding(batch(world))
    world.pass_time(1)
    assert world.hub.blocking.holding(batch(world)) == []
    world.produce(2)
    subscription.add_credit(100)
    assert client.places == world.made[2:]
    assert sum(lag.dropped or 0 for lag in client.lags) == 2
    world.produce(4)
    assert client.places == world.made[2:]


def test_its_time_begins_anew_with_what_it_reads() -> None:
    world, client = World(BLOCK), Client()
    subscription = world.subscribe(client, credit=0, capacity=4)
    for _ in range(2):
        world.produce(4)
        for _ in range(4):
            assert world.hub.blocking.holding(batch(world, 4))
            world.pass_time(20)
            subscription.add_credit(1)
        assert world.hub.blocking.holding(batch(world, 4)) == []
    world.produce(8)
    subscription.add_credit(8)
    assert client.places == world.made
    assert sum(lag.dropped or 0 for lag in client.lags) == 0


def test_who_was_given_up_once_is_waited_for_again() -> None:
    world, client = World(BLOCK), Client()
    subscription = world.subscribe(client, credit=0, capacity=4)
    world.produce(4)
    assert world.hub.blocking.holding(batch(world))
    world.pass_time(30)
    assert world.hub.blocking.holding(batch(world)) == []
    subscription.add_credit(4)
    world.pass_time(100)
    assert world.hub.blocking.holding(batch(world, 8)) == []
    world.produce(8)
    assert world.hub.blocking.holding(batch(world))
    subscription.add_credit(8)
    assert client.places == world.made


def test_who_reads_a_snapshot_holds_the_source_for_what_comes_behind_it() -> None:
    world, client = World(replace(BLOCK, window_events=4, last_values=True)), Client(lambda size: 0)
    world.produce(3, keys=[b"a", b"b", b"c"])
    world.subscribe(client, start=StartAt.SNAPSHOT)
    assert world.hub.blocking.holding(batch(world, 4)) == []
    world.produce(2)
    world.produce(2)
    assert world.hub.blocking.holding(batch(world))
    client.writer.take = lambda size: size
    client.writer.drain()
    assert world.hub.blocking.holding(batch(world, 4)) == []
    assert client.places == world.made
    assert client.lags == []


def test_who_has_lost_something_and_can_be_sent_to_again_loses_no_more() -> None:
    world, client = World(BLOCK), Client()
    subscription = world.subscribe(client, credit=0)
    for _ in range(10):
        world.produce(1)
    assert world.hub.blocking.holding(batch(world))
    world.pass_time(30)
    assert world.hub.blocking.holding(batch(world)) == []
    world.produce(1)
    client.writer.take = lambda size: 0
    client.writer.control(b"{0}")
    subscription.add_credit(100)
    assert world.hub.blocking.holding(batch(world))
    client.writer.take = lambda size: size
    client.writer.drain()
    assert client.places == world.made[1:]
    assert world.hub.blocking.holding(batch(world)) == []


def test_the_fallback_may_be_to_close_or_to_read_again() -> None:
    world, client = (
        World(HubLimits(overflow=OverflowPolicy.BLOCK, block_fallback=OverflowPolicy.CLOSE)),
        Client(),
    )
    world.subscribe(client, credit=0, capacity=1)
    world.produce(2)
    assert world.hub.blocking.holding(batch(world))
    world.pass_time(29)
    assert client.ends == []
    world.pass_time(1)
    assert world.hub.blocking.holding(batch(world)) == []
    world.pass_time(1)
    assert [end.reason for end in client.ends] == [CloseReason.OVERFLOW]
    limits = HubLimits(window_events=4, overflow=OverflowPolicy.BLOCK, block_fallback=OverflowPolicy.REPLAY)
    world, client = World(limits, info=REPLAYABLE), Client()
    subscription = world.subscribe(client, credit=0)
    for _ in range(6):
        world.produce(1)
    assert subscription.state is SubscriptionState.HISTORY_WAITING
    assert world.hub.blocking.holding(batch(world)) == []


def test_who_leaves_holds_the_source_no_longer() -> None:
    world, client = World(BLOCK), Client()
    subscription = world.subscribe(client, credit=0, capacity=1)
    freed: list[str] = []
    world.hub.on_freed = lambda: freed.append("freed")
    world.produce(1)
    assert world.hub.blocking.holding(batch(world))
    subscription.cancel()
    assert freed
    assert world.hub.blocking.holding(batch(world)) == []


def test_it_is_refused_where_it_is_not_allowed() -> None:
    with pytest.raises(SubscribeRefused, match="block is not available here; there is drop_oldest, close"):
        World().subscribe(Client(), overflow=OverflowPolicy.BLOCK)
    allowed = HubLimits(allow=frozenset(OverflowPolicy))
    assert (
        World(allowed).subscribe(Client(), overflow=OverflowPolicy.BLOCK).reader.terms.policy
        is OverflowPolicy.BLOCK
    )


def test_positions_are_said_when_they_are_due_and_have_changed() -> None:
    world, client = World(), Client()
    world.subscribe(client, report_every=2.0)

    def said() -> list[object]:
        return [notice.positions for notice in client.notices if isinstance(notice, PositionsReported)]

    world.pass_time(0.25)
    assert said() == [{"0": 0}]
    world.produce(3)
    world.pass_time(1)
    assert said() == [{"0": 0}]
    world.pass_time(1)
    assert said() == [{"0": 0}, {"0": 3}]
    world.pass_time(10)
    assert said() == [{"0": 0}, {"0": 3}]
    client.writer.take = lambda size: 0
    world.produce(3)
    world.pass_time(10)
    assert said()[2:] == []
