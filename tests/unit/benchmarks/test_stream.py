"""Readers of one reference, against the plain way: all frames of a client parsed one by one."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.stream import Reader, Reference
from kiwi_gw.dialect_api.frames import PING, close_frame, header, text_frame


def event(number: int, filled: int = 0) -> bytes:
    data = {"partition": 0, "offset": number, "value": "x" * filled}
    return text_frame(json.dumps({"type": "RESULT", "data": data}, separators=(",", ":")).encode())


def lag(count: int) -> bytes:
    return text_frame(b'{"type":"NOTICE","data":{"type":"LAG","count":%d}}' % count)


def request_ok(n: int) -> bytes:
    return text_frame(b'{"type":"REQUEST_OK","data":{"n":%d}}' % n)


def feed(reader: Reader, data: bytes, size: int | None = None) -> None:
    step = size or len(data) or 1
    for at in range(0, len(data), step):
        reader.feed(memoryview(data)[at : at + step])


class TestReaders:
    def test_the_first_writes_the_reference_and_others_follow_it(self) -> None:
        reference = Reference()
        first, second = Reader(reference), Reader(reference)
        stream = b"".join(map(event, range(10)))
        feed(first, stream)
        assert bytes(reference.data) == stream
        assert len(reference.ends) == 10
        feed(second, stream, 7)
        assert (first.events, second.events) == (10, 10)
        assert second.segments == []

    def test_an_event_counts_when_it_is_whole(self) -> None:
        reference = Reference()
        first, second = Reader(reference), Reader(reference)
        stream = event(0) + event(1)
        feed(first, stream)
        feed(second, stream[:-1])
        assert second.events == 1
        feed(second, stream[-1:])
        assert second.events == 2

    def test_replies_and_notices_of_one_client_are_set_aside(self) -> None:
        reference = Reference()
        first, second = Reader(reference), Reader(reference)
        feed(first, event(0) + request_ok(5) + event(1) + event(2))
        feed(second, event(0) + event(1) + lag(7) + request_ok(6) + event(2) + lag(8))
        assert bytes(reference.data) == event(0) + event(1) + event(2)
        assert first.control == {"REQUEST_OK": 1}
        assert second.control == {"NOTICE LAG": 2, "REQUEST_OK": 1}
        assert second.events == 3

    def test_pings_are_answered_and_a_close_is_seen(self) -> None:
        payloads: list[bytes] = []
        reader = Reader(Reference(), payloads.append)
        feed(reader, event(0) + header(2, PING) + b"hi" + event(1) + close_frame(1001, "bye"), 3)
        assert payloads == [b"hi"]
        assert reader.closed
        assert reader.control == {"PING": 1, "CLOSE 1001": 1}
        assert reader.events == 2

    @pytest.mark.parametrize("size", [None, 1, 50])
    def test_a_missing_event_is_seen(self, size: int | None) -> None:
        reference = Reference()
        first, second = Reader(reference), Reader(reference)
        feed(first, b"".join(map(event, range(6))))
        feed(second, event(0) + event(1) + event(3) + event(4) + event(5), size)
        assert second.all_segments == [(0, 2), (3, 6)]
        assert second.events == 5

    def test_a_doubled_event_at_the_head_is_left_to_the_check_of_the_reference(self) -> None:
        reference = Reference()
        first, second = Reader(reference), Reader(reference)
        feed(first, event(0) + event(1))
        feed(second, event(0) + event(1) + event(1))
        assert bytes(reference.data) == event(0) + event(1) + event(1)
        assert (first.events, second.events) == (2, 3)
        assert second.segments == []

    def test_other_bytes_inside_an_event_are_seen(self) -> None:
        reference = Reference()
        first, second = Reader(reference), Reader(reference)
        right = event(1, filled=300)
        feed(first, event(0) + right)
        feed(second, event(0) + right.replace(b"xx", b"xy", 1))
        assert second.all_segments == [(0, 1), (2, 3)]  # it is in the reference now, where `check` finds it


def loss(dropped: int, ranges: dict[str, list[int]]) -> bytes:
    data = {
        "type": "LAG",
        "sourceId": "s",
        "count": dropped,
        "behind": 0,
        "dropped": dropped,
        "ranges": ranges,
    }
    return text_frame(json.dumps({"type": "NOTICE", "data": data}, separators=(",", ":")).encode())


class TestLosses:
    def both(self, second: bytes, size: int | None = None) -> Reader:
        reference = Reference()
        feed(Reader(reference), b"".join(map(event, range(10))))
        reader = Reader(reference)
        feed(reader, second, size)
        return reader

    @pytest.mark.parametrize("size", [None, 1, 50])
    def test_what_a_notice_gave_up_is_not_missed(self, size: int | None) -> None:
        rest = b"".join(map(event, range(5, 10)))
        reader = self.both(event(0) + event(1) + loss(3, {"0": [2, 4]}) + rest, size)
        assert reader.segments == []
        assert (reader.events, reader.given_up) == (10, 3)
        assert reader.gaps == [(2, 5, {"0": [2, 4]})]

    @pytest.mark.parametrize("said", [2, 4])
    def test_a_notice_that_is_one_event_off_is_seen(self, said: int) -> None:
        rest = b"".join(map(event, range(5, 10)))
        reader = self.both(event(0) + event(1) + loss(said, {}) + rest)
        assert len(reader.all_segments) == 2

    def test_more_than_there_is_cannot_be_given_up(self) -> None:
        assert self.both(event(0) + loss(50, {})).wrong

    def test_a_notice_of_no_loss_changes_nothing(self) -> None:
        reader = self.both(event(0) + lag(7) + event(1))
        assert (reader.events, reader.given_up, reader.gaps) == (2, 0, [])


class TestLateReaders:
    def test_it_follows_from_its_first_event_on(self) -> None:
        reference = Reference()
        feed(Reader(reference), b"".join(map(event, range(10))))
        reader = Reader(reference, late=True)
        feed(reader, lag(1) + event(7) + event(8), 9)
        assert (reader.first, reader.events) == (7, 9)
        assert reader.control == {"NOTICE LAG": 1}
        feed(reader, event(9) + event(10))
        assert reader.events == 11
        assert len(reference.ends) == 11

    def test_it_may_be_ahead_of_all_others(self) -> None:
        reference = Reference()
        first, reader = Reader(reference), Reader(reference, late=True)
        feed(reader, event(3) + event(4))
        assert (reader.first, reader.events) == (None, 0)
        feed(first, b"".join(map(event, range(5))))
        reader.join()
        assert (reader.first, reader.events, reader.segments) == (3, 5, [])

    def test_it_misses_nothing_behind_its_first_event(self) -> None:
        reference = Reference()
        feed(Reader(reference), b"".join(map(event, range(10))))
        reader = Reader(reference, late=True)
        feed(reader, event(4) + event(6))
        assert reader.all_segments == [(4, 5), (6, 7)]


class TestOrdersOfTheirOwn:
    @pytest.mark.parametrize("size", [None, 1, 50])
    def test_a_reader_goes_on_where_the_reference_has_its_event(self, size: int | None) -> None:
        reference = Reference()
        feed(Reader(reference), b"".join(map(event, range(6))))
        reader = Reader(reference)
        feed(reader, b"".join(map(event, (3, 4, 0, 1, 2, 5))), size)
        assert reader.all_segments == [(0, 0), (3, 5), (0, 3), (5, 6)]
        assert (reader.events, len(reference.ends)) == (6, 6)

    def test_it_adds_what_nobody_has_read(self) -> None:
        reference = Reference()
        first, second = Reader(reference), Reader(reference)
        feed(first, event(0) + event(1))
        feed(second, b"".join(map(event, (7, 8, 0, 9))))
        feed(first, b"".join(map(event, (2, 7, 8, 9))))
        feed(second, event(1) + event(2))
        assert (first.events, second.events, len(reference.ends)) == (6, 6, 6)
        assert bytes(reference.data) == b"".join(map(event, (0, 1, 7, 8, 9, 2)))
        assert first.all_segments == [(0, 2), (5, 6), (2, 5)]


@given(st.lists(st.permutations(range(8)), min_size=1, max_size=4), st.integers(1, 300))
def test_readers_with_any_orders_have_what_they_have_read(orders: list[list[int]], size: int) -> None:
    reference = Reference()
    readers = [Reader(reference) for _ in orders]
    texts = [b"".join(map(event, numbers)) for numbers in orders]
    for at in range(0, len(texts[0]), size):
        for reader, text in zip(readers, texts, strict=True):
            feed(reader, text[at : at + size])
    for reader, text in zip(readers, texts, strict=True):
        assert reader.events == 8
        begins = [0, *reference.ends]
        have = b"".join(reference.data[begins[a] : begins[b]] for a, b in reader.all_segments)
        assert have == text
    assert len(reference.ends) == 8


frames = st.lists(
    st.one_of(st.none(), st.builds(lag, st.integers(0, 999)), st.builds(request_ok, st.integers(1, 9))),
    max_size=12,
)


@given(
    streams=st.lists(frames, min_size=1, max_size=3),
    sizes=st.lists(st.integers(0, 70_000), max_size=12),
    schedule=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 400)), max_size=60),
)
def test_like_a_parser_for_any_chunks_and_any_order(
    streams: list[list[bytes | None]], sizes: list[int], schedule: list[tuple[int, int]]
) -> None:
    """None stands for the next event; each client has its own replies between them."""
    most = max(stream.count(None) for stream in streams)
    events = [event(n, filled) for n, filled in enumerate((sizes + [3] * most)[:most])]
    reference = Reference()
    readers = [Reader(reference) for _ in streams]
    texts: list[bytes] = []
    for stream in streams:
        left = iter(events)
        texts.append(b"".join(next(left) if frame is None else frame for frame in stream))
    given_out = [0] * len(streams)
    for index, size in [*schedule, *((index, len(text)) for index, text in enumerate(texts))]:
        if index < len(streams):
            at = given_out[index]
            chunk = texts[index][at : at + size]
            feed(readers[index], chunk)
            given_out[index] = at + len(chunk)
    assert bytes(reference.data) == b"".join(events)
    for stream, reader in zip(streams, readers, strict=True):
        assert reader.segments == []
        assert reader.events == stream.count(None)
        replies = [frame for frame in stream if frame is not None]
        assert reader.control == Counter(
            "NOTICE LAG" if b"NOTICE" in one else "REQUEST_OK" for one in replies
        )
