"""Large batches, cut into pieces that are encoded in one go."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_gw.core.encoding import EncodingMemo, keyed_format
from kiwi_gw.core.window import MemoryBudget, WindowEntry
from kiwi_gw.dialects.kiwi.results import kiwi_wire
from kiwi_gw.model import PIECE_BYTES, PIECE_EVENTS, Batch, Gap, Interceptor, SourceInfo, batch_pieces
from kiwi_kafka.event_schema import event_schema
from tests.processor import least
from tests.unit.core.fakes import transform

TURN = 0.005


def batch(values: list[bytes | None], partitions: list[int], rest: int = 0, gap: Gap | None = None) -> Batch:
    offsets = [partitions[:index].count(partition) for index, partition in enumerate(partitions)]
    columns: dict[str, Sequence[object]] = {"value": values, "timestamp": array("q", [7]) * len(values)}
    cost = sum(len(value or b"") for value in values) + rest * len(values)
    return Batch(dict.fromkeys(partitions, 0), partitions, offsets, columns, cost, gap)


@given(
    st.lists(st.tuples(st.integers(-1, 40), st.integers(0, 3)), max_size=30),
    st.integers(1, 8),
    st.integers(1, 60),
    st.integers(0, 9),
)
def test_the_pieces_are_the_batch_and_none_is_larger_than_it_may_be(
    events: list[tuple[int, int]], most_events: int, most_bytes: int, rest: int
) -> None:
    values = [b"v" * size if size >= 0 else None for size, _ in events]
    whole = batch(values, [partition for _, partition in events], rest, Gap({9: (0, 4)}, 5))
    found = list(batch_pieces(whole, most_events, most_bytes))
    for name in ("value", "timestamp", "partition", "offset"):
        assert [each for piece in found for each in piece.column(name)] == list(whole.column(name))
    assert [piece.gap for piece in found] == [whole.gap, *[None] * (len(found) - 1)]
    assert sum(piece.cost for piece in found) == whole.cost
    here = dict(whole.starts)
    for piece in found:
        assert piece.starts == here
        here = piece.positions_at(len(piece))
        assert len(piece) <= most_events
        assert piece.cost <= most_bytes or len(piece) <= 1


def test_a_batch_that_is_not_too_large_stays_as_it_is() -> None:
    small = batch([b"v"] * 10, [0] * 10)
    assert list(batch_pieces(small)) == [small]


def test_pieces_hold_the_same_events_and_the_gap_once() -> None:
    whole = Batch(
        {0: 3, 1: 7}, [0, 1, 0, 1, 0], [3, 7, 4, 8, 9], {"v": list("abcde")}, 100, Gap({0: (1, 2)}, 2)
    )
    parts = list(batch_pieces(whole, 2))
    assert [part.starts for part in parts] == [{0: 3, 1: 7}, {0: 4, 1: 8}, {0: 5, 1: 9}]
    assert [list(part.columns["v"]) for part in parts] == [["a", "b"], ["c", "d"], ["e"]]
    assert [part.gap for part in parts] == [whole.gap, None, None]
    assert list(batch_pieces(whole, 5)) == [whole]


DEAREST = {
    "the most events": (PIECE_EVENTS, b'{"carrier":"AA","delay":-5}'),
    "the most bytes": (100, b'{"text":"' + b'\\"' * (PIECE_BYTES // 200 - 10) + b'"}'),
    "one event": (1, b'{"text":"' + b'\\"' * (PIECE_BYTES // 2 - 10) + b'"}'),
}


@pytest.mark.cost
@pytest.mark.parametrize("name", DEAREST)
@pytest.mark.parametrize("intercepted", [False, True])
def test_a_piece_is_encoded_in_less_than_a_turn(name: str, intercepted: bool) -> None:
    size, value = DEAREST[name]
    whole = batch([bytes(bytearray(value)) for _ in range(size)], [0] * size)
    whole = Batch(
        {0: 0}, whole.partitions, whole.offsets, {**whole.columns, "key": [b"key"] * size}, whole.cost
    )
    assert list(batch_pieces(whole)) == [whole]
    item = keyed_format(
        kiwi_wire(SourceInfo("s", "kafka", event_schema())),
        [transform(Interceptor(lambda record: {**record, "key": None}))] if intercepted else (),
    )
    memo = EncodingMemo(1 << 26, MemoryBudget(1 << 30))
    assert least(lambda: memo.encoded(WindowEntry(whole, 0), item), TURN) < TURN
