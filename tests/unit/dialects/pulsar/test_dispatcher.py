"""The dispatcher of a subscription against a simple model: nothing is lost, nothing acknowledged comes again,
nothing is with two consumers, a key stays with its consumer and in its order."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kiwi_gw.dialects.pulsar.dispatcher import MOST_MESSAGES, Dispatcher, Message, SubscriptionType
from tests.effort import examples

PARTITIONS = 3
ACK_SECONDS = 10.0
names = st.sampled_from(["a", "b", "c"])
partitions = st.integers(0, PARTITIONS - 1)


class Model(RuleBasedStateMachine):
    """log: what there is, by partition: offset and key. acknowledged: what Kafka would know of if everything
    were committed. with_: who has what, since when."""

    kind = SubscriptionType.SHARED

    def __init__(self) -> None:
        super().__init__()
        self.dispatcher = Dispatcher(self.kind)
        self.log: dict[int, dict[int, bytes | None]] = {p: {} for p in range(PARTITIONS)}
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.acknowledged: set[tuple[int, int]] = set()
        self.with_: dict[tuple[int, int], tuple[str, float]] = {}
        self.given: dict[tuple[int, int], int] = {}
        self.read: dict[int, int] = {}
        self.now = 0.0

    @initialize()
    def begin(self) -> None:
        for partition in range(PARTITIONS):
            self.assign(partition)

    def assign(self, partition: int) -> None:
        """What comes of a commit: the position, and what is noted beside it."""
        offset, text = self.dispatcher.commits([partition]).get(partition, (0, ""))
        self.dispatcher.assign(partition, offset, text)
        self.read[partition] = offset
        for place in [place for place in self.given if place[0] == partition]:
            del self.given[place]

    @rule(
        partition=partitions,
        steps=st.lists(st.tuples(st.integers(1, 2), st.sampled_from([b"x", b"y", b"z", None])), max_size=6),
    )
    def produce(self, partition: int, steps: list[tuple[int, bytes | None]]) -> None:
        for step, key in steps:
            # A key has one partition, as a producer would have it.
            own = None if key is None else key + b"%d" % partition
            offset = self.ends[partition] + step - 1
            self.log[partition][offset] = own
            self.ends[partition] = offset + 1

    @rule(partition=partitions, most=st.integers(1, 5))
    def read_on(self, partition: int, most: int) -> None:
        if partition not in self.dispatcher.cursors:
            return
        there = [(o, k) for o, k in self.log[partition].items() if o >= self.read[partition]][:most]
        if there:
            offsets, keys = zip(*there, strict=True)
            self.dispatcher.take(partition, offsets, keys, [b"p"] * len(there))
            self.read[partition] = offsets[-1] + 1
        else:
            self.dispatcher.read_up_to(partition, self.ends[partition])
            self.read[partition] = self.ends[partition]

    @rule(name=names, forever=st.booleans())
    def come(self, name: str, forever: bool) -> None:
        if name not in self.dispatcher.consumers:
            self.dispatcher.add(name, inf if forever else ACK_SECONDS)

    @rule(name=names)
    def go(self, name: str) -> None:
        if name in self.dispatcher.consumers:
            self.dispatcher.remove(name)
            self.with_ = {place: each for place, each in self.with_.items() if each[0] != name}

    @rule(name=names, most=st.integers(1, 4))
    def fetch(self, name: str, most: int) -> None:
        dispatcher = self.dispatcher
        if name not in dispatcher.consumers:
            return
        found = dispatcher.fetch(name, most, 1_000, self.now)
        assert len(found) <= most
        if not self.kind.shares and next(iter(dispatcher.consumers)) != name:
            assert not found
            return
        for message in found:
            self.check_given(name, message)
        if len(found) < most:
            waiting = self.waiting()
            if self.kind is SubscriptionType.KEY_SHARED:
                waiting = {p for p in waiting if self.holder(self.key(p)) in (None, name)}
            assert not waiting, "nothing that it may have is kept from it"

    def check_given(self, name: str, message: Message) -> None:
        place = message.place
        assert place not in self.acknowledged
        assert place not in self.with_, "it is with somebody already"
        key = self.key(place)
        if self.kind is SubscriptionType.KEY_SHARED and key is not None:
            assert self.holder(key) in (None, name), "its key is somebody else's"
            assert not [p for p in self.waiting() if self.key(p) == key and p < place], (
                "in the order of its key"
            )
        self.given[place] = self.given.get(place, 0) + 1
        assert message.deliveries == self.given[place]
        self.with_[place] = name, self.now

    def key(self, place: tuple[int, int]) -> bytes | None:
        return self.log[place[0]][place[1]]

    def holder(self, key: bytes | None) -> str | None:
        held = {name for place, (name, _) in self.with_.items() if key is not None and self.key(place) == key}
        assert len(held) <= 1
        return next(iter(held), None)

    def waiting(self) -> set[tuple[int, int]]:
        """What was read, and is neither acknowledged nor with anybody."""
        return {
            (p, o)
            for p in self.dispatcher.cursors
            for o in self.log[p]
            if o < self.read[p] and (p, o) not in self.acknowledged and (p, o) not in self.with_
        }

    def some(self, data: st.DataObject) -> Sequence[tuple[int, int]]:
        there = sorted((p, o) for p in range(PARTITIONS) for o in range(self.ends[p] + 1))
        return data.draw(st.lists(st.sampled_from(there), max_size=6))

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        places = self.some(data)
        done = self.dispatcher.acknowledge(places)
        self.check_acknowledged(places, places, done.moved, done.unread)

    @precondition(lambda self: not self.kind.shares)
    @rule(data=st.data())
    def acknowledge_up_to(self, data: st.DataObject) -> None:
        places = self.some(data)
        done = self.dispatcher.acknowledge_up_to(places)
        every = [(p, o) for p, last in places if last < self.read.get(p, 0) for o in range(last + 1)]
        self.check_acknowledged(places, every, done.moved, done.unread)

    def check_acknowledged(
        self,
        asked: Sequence[tuple[int, int]],
        every: Sequence[tuple[int, int]],
        moved: object,
        unread: object,
    ) -> None:
        cursors = self.dispatcher.cursors
        assert moved == [place for place in asked if place[0] not in cursors]
        assert unread == [p for p in asked if p[0] in cursors and p[1] >= self.read[p[0]]]
        for place in every:
            if place[0] in cursors and place[1] < self.read[place[0]]:
                self.acknowledged.add(place)
                self.with_.pop(place, None)

    @rule(data=st.data())
    def negative(self, data: st.DataObject) -> None:
        places = self.some(data)
        self.dispatcher.negative(places)
        for place in places:
            self.with_.pop(place, None)

    @rule(seconds=st.sampled_from([1.0, 6.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.now += seconds
        late = {
            place
            for place, (name, since) in self.with_.items()
            if since + self.dispatcher.consumers[name].ack_seconds <= self.now
        }
        assert self.dispatcher.expire(self.now) is bool(late)
        for place in late:
            del self.with_[place]

    @rule(partition=partitions)
    def moves(self, partition: int) -> None:
        """To another gateway, and back with what that has found committed."""
        if partition in self.dispatcher.cursors:
            self.assign(partition)
            self.with_ = {place: each for place, each in self.with_.items() if place[0] != partition}

    @invariant()
    def it_agrees(self) -> None:
        dispatcher = self.dispatcher
        pending = {m.place: c.name for c in dispatcher.consumers.values() for m in c.pending.values()}
        assert pending == {place: name for place, (name, _) in self.with_.items()}
        assert dispatcher.messages == len(pending) + len(self.waiting())
        assert dispatcher.bytes == dispatcher.messages
        dues = [since + dispatcher.consumers[name].ack_seconds for name, since in self.with_.values()]
        assert dispatcher.due <= min(dues, default=inf)
        for partition, cursor in dispatcher.cursors.items():
            unread = [o for o in self.log[partition] if (partition, o) not in self.acknowledged]
            assert cursor.position <= min(unread, default=self.ends[partition])
            assert not [o for o in unread if cursor.has(o)]
            done = [o for o in self.log[partition] if (partition, o) in self.acknowledged]
            assert all(cursor.has(o) for o in done)


@pytest.mark.parametrize("kind", SubscriptionType)
@pytest.mark.parametrize(
    "effort", [pytest.param(30, id="few"), pytest.param(200, id="many", marks=pytest.mark.slow)]
)
def test_against_a_model(kind: SubscriptionType, effort: int) -> None:
    """Many: 200 runs of 50 steps, 10,000."""
    machine = type("M", (Model,), {"kind": kind})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples(effort), stateful_step_count=50, deadline=None)
    )


def test_what_it_holds_is_bounded_and_what_is_gone_is_let_go() -> None:
    dispatcher = Dispatcher(SubscriptionType.SHARED)
    dispatcher.assign(0, 0)
    dispatcher.add("a")
    begin = 0
    for _ in range(5):
        most, _ = dispatcher.room
        assert most == MOST_MESSAGES - dispatcher.messages
        dispatcher.take(0, range(begin, begin + most), [None] * most, [b"x" * 100] * most)
        begin += most
        assert dispatcher.room[0] == 0
        dispatcher.acknowledge([(0, offset) for offset in range(1, begin)])  # all but the first, which waits
        assert (dispatcher.messages, dispatcher.bytes) == (1, 100)
    assert dispatcher.cursors[0].ranges == [(1, begin - 1)]
    (queue,) = dispatcher._queues.values()
    assert len(queue._heap) < 100
    assert [message.place for message in dispatcher.fetch("a", 9, 9, 0)] == [(0, 0)]


def test_one_message_always_passes() -> None:
    dispatcher = Dispatcher(SubscriptionType.SHARED)
    dispatcher.assign(0, 0)
    dispatcher.add("a")
    dispatcher.take(0, range(3), [None] * 3, [b"x" * 100] * 3)
    assert len(dispatcher.fetch("a", 9, 1, 0)) == 1
    assert len(dispatcher.fetch("a", 9, 200, 0)) == 2
