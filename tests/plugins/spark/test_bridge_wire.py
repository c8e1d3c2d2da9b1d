"""What readers of Spark and the gateway say to each other, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_spark.bridge_wire import (
    FRAMES,
    Event,
    Events,
    Over,
    Read,
    Reading,
    Refused,
    Take,
    Taken,
    events,
    packed,
)
from kiwi_spark.frames import MAX_MESSAGE, FrameReader, Message, WireError
from kiwi_spark.wire import Hello

MESSAGES: list[Message] = [
    Hello(version=1, token="t", role="bridge"),
    Read(source="s", start="latest"),
    Read(source="s", start=7, until={"0": 1}, epoch="e", strict=True),
    Read(source="s", start={"batch": 1, "row": 0}),
    Reading(epoch="e", positions={"0": 1}, end={"0": 9}),
    Refused(code="positions", message="gone"),
    Take(events=5),
    Taken(events=0, positions={"0": 1}, lost={"0": (1, 2)}, count=None, end=True),
    Events(data=b"\x00\xff"),
    Over(reason="ended", message="over"),
]

MAYBE = st.none() | st.binary(max_size=40)
EVENTS = st.lists(
    st.tuples(MAYBE, MAYBE, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(-1, 2**62))
)


@given(st.integers(1, 50))
def test_messages_come_out_as_they_went_in_however_they_are_cut(step: int) -> None:
    data = b"".join(map(FRAMES.encode, MESSAGES))
    reader = FrameReader(FRAMES)
    found: list[Message] = []
    for at in range(0, len(data), step):
        found += reader.feed(data[at : at + step])
    assert found == MESSAGES


def written(rows: list[Event]) -> list[bytes]:
    keys, values, partitions, offsets, stamps = ([row[i] for row in rows] for i in range(5))
    return packed(keys, values, partitions, offsets, stamps)  # type: ignore[arg-type]


@given(EVENTS)
def test_events_come_out_as_they_went_in(rows: list[Event]) -> None:
    assert list(events(b"".join(written(rows)))) == rows


@given(EVENTS.filter(bool), st.integers(1, 24))
def test_events_that_end_within_one_are_an_error(rows: list[Event], cut: int) -> None:
    found = written(rows)
    with pytest.raises(WireError):
        list(events(b"".join(found)[: -min(cut, len(found[-1]) - 1)]))


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x00\x01",
        (MAX_MESSAGE + 1).to_bytes(4, "big") + b"\x01",
        b"\x00\x00\x00\x01\x63",
        b"\x00\x00\x00\x03\x02{}",
        b"\x00\x00\x00\x03\x02\xff\xff",
    ],
)
def test_what_is_no_message_is_an_error(data: bytes) -> None:
    with pytest.raises(WireError):
        FrameReader(FRAMES).feed(data)


def test_a_frame_that_is_too_large_is_not_sent() -> None:
    with pytest.raises(WireError):
        FRAMES.encode(Events(data=bytes(MAX_MESSAGE)))
