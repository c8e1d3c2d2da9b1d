"""The window against a plain list of batches."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.core.prepared import count, cut, furthest_stop, nearest_stop
from kiwi_gw.core.window import ENTRY_OVERHEAD, MemoryBudget, Window, WindowEntry, tell_parked
from kiwi_gw.model import Batch, Encoded, Gap, Positions
from tests.effort import examples


def batch(first: int, size: int, cost: int = 0, gap: Gap | None = None) -> Batch:
    return Batch({0: first}, [0] * size, range(first, first + size), {}, cost, gap)


def forget(entry: WindowEntry) -> None:
    """Ignore what is evicted."""


class Reader:
    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.at: Positions | None = None

    def evicted(self, entry: WindowEntry, positions: Callable[[int], Positions]) -> None:
        self.at = positions(self.cursor - entry.base)


@settings(deadline=None, max_examples=examples(150))
@given(
    sizes=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 500)), max_size=200),
    max_events=st.integers(1, 20),
    max_bytes=st.integers(1, 8 * ENTRY_OVERHEAD),
    memory=st.integers(1, 12 * ENTRY_OVERHEAD),
)
def test_window_holds_the_newest_batches_within_its_bounds(
    sizes: list[tuple[int, int]], max_events: int, max_bytes: int, memory: int
) -> None:
    budget = MemoryBudget(memory)
    window = Window(max_events, max_bytes, budget, {0: 0})
    gone: list[WindowEntry] = []
    model: list[tuple[int, int, int]] = []  # base, end, cost
    head = 0
    for size, cost in sizes:
        entry = window.append(batch(head, size, cost), gone.append)
        model.append((head, head + size, cost + ENTRY_OVERHEAD))
        head += size
        while len(model) > 1 and (
            head - model[0][0] > max_events or sum(cost for _, _, cost in model) > min(max_bytes, memory)
        ):
            base, end, _ = model.pop(0)
            assert (gone[0].base, gone[0].end) == (base, end)
            assert gone.pop(0).next is None
        assert not gone
        assert window.newest is entry
        assert (window.base, window.head, len(window)) == (model[0][0], head, head - model[0][0])
        assert window.bytes == budget.used == sum(cost for _, _, cost in model)
        assert window.positions == {0: head}
        for number in range(window.base, head):
            found = window.find(number)
            assert found is not None
            assert found.base <= number < found.end
        assert window.find(head) is None
        chain, at = [], window._entries[window._first]
        while at is not None:
            chain.append((at.base, at.end))
            at = at.next  # type: ignore[assignment]
        assert chain == [(base, end) for base, end, _ in model]
        assert len(window._entries) <= 2 * len(model) + 130
    window.clear(gone.append)
    assert (window.bytes, budget.used, len(window), window.head) == (0, 0, 0, head)
    assert window.positions == {0: head}
    assert window.newest is None


class Shared:
    """Share memory with other windows, as its own test of which has to give."""

    def __init__(self, others: list[Shared], budget: MemoryBudget, max_events: int) -> None:
        self.window = Window(max_events, 1 << 30, budget, {0: 0})
        self.others = others
        self.given = 0

    @property
    def spare(self) -> int:
        newest = self.window.newest
        return self.window.bytes - newest.cost if newest is not None else 0

    def append(self, size: int, cost: int) -> None:
        self.window.append(batch(self.window.head, size, cost), self.evicted)

    def evicted(self, entry: WindowEntry) -> None:
        if self.window.head - entry.base > self.window.max_events:
            return  # for its own bound
        self.given += 1
        most = max(other.spare for other in self.others if other is not self)
        assert 2 * (self.spare + entry.cost) > most, "another one had twice as much to give"


@settings(deadline=None, max_examples=examples(150))
@given(
    memory=st.integers(1, 40 * ENTRY_OVERHEAD),
    encodings=st.integers(0, 20 * ENTRY_OVERHEAD),
    bounds=st.lists(st.integers(1, 200), min_size=2, max_size=6),
    steps=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 3000), st.integers(0, 20)),
        max_size=200,
    ),
)
def test_windows_share_a_budget_and_the_one_with_most_gives(
    memory: int, encodings: int, bounds: list[int], steps: list[tuple[int, int, int, int]]
) -> None:
    budget = MemoryBudget(memory)
    share = memory - budget.reserve(encodings)
    assert share >= memory - encodings
    assert share >= 0.75 * memory
    shared: list[Shared] = []
    shared += [Shared(shared, budget, bound) for bound in bounds]
    for which, size, cost, action in steps:
        here = shared[which % len(shared)]
        if action == 0:
            here.window.clear(forget)
        else:
            here.append(size, cost)
        held = [item.window.bytes for item in shared]
        assert budget.used == sum(held)
        assert budget.used <= share or not any(item.spare for item in shared)
    for item in shared:
        item.window.clear(forget)
    assert budget.used == 0
    assert not budget._givers


def test_a_busy_window_keeps_its_events_while_idle_ones_have_some_to_give() -> None:
    number, entries = 30, 100
    budget = MemoryBudget(number * entries * ENTRY_OVERHEAD)
    shared: list[Shared] = []
    shared += [Shared(shared, budget, 10 * entries) for _ in range(number)]
    for item in shared:
        for _ in range(entries):
            item.append(1, 0)
    busy = Shared(shared, budget, 20)
    shared.append(busy)
    for _ in range(10 * number * entries):
        busy.append(1, 0)
    assert busy.given == 0
    assert len(busy.window) == 20
    assert sum(item.given for item in shared) == 20, "what it needed and no more"
    busy.append(1, budget.limit)  # takes what all others have
    assert [len(item.window) for item in shared] == [1] * (number + 1)


def test_a_repetition_is_refused_and_changes_nothing() -> None:
    budget = MemoryBudget(1 << 30)
    window = Window(100, 1 << 30, budget, {0: 10, 1: 5})
    window.append(Batch({0: 10, 1: 5}, [0, 1], [10, 5], {}, 7), forget)
    before = (window.head, window.bytes, budget.used, dict(window.positions), window.lost)
    with pytest.raises(ValueError, match="begins at offset 10 of partition 0, but everything before 11"):
        window.append(Batch({0: 10, 1: 6}, [0], [10], {}, 7, Gap({0: (10, 10)}, 1)), forget)
    assert (window.head, window.bytes, budget.used, dict(window.positions), window.lost) == before
    window.append(Batch({0: 14, 1: 6}, [0], [14], {}, 7), forget)  # a hole is legal
    assert window.positions == {0: 15, 1: 6}


def test_eviction_tells_whoever_is_parked() -> None:
    window = Window(2, 1 << 30, MemoryBudget(1 << 30), {0: 0})
    entry = window.append(batch(0, 2), forget)
    inside, outside = Reader(1), Reader(1)
    entry.parked[inside] = None

    window.append(batch(2, 1), tell_parked)
    assert inside.at == {0: 1}
    assert outside.at is None


def test_find_steps_over_entries_without_events() -> None:
    window = Window(100, 1 << 30, MemoryBudget(1 << 30), {0: 0})
    window.append(batch(0, 2), forget)
    window.append(batch(2, 0, gap=Gap({}, 3)), forget)
    window.append(batch(2, 0, gap=Gap({}, None)), forget)
    last = window.append(batch(2, 2), forget)
    assert window.find(2) is last
    assert (last.lost, last.unknown) == (window.lost, window.unknown) == (3, 1)


fragments = st.lists(st.binary(max_size=6), min_size=1, max_size=12)


@settings(deadline=None)
@given(parts=fragments, data=st.data())
def test_cut_finds_the_frame_that_was_cut(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    ends = [len(b"".join(parts[: i + 1])) for i in range(len(parts))]
    position = data.draw(st.integers(0, len(whole)))
    index, tail = cut(Encoded(whole, ends), position)
    assert whole[:position] + tail == b"".join(parts[:index])
    assert all(not part for part in parts[index - 1 : index] if not tail and not position)
    # Whatever follows begins a new frame, and an event none of whose bytes was taken is not counted.
    begun = [i for i, end in enumerate(ends) if parts[i] and end - len(parts[i]) < position]
    assert not any(parts[i] for i in range(index) if i not in begun)


@settings(deadline=None)
@given(flags=st.lists(st.booleans(), max_size=20), data=st.data())
def test_reach_and_count_of_a_tally(flags: list[bool], data: st.DataObject) -> None:
    prefix_counts = [sum(flags[:i]) for i in range(len(flags) + 1)]
    first = data.draw(st.integers(0, len(flags)))
    allowance = data.draw(st.integers(0, 8))
    furthest = max(i for i in range(first, len(flags) + 1) if sum(flags[first:i]) <= allowance)
    assert furthest_stop(prefix_counts, first, allowance) == furthest
    assert count(prefix_counts, first, furthest) == sum(flags[first:furthest]) <= allowance
    assert furthest_stop(None, first, allowance) == first + allowance
    least = next(
        (i for i in range(first, len(flags) + 1) if sum(flags[first:i]) == allowance), len(flags) + 1
    )
    assert nearest_stop(prefix_counts, first, allowance) == least
    assert nearest_stop(None, first, allowance) == first + allowance
    assert count(None, first, furthest) == furthest - first
