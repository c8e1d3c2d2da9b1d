"""Batches as queries see them: what is decoded, when, and how long it is kept."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TypeVar

import pytest

from kiwi_gw.model import AS_JSON, Batch, Decode, Steps, TimeSlice, at_once
from kiwi_gw.query import decoded_batch
from kiwi_gw.query.decoded_batch import decoded
from kiwi_gw.query.values import UNDECODABLE
from kiwi_gw.runtime.garbage import set_thresholds
from tests.processor import seconds, slowness

T = TypeVar("T")


def batch(*values: bytes | None, cost: int = 1, **columns: list[object]) -> Batch:
    places = list(range(len(values)))
    return Batch({0: 0}, [0] * len(values), places, {"value": list(values), **columns}, cost)


def test_the_roots() -> None:
    keys: list[object] = [b"k", None, b"\xff"]
    seen = decoded(
        batch(b'{"a":1}', None, b"no", key=keys, timestamp=[5, -1, 7], headers=[[("h", b"x")], [], []]),
        AS_JSON,
    )
    assert list(seen.column("value")) == [{"a": 1}, None, UNDECODABLE]
    assert list(seen.column("key")) == ["k", None, UNDECODABLE]
    assert list(seen.column("timestamp")) == [5, None, 7]
    assert list(seen.column("headers")) == [{"h": "x"}, {}, {}]
    assert list(seen.column("partition")) == [0, 0, 0]
    assert list(seen.column("offset")) == [0, 1, 2]
    assert list(seen.column("key_size")) == [1, 0, 1]
    assert list(seen.column("value_size")) == [7, 0, 2]
    with pytest.raises(KeyError):
        seen.column("nothing")


def test_what_a_source_does_not_have() -> None:
    counter = Batch({0: 3}, (0,), (3,), {"count": (7,)}, cost=1)
    seen = decoded(counter, AS_JSON)
    assert list(seen.column("value")) == [{"count": 7}]
    assert [list(seen.column(root)) for root in ("key", "timestamp", "headers")] == [[None]] * 3
    assert [list(seen.column(root)) for root in ("key_size", "value_size")] == [[0]] * 2
    assert list(decoded(batch(None, None, key=["é", 7]), AS_JSON).column("key_size")) == [2, 0]


def test_a_batch_has_one_view_for_each_way_to_decode_it() -> None:
    one = batch(b"1")
    assert decoded(one, AS_JSON) is decoded(one, Decode())
    assert decoded(one, AS_JSON) is not decoded(one, Decode("string"))
    assert list(decoded(one, Decode("string")).column("value")) == ["1"]
    assert decoded(one, AS_JSON).column("value") is decoded(one, AS_JSON).column("value")


def test_a_large_batch_is_decoded_in_turns_and_once_for_all() -> None:
    seen = decoded(batch(*[b"[" + b" " * 5_000 + b"%d]" % n for n in range(20)], key=[b"k"] * 20), AS_JSON)
    over = TimeSlice(until=0.0)
    one, other = seen.decoded(("value", "key"), over), seen.decoded(("value",), over)
    turns = 0
    while next(one, "done") != "done":
        turns += 1
        next(other, None)
        assert "value" in seen._columns or 0 < len(seen._decoded["value"]) <= 8 * turns
    assert turns == 2, "four events at a time, by one and by the other"
    assert seen.column("value") == [[n] for n in range(20)]
    assert seen.column("key") == ["k"] * 20
    assert list(seen.decoded(("value", "key"), over)) == []


@pytest.fixture
def collected_as_in_the_gateway() -> Iterator[None]:
    usual = gc.get_threshold()
    set_thresholds()
    yield
    gc.set_threshold(*usual)


@pytest.mark.cost
@pytest.mark.usefixtures("collected_as_in_the_gateway")
@pytest.mark.parametrize("dear", [b"[" * 50 + b"]" * 50, b'{"a":{}}', b'{"":0}', b"[]", b'""', b"1e5"])
def test_no_step_of_decoding_takes_longer_than_a_turn(dear: bytes) -> None:
    event = b"[" + b",".join([dear] * (8_192 // (len(dear) + 1))) + b"]"

    def second_longest() -> float:  # a full collection may be in any of them
        steps = decoded(batch(*[bytes(bytearray(event)) for _ in range(32)]), AS_JSON).decoded(
            ("value",), TimeSlice(until=0.0)
        )
        said: list[str | None] = [""]
        taken = []
        while said[-1] != "done":
            taken.append(seconds(lambda: said.append(next(steps, "done"))))
        return sorted(taken)[-2]

    assert min(second_longest() for _ in range(3)) / slowness() < 0.005


def test_what_is_derived_is_made_once() -> None:
    seen, calls = decoded(batch(b"1"), AS_JSON), []

    def make() -> int:
        calls.append(1)
        return len(calls)

    assert [seen.memo("a", make), seen.memo("a", make), seen.memo("b", make)] == [1, 1, 2]

    def fail() -> int:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        seen.memo("c", fail)
    assert seen.memo("c", make) == 3


def test_only_so_many_are_warm() -> None:
    first = batch(b"1")
    kept = decoded(first, AS_JSON)
    for _ in range(decoded_batch.MAX_BATCHES - 1):
        decoded(batch(b"2"), AS_JSON)
    assert decoded(first, AS_JSON) is kept  # and is the newest again
    for _ in range(decoded_batch.MAX_BATCHES):
        decoded(batch(b"2"), AS_JSON)
    assert decoded(first, AS_JSON) is not kept


def test_large_batches_leave_room_for_fewer() -> None:
    first, second = (batch(b"1", cost=decoded_batch.MOST_BYTES - 10) for _ in range(2))
    kept = decoded(first, AS_JSON)
    decoded(second, AS_JSON)
    assert decoded(first, AS_JSON) is not kept
    huge = batch(b"1", cost=decoded_batch.MOST_BYTES * 2)
    assert decoded(huge, AS_JSON) is decoded(huge, AS_JSON)


def test_what_queries_made_is_forgotten_before_it_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded_batch, "MAX_RESULT_BYTES", 10_000)
    one, other = decoded(batch(b"1"), AS_JSON), decoded(batch(b"2"), AS_JSON)
    before = decoded_batch._query_results.bytes
    for number in range(50):
        steps = one.query_result(number, lambda number=number: made(number), lambda _: 3_000)  # type: ignore[misc]
        assert at_once(steps) == number
        assert at_once(other.query_result(0, lambda: made("kept"), lambda _: 100)) == "kept"
        assert decoded_batch._query_results.bytes <= max(before, 10_000)
    assert at_once(other.query_result(0, lambda: pytest.fail("made again"), lambda _: 100)) == "kept"
    assert at_once(one.query_result(0, lambda: made("again"), lambda _: 3_000)) == "again"
    decoded_batch._query_results.forget(one)
    decoded_batch._query_results.forget(other)
    decoded_batch._query_results.forget(one)
    assert not {seen for seen, _ in decoded_batch._query_results._entries} & {one, other}
    assert not decoded_batch._query_results._keys.keys() & {one, other}


def made(what: T) -> Steps[T]:
    return what
    yield


def test_what_queries_made_goes_with_the_view() -> None:
    seen = decoded(batch(b"1"), AS_JSON)
    assert at_once(seen.query_result("q", lambda: made(1), lambda _: 8)) == 1
    assert at_once(seen.query_result("q", lambda: made(2), lambda _: 8)) == 1
    for _ in range(decoded_batch.MAX_BATCHES):
        decoded(batch(b"1"), AS_JSON)
    assert at_once(seen.query_result("q", lambda: made(2), lambda _: 8)) == 2
    assert seen not in decoded_batch._query_results._keys, "nothing is kept of one that is not warm"
