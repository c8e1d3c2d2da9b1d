"""Encode once: the memo, and interceptors before a format."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.core.encoding import EncodingMemo, keyed_format, weight
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.publishing import publish
from kiwi_gw.core.states import SubscriptionState
from kiwi_gw.core.transforms import check
from kiwi_gw.core.window import ENTRY_OVERHEAD, MemoryBudget, Window, WindowEntry
from kiwi_gw.model import (
    AtPositions,
    Batch,
    CloseReason,
    Encoded,
    EventTransform,
    Framing,
    Interceptor,
    Record,
    Transformed,
    WireFormat,
)
from tests.effort import examples
from tests.unit.core.fakes import JOINED, Client, Place, World, fragment, names


def test_encoder_calls_are_events_times_wire_keys_while_everyone_keeps_up() -> None:
    world = World()
    clients = [Client() for _ in range(60)]
    for number, client in enumerate(clients):
        world.subscribe(client, names("abc"[number % 3]), credit=10**6 if number % 2 else None)
    for _ in range(50):
        world.produce(7)
    assert world.memo.events_encoded == 50 * 7 * 3
    assert world.memo.misses == 50 * 3
    assert world.memo.bytes == 0  # no client will come back for them
    assert all(client.places == world.made for client in clients)
    assert all(client.writer.sends == 50 and client.writer.wakes == 0 for client in clients)


def test_one_slow_reader_costs_no_second_encoding() -> None:
    world = World()
    clients = [Client() for _ in range(5)]
    for client in clients:
        world.subscribe(client)
    clients[0].writer.take = lambda size: 0
    for _ in range(10):
        world.produce(3)
    assert world.memo.bytes > 0
    clients[0].writer.take = lambda size: size
    clients[0].writer.drain()
    assert world.memo.events_encoded == 30
    assert all(client.places == world.made for client in clients)


def test_what_the_memo_dropped_is_made_again() -> None:
    world = World(memo_bytes=400)
    client = Client(lambda size: 0)
    world.subscribe(client)
    world.subscribe(Client())
    for _ in range(10):
        world.produce(3)
    assert 0 < world.memo.bytes <= 400
    client.writer.take = lambda size: size
    client.writer.drain()
    assert client.places == world.made
    assert world.memo.events_encoded > 30


def test_a_subscription_that_waits_for_a_place_of_its_key_keeps_the_fragments() -> None:
    world = World()
    quick, slow = Client(), Client(lambda size: 0)
    world.subscribe(quick)
    world.subscribe(slow)
    world.produce(3)
    entry = world.hub.window.newest
    assert entry is not None
    assert list(entry.encodings) == [names().key]
    world.hub.close()
    assert world.memo.bytes == world.budget.used == 0


def entry_of(number: int, size: int) -> WindowEntry:
    return WindowEntry(Batch({0: number}, [0] * size, range(number, number + size), {}, 0), number)


@settings(deadline=None, max_examples=examples(100))
@given(
    bound=st.integers(1, 1500),
    memory=st.sampled_from([1 << 40, 3200]),
    asks=st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc"), st.integers(0, 9)), max_size=60),
)
def test_the_memo_is_a_bounded_lru(bound: int, memory: int, asks: list[tuple[int, str, int]]) -> None:
    budget = MemoryBudget(memory)
    memo = EncodingMemo(bound, budget)
    entries = [entry_of(n * 10, n) for n in range(6)]
    model: dict[tuple[int, str], int] = {}  # sizes, the one used last at the end
    for which, name, action in asks:
        entry, item = entries[which], keyed_format(names(name))
        if action == 0:
            memo.forget(entry)
            model = {key: size for key, size in model.items() if key[0] != which}
        else:
            made = memo.encoded(entry, item, keep=action != 1)
            assert made == item.format.encode(entry.batch)
            if action == 2:
                memo.keep(entry, item, made)
            size = weight(made)
            if (which, name) in model or action != 1:
                model[which, name] = model.pop((which, name), size)
                while len(model) > 1 and sum(model.values()) > min(bound, memory // 4):
                    del model[next(iter(model))]
        assert memo.bytes == budget.used == sum(model.values())
        held = {(n, name) for n, e in enumerate(entries) for name in "abc" if names(name).key in e.encodings}
        assert held == set(model)
    assert memo.hits + memo.misses == sum(action != 0 for _, _, action in asks)
    for entry in entries:
        memo.forget(entry)
    assert memo.bytes == budget.used == 0


def test_windows_that_are_full_leave_the_encodings_their_share() -> None:
    budget = MemoryBudget(100 * ENTRY_OVERHEAD)
    memo = EncodingMemo(10 * ENTRY_OVERHEAD, budget)
    window = Window(1_000, 1 << 30, budget, {0: 0})
    for number in range(200):
        window.append(Batch({0: number}, [0], [number], {}, 0), memo.forget)
    assert len(window) == 90
    entry = window.find(window.base)
    while entry is not None:
        memo.encoded(entry, keyed_format(names()))
        entry = entry.next
    assert len(memo._order) == 90
    assert len(window) == 90
    assert budget.used <= budget.limit


# --- interceptors -------------------------------------------------------------------------------------


def even_only(record: Record) -> Record | None:
    return record if record["offset"] % 2 == 0 else None  # type: ignore[operator]


def with_values(name: str = "v") -> WireFormat:
    def encode(batch: Batch) -> Encoded:
        parts = [b"%b=%b;" % (name.encode(), str(value).encode()) for value in batch.column("value")]
        return Encoded(b"".join(parts), list(accumulate(map(len, parts))))

    return WireFormat(name, encode)


def produce(world: World, *values: object) -> None:
    for _ in publish(world.hub, world.batch([0] * len(values), values=values)):
        pass


def wire_of(client: Client) -> bytes:
    return bytes(client.writer.wire).removeprefix(b"{0}")


def test_an_interceptor_withholds_and_a_pull_client_pays_only_for_what_it_gets() -> None:
    world = World()
    push, pull = Client(), Client()
    interceptor = Interceptor(even_only, "even")
    world.subscribe(push, interceptor=interceptor)
    subscription = world.subscribe(pull, credit=3, interceptor=interceptor)
    for _ in range(4):
        world.produce(3)
    assert push.places == [(0, n) for n in range(0, 12, 2)]
    assert pull.places == [(0, 0), (0, 2), (0, 4)]
    assert (subscription.delivery.credits, subscription.delivery.matched, subscription.delivery.scanned) == (
        0,
        3,
        6,
    )
    assert world.memo.events_encoded == 12


def test_an_interceptor_changes_what_is_written_and_not_the_batch() -> None:
    world, changed, plain = World(), Client(), Client()
    world.subscribe(changed, with_values(), interceptor=Interceptor(lambda r: {**r, "value": "***"}, "hide"))
    world.subscribe(plain, with_values())
    produce(world, "a", "b")
    assert wire_of(changed) == b"v=***;v=***;"
    assert wire_of(plain) == b"v=a;v=b;"
    assert world.memo.events_encoded == 4


def test_interceptors_with_a_key_share_and_others_share_with_nobody() -> None:
    world = World()
    for _ in range(3):
        world.subscribe(Client(), interceptor=Interceptor(even_only, "even"))
    assert world.hub.wire_keys == 1
    unshared = Interceptor(even_only)
    for _ in range(3):
        world.subscribe(Client(), interceptor=unshared)
    assert world.hub.wire_keys == 4
    world.produce(2)
    assert world.memo.events_encoded == 8


def test_formats_behind_one_interceptor_find_the_same_batch() -> None:
    world = World()
    found: list[Batch] = []

    def remembering(name: str) -> WireFormat:
        inner = with_values(name)

        def encode(batch: Batch) -> Encoded:
            found.append(batch)
            return inner.encode(batch)

        return WireFormat(name, encode)

    calls: list[object] = []

    def counted(record: Record) -> Record | None:
        calls.append(record["offset"])
        return even_only(record)

    for name in "abc":
        world.subscribe(Client(), remembering(name), interceptor=Interceptor(counted, "even"))
    for _ in range(20):  # more than are remembered
        produce(world, "a", "b", "c")
    assert len(calls) == 60
    assert len(found) == 60
    assert len({id(batch) for batch in found[-3:]}) == 1
    assert [list(batch.offsets) for batch in found[:4]] == [[0, 2], [0, 2], [0, 2], [4]]


def test_an_interceptor_that_takes_out_a_column_fails_its_readers_only() -> None:
    world, bad, good = World(), Client(), Client()
    world.subscribe(bad, with_values(), interceptor=Interceptor(lambda r: {"offset": r["offset"]}, "bad"))
    world.subscribe(good, with_values())
    produce(world, "a")
    assert [(end.reason, end.dropped) for end in bad.ends] == [(CloseReason.FAILED, 1)]
    assert "'value'" in bad.ends[0].message
    assert wire_of(good) == b"v=a;"


def without_odd(batch: Batch) -> Transformed:
    return Transformed([index for index, offset in enumerate(batch.offsets) if offset % 2 == 0])


def shouted(batch: Batch) -> Transformed:
    return Transformed(columns={"value": [str(value).upper() for value in batch.columns["value"]]})


def test_transforms_take_columns_one_after_the_other() -> None:
    world, both, one, plain = World(), Client(), Client(), Client()
    chain = [EventTransform(without_odd, "even"), EventTransform(shouted, "shout")]
    world.subscribe(both, with_values(), before=chain)
    world.subscribe(one, with_values(), before=chain[1:])
    world.subscribe(plain, with_values())
    produce(world, "a", "b", "c")
    assert wire_of(both) == b"v=A;v=C;"
    assert wire_of(one) == b"v=A;v=B;v=C;"
    assert wire_of(plain) == b"v=a;v=b;v=c;"


def test_what_only_leaves_events_out_is_picked_once_there_are_many() -> None:
    world, clients, calls = World(), [Client() for _ in range(6)], []

    def encode(batch: Batch) -> Encoded:
        calls.append(len(batch))
        return with_values().encode(batch)

    def without(offset: int) -> EventTransform:
        return EventTransform(
            lambda b: Transformed([i for i, o in enumerate(b.offsets) if o != offset]), offset
        )

    for number, client in enumerate(clients):
        world.subscribe(client, WireFormat("v", encode), before=[without(number)])
    produce(world, *"abcdef")
    assert calls == [5, 5, 6]
    for number, client in enumerate(clients):
        assert wire_of(client) == b"".join(b"v=%c;" % c for c in b"abcdef" if c != b"abcdef"[number])


@settings(deadline=None, max_examples=examples(100))
@given(
    st.sets(st.integers(0, 11)),
    st.lists(st.sets(st.integers(0, 11)), min_size=5, max_size=5),
    st.none() | st.sets(st.integers(0, 11)),
    st.sets(st.integers(0, 11), max_size=1),
    st.none() | st.lists(st.none() | st.integers(0, 11), min_size=3, max_size=3),
)
def test_whatever_links_leave_out_each_gets_its_own(
    all_without: set[int],
    without: list[set[int]],
    filtered: set[int] | None,
    big: set[int],
    last: list[int | None] | None,
) -> None:
    # last: what the first link, the second one, and the format cannot do.
    for_all, for_some, for_format = last or [None] * 3
    world, clients = World(), [Client() for _ in without]

    def keeps(place: Place) -> bool:
        return filtered is not None and place[1] in filtered

    def leave_out(offsets: set[int], fails: int | None) -> EventTransform:
        def apply(batch: Batch) -> Transformed:
            there = list(batch.offsets)
            failing = [there.index(fails)] if fails in there else []
            return Transformed([index for index, n in enumerate(there) if n not in offsets], failing=failing)

        return EventTransform(apply, tuple(sorted(offsets)))

    keep = None if filtered is None else keeps
    form = names(keep=keep, big=lambda place: place[1] in big, ends=lambda place: place[1] == for_format)
    for client, own in zip(clients, without, strict=True):
        before = [leave_out(all_without, for_all), leave_out(own, for_some)]
        world.subscribe(client, form, before=before)
    world.produce(12)
    for client, own in zip(clients, without, strict=True):
        offered = [n for n in range(12) if n not in all_without | own]
        failed = [12 if for_all is None else for_all]
        failed += [for_some] if for_some is not None and for_some not in all_without else []
        failed += [for_format] if for_format in offered else []
        offered = [n for n in offered if n < min(failed)]
        assert [end.positions for end in client.ends] == [{"0": min(failed)}] * (min(failed) < 12)
        expected = [n for n in offered if n not in big and (filtered is None or n in filtered)]
        assert client.places == [(0, n) for n in expected]
        assert sum(lag.dropped or 0 for lag in client.lags) == len([n for n in offered if n in big])


def test_what_transforms_leave_is_counted_and_let_go() -> None:
    budget = MemoryBudget(1 << 30)
    memo = EncodingMemo(1 << 26, budget)
    chain = [EventTransform(without_odd, "even"), EventTransform(shouted, "shout")]
    entries = [
        WindowEntry(Batch({0: n}, [0, 0], [n, n + 1], {"value": ["a", "b"]}, 100), n) for n in range(0, 40, 2)
    ]
    for entry in entries:
        memo.encoded(entry, keyed_format(with_values(), chain), keep=False)
    held = memo.bytes
    assert budget.used == held > 8 * 100
    memo.shrink(0)
    assert memo.bytes == budget.used == 0
    memo.shrink(1)
    for entry in entries:
        memo.encoded(entry, keyed_format(with_values(), chain), keep=False)
    assert memo.bytes == held, "so many, however many there were"
    for entry in entries:
        memo.forget(entry)
    assert memo.bytes == budget.used == 0


@pytest.mark.parametrize(
    "changed",
    [
        Transformed([2]),
        Transformed([-1]),
        Transformed([1, 0]),
        Transformed([0, 0]),
        Transformed(columns={"value": ["a"]}),
        Transformed([0], {"value": ["a", "b"]}),
    ],
    ids=repr,
)
def test_what_cannot_be_of_the_batch_is_found(changed: Transformed) -> None:
    check(Transformed([0, 1], {"value": ["a", "b"]}), 2)
    check(Transformed([]), 2)
    with pytest.raises(ValueError, match=r"ascending indexes|values for"):
        check(changed, 2)


@settings(deadline=None, max_examples=examples(100))
@given(
    withheld=st.sets(st.integers(0, 11)),
    filtered=st.none() | st.sets(st.integers(0, 11)),
    big=st.sets(st.integers(0, 11)),
    credit=st.none() | st.integers(1, 12),
)
def test_interceptor_then_filter_then_size(
    withheld: set[int], filtered: set[int] | None, big: set[int], credit: int | None
) -> None:
    world, client = World(), Client()

    def keeps(place: Place) -> bool:
        return filtered is not None and place[1] in filtered

    form = names(keep=None if filtered is None else keeps, big=lambda place: place[1] in big)
    interceptor = Interceptor(lambda r: None if r["offset"] in withheld else r, "k")
    subscription = world.subscribe(client, form, interceptor=interceptor, credit=credit)
    world.produce(12)
    offered = [n for n in range(12) if n not in withheld]
    expected = [n for n in offered if n not in big and (filtered is None or n in filtered)]
    assert client.places == [(0, n) for n in expected[: 12 if credit is None else credit]]
    if credit is None:
        assert sum(lag.dropped or 0 for lag in client.lags) == len([n for n in offered if n in big])
        assert subscription.state is SubscriptionState.LIVE


@settings(deadline=None, max_examples=examples(200))
@given(
    batches=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    bad=st.integers(0, 12),
    withheld=st.sets(st.integers(0, 11)),
    filtered=st.none() | st.sets(st.integers(0, 11)),
    credit=st.none() | st.integers(1, 12),
    framing=st.sampled_from([None, JOINED]),
)
def test_an_event_that_ends_a_subscription_is_its_last(
    batches: list[int],
    bad: int,
    withheld: set[int],
    filtered: set[int] | None,
    credit: int | None,
    framing: Framing | None,
) -> None:
    world, client, behind, other = World(), Client(), Client(), Client()

    def keeps(place: Place) -> bool:
        return filtered is not None and place[1] in filtered

    keep = None if filtered is None else keeps
    form = names("bad", keep=keep, ends=lambda place: place[1] == bad, framing=framing)
    interceptor = Interceptor(lambda r: None if r["offset"] in withheld else r, "k")
    subscription = world.subscribe(client, form, interceptor=interceptor, credit=credit)
    slow = world.subscribe(behind, form, interceptor=interceptor, credit=0)
    world.subscribe(other)
    for events in batches:
        world.produce(events)
    made = sum(batches)
    comes = bad < made and bad not in withheld
    offered = [n for n in range(bad if comes else made) if n not in withheld]
    there = [n for n in offered if filtered is None or n in filtered]
    assert client.places == [(0, n) for n in there[: made if credit is None else credit]]
    assert other.places == world.made
    if credit is None:
        assert [(end.reason, end.dropped) for end in client.ends] == [(CloseReason.FAILED, 0)] * comes
        assert not comes or client.ends[0].positions == {"0": bad}
        assert not comes or client.ends[0].message.endswith(f": partition 0, offset {bad}")
        assert subscription.delivery.decode_errors == comes
    assert not behind.ends, "it has not come to it yet"
    slow.add_credit(made + 1)
    assert behind.places == [(0, n) for n in there]
    assert len(behind.ends) == comes


@settings(deadline=None, max_examples=examples(300))
@given(
    batches=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=6), min_size=1, max_size=4),
    failing=st.sets(st.tuples(st.integers(0, 1), st.integers(0, 9)), max_size=4),
    start=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    until=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
def test_events_that_end_a_subscription_end_nobody_who_does_not_come_to_them(
    batches: list[list[int]], failing: set[Place], start: tuple[int, int], until: tuple[int, int] | None
) -> None:
    world, client = World(start={0: 0, 1: 0}), Client()
    for partitions in batches:
        world.produce(partitions)
    begin = {str(p): min(offset, world.next[p]) for p, offset in enumerate(start)}
    ends = None if until is None else {str(p): max(offset, begin[str(p)]) for p, offset in enumerate(until)}
    form = names("bad", ends=lambda place: place in failing)
    subscription = world.subscribe(client, form, start=AtPositions(begin), until=ends)
    asked = [(p, n) for p, n in world.made if n >= begin[str(p)] and (ends is None or n < ends[str(p)])]
    first = next((index for index, place in enumerate(asked) if place in failing), None)
    assert client.places == asked[:first]
    if first is not None:
        (end,) = client.ends
        partition, offset = asked[first]
        assert (end.reason, end.dropped) == (CloseReason.FAILED, 0)
        assert end.message.endswith(f": partition {partition}, offset {offset}")
        assert end.positions[str(partition)] == offset
        assert world.hub.dump(subscription.positions) == end.positions
        assert subscription.delivery.decode_errors == 1
        again, skipped = Client(), {**end.positions, str(partition): offset + 1}
        world.subscribe(again, form, start=AtPositions(skipped), until=ends)
        rest = asked[first + 1 :]
        there = next((index for index, place in enumerate(rest) if place in failing), None)
        assert again.places == rest[:there], "who steps over it goes on"
    else:
        assert [end.reason for end in client.ends] in ([], [CloseReason.UNTIL])


# --- fragments that cannot be made --------------------------------------------------------------------


def test_encoding_failed_closes_its_group_and_nobody_else() -> None:
    world = World()
    good, bad, late = Client(), [Client(), Client(), Client()], Client()
    form = names("bad", fails=lambda place: place[1] == 4)
    world.subscribe(good)
    for client in bad:
        world.subscribe(client, form)
    bad[1].writer.take = lambda size: 0
    world.produce(2)
    world.produce(2)
    bad[2].writer.take = lambda size: 0
    world.produce(2)
    assert [[(end.reason, end.dropped) for end in client.ends] for client in bad] == [
        [(CloseReason.FAILED, 2)],
        [(CloseReason.FAILED, 6)],
        [(CloseReason.FAILED, 2)],
    ]
    assert good.places == world.made
    world.subscribe(late, form)
    world.produce(2)
    assert late.places == [(0, 6), (0, 7)]


def test_encoding_failed_when_read_from_behind() -> None:
    world = World(HubLimits(max_wire_keys=1))
    client = Client()
    fail = [False]
    subscription = world.subscribe(client, names(fails=lambda place: fail[0]), credit=0)
    world.produce(2)
    world.memo.forget(world.hub.window.newest)  # type: ignore[arg-type]
    fail[0] = True
    subscription.add_credit(1)
    assert [(end.reason, end.dropped) for end in client.ends] == [(CloseReason.FAILED, 2)]
    assert client.places == []
    assert world.hub.wire_keys == 0


def test_fragments_are_what_the_format_wrote() -> None:
    world, client = World(), Client()
    world.subscribe(client)
    places = world.produce(5)
    assert wire_of(client) == b"".join(fragment("e", *place) for place in places)
