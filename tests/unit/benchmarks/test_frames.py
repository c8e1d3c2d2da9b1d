from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import frames
from kiwi_gw.dialect_api.frames import text_frame


@pytest.mark.parametrize("length", [0, 125, 126, 65_535, 65_536])
def test_the_bounds_of_frames_of_all_lengths(length: int) -> None:
    payload = b"x" * length
    data = b"??" + text_frame(payload) + b"??"
    found = frames.bounds(data, 2)
    assert found is not None
    assert data[slice(*found)] == payload
    assert found[1] == len(data) - 2


@pytest.mark.parametrize("length", [3, 200, 70_000])
def test_a_frame_that_is_not_complete(length: int) -> None:
    frame = text_frame(b"x" * length)
    assert all(frames.bounds(frame[:have], 0) is None for have in {0, 1, 2, len(frame) - 1})


@given(st.lists(st.integers(0, 300), max_size=30), st.integers(1, 2_000))
def test_slices_are_whole_frames_and_as_large_as_they_may_be(lengths: list[int], most: int) -> None:
    made = [text_frame(b"x" * length) for length in lengths]
    data = b"".join(made)
    ends = frames.cut(data, most)
    assert (ends[-1] if ends else 0) == len(data)
    boundaries = {sum(map(len, made[:count])) for count in range(len(made) + 1)}
    assert boundaries.issuperset(ends)
    begin = 0
    for end in ends:
        first = frames.bounds(data, begin)
        assert first is not None
        assert end - begin <= most or end == first[1]  # a frame alone may be larger
        after = frames.bounds(data, end)
        assert after is None or after[1] - begin > most
        begin = end


def test_a_cut_frame_is_no_slice() -> None:
    with pytest.raises(ValueError, match="whole frame"):
        frames.cut(text_frame(b"abc")[:-1], 100)


def test_a_command_is_a_masked_text_frame() -> None:
    frame = frames.masked({"type": "SUBSCRIBE"})
    assert frame == b"\x81\x94\0\0\0\0" + b'{"type":"SUBSCRIBE"}'


def joined(events: list[bytes], number: int) -> bytes:
    return text_frame(b'{"content":[' + b",".join(events) + b'],"correlationId":%d}' % number)


@given(
    st.lists(st.lists(st.text(max_size=150), min_size=1, max_size=5), max_size=5),
    st.integers(1, 400),
    st.data(),
)
def test_joined_events_come_apart_however_they_are_received(
    texts: list[list[str]], size: int, data: st.DataObject
) -> None:
    events = [[json.dumps({"key": text, "value": '},{"key":"'}).encode() for text in each] for each in texts]
    reply = text_frame(b'{"type":"SUCCESS","correlationId":1}')
    stream, wanted = b"", b""
    for each in events:
        stream += joined(each, data.draw(st.integers(0, 2**64))) + reply
        wanted += b"".join(map(text_frame, each)) + reply
    parted = frames.Parted(b'{"content":[', b'],"correlationId":')
    view = memoryview(stream)
    assert b"".join(parted.feed(view[at : at + size]) for at in range(0, len(stream), size)) == wanted
