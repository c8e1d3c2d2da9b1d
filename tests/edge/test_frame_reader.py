"""The reader of what clients send, against wsproto where that has a verdict."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.frame_protocol import FrameProtocol, ParseFailed

from kiwi_gw.edge.frame_reader import CloseFrame, CountedFrame, FrameReader, Inbound, PingFrame
from kiwi_gw.errors import ConnectionEnd

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
KIB64 = 64 * 1024


def frame(
    payload: bytes = b"",
    opcode: int = TEXT,
    *,
    fin: bool = True,
    rsv: int = 0,
    hidden: bool = True,
    form: int | None = None,
    declared: int | None = None,
) -> bytes:
    """A client's frame. hidden: masked, with zeros. form: 7, 16 or 64 bits of length; None: the shortest."""
    length = len(payload) if declared is None else declared
    if form is None:
        form = 7 if length < 126 else 16 if length < 65_536 else 64
    second = 0x80 if hidden else 0
    if form == 7:
        head = bytes([second | length])
    elif form == 16:
        head = bytes([second | 126]) + length.to_bytes(2, "big")
    else:
        head = bytes([second | 127]) + length.to_bytes(8, "big")
    return bytes([fin << 7 | rsv << 4 | opcode]) + head + (bytes(4) if hidden else b"") + payload


def read(
    data: bytes,
    cuts: Sequence[int] = (),
    max_payload: int = KIB64,
    max_fragments: int = 1024,
) -> tuple[list[Inbound], int | None]:
    """What comes out, noise apart, and the close code if the protocol was broken."""
    reader = FrameReader(max_payload, max_fragments)
    out: list[Inbound] = []
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(edges):
        try:
            out.extend(item for item in reader.feed(data[start:end]) if not isinstance(item, CountedFrame))
        except ConnectionEnd as end_:
            return out, end_.code
    return out, None


def masked(data: bytes, mask: bytes) -> bytes:
    return bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))


def test_messages_and_control_frames_come_out_in_order() -> None:
    data = b"".join(
        [
            frame(b"hello"),
            frame(b"a", fin=False),
            frame(b"one", PING),
            frame(b"b", CONTINUATION, fin=False),
            frame(b"x" * 125, PONG),
            frame(b"c", CONTINUATION),
            frame(b"", TEXT),
            frame(b"", BINARY),
            frame(b"", PING),
            frame(bytes(300), BINARY),
            frame(bytes(KIB64), BINARY),
            frame(b"\x03\xe8bye", CLOSE),
        ]
    )
    expected = [
        "hello",
        PingFrame(b"one"),
        "abc",
        "",
        b"",
        PingFrame(b""),
        bytes(300),
        bytes(KIB64),
        CloseFrame(1000),
    ]
    assert read(data) == (expected, None)
    assert read(data, list(range(0, len(data), 7))) == (expected, None)
    assert read(data, list(range(2_000))) == (expected, None)


def test_every_frame_that_asks_for_nothing_shows() -> None:
    data = (
        frame(b"a", fin=False)
        + frame(b"x", PONG)
        + frame(b"", CONTINUATION, fin=False)
        + frame(b"b", CONTINUATION)
    )
    whole = [CountedFrame.FRAGMENT, CountedFrame.PONG, CountedFrame.FRAGMENT, "ab"]
    assert list(FrameReader(KIB64).feed(data)) == whole
    reader = FrameReader(KIB64)
    assert [item for index in range(len(data)) for item in reader.feed(data[index : index + 1])] == whole


@given(
    payloads=st.lists(st.binary(max_size=300), min_size=1, max_size=6),
    mask=st.binary(min_size=4, max_size=4),
    cuts=st.lists(st.integers(0, 3_000), max_size=20),
)
def test_the_mask_turns_with_the_payload(payloads: list[bytes], mask: bytes, cuts: list[int]) -> None:
    """However a payload is cut, each byte meets its own byte of the mask."""
    data = b""
    for index, payload in enumerate(payloads):
        fin, opcode = index == len(payloads) - 1, CONTINUATION if index else BINARY
        plain = frame(payload, opcode, fin=fin)
        edge = len(plain) - len(payload)
        data += plain[: edge - 4] + mask + masked(payload, mask)
    assert read(data, cuts, 1 << 20) == ([b"".join(payloads)], None)


@given(text=st.text(max_size=80), cuts=st.lists(st.integers(0, 400), max_size=20))
def test_text_may_be_cut_anywhere(text: str, cuts: list[int]) -> None:
    assert read(frame(text.encode()), cuts) == ([text], None)


@given(payload=st.binary(max_size=60), cuts=st.lists(st.integers(0, 80), max_size=10))
def test_text_is_utf_8_or_it_is_refused(payload: bytes, cuts: list[int]) -> None:
    try:
        expected: tuple[list[Inbound], int | None] = [payload.decode()], None
    except UnicodeDecodeError:
        expected = [], 1007
    assert read(frame(payload), cuts) == expected


def test_a_byte_that_is_not_utf_8_is_found_in_the_frame_that_holds_it() -> None:
    begun = frame("κόσμε".encode() + b"\xed", fin=False)
    assert read(begun) == ([], None)  # it may go on to be a character
    assert read(begun + frame(b"\xa0", CONTINUATION, fin=False)) == ([], 1007)  # a surrogate
    assert read(frame(b"\xff" + bytes(1000))[:-999]) == ([], 1007)  # before the payload is complete


@pytest.mark.parametrize("code", [1000, 1001, 1002, 1003, 1007, 1011, 1014, 3000, 3999, 4000, 4999])
def test_close_codes_that_may_be_sent(code: int) -> None:
    assert read(frame(code.to_bytes(2, "big") + b"why", CLOSE)) == ([CloseFrame(code)], None)


@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 1015, 1016, 2000, 2999, 5000, 65_535])
def test_close_codes_that_may_not(code: int) -> None:
    assert read(frame(code.to_bytes(2, "big"), CLOSE)) == ([], 1002)


def test_a_close_frame_without_a_code() -> None:
    assert read(frame(b"", CLOSE)) == ([CloseFrame(1005)], None)


def test_the_reason_of_a_close_frame_is_text() -> None:
    assert read(frame(b"\x03\xe8\xff", CLOSE)) == ([], 1007)


def test_what_came_before_a_broken_frame_is_still_heard() -> None:
    assert read(frame(b"one") + frame(b"two", rsv=1)) == (["one"], 1002)


REFUSED = {
    "unmasked": (1002, frame(b"a", hidden=False)),
    "fragmented ping": (1002, frame(b"a", PING, fin=False)),
    "fragmented close": (1002, frame(b"", CLOSE, fin=False)),
    "ping of 126 bytes": (1002, frame(bytes(126), PING)),
    "pong with a length of 64 bits": (1002, frame(b"", PONG, form=64)),
    "close of one byte": (1002, frame(b"a", CLOSE)),
    "continuation of nothing": (1002, frame(b"a", CONTINUATION)),
    "message inside a message": (1002, frame(b"a", fin=False) + frame(b"b")),
    "highest bit of a length": (1002, frame(declared=1 << 63)),
    "all bits of a length": (1002, frame(declared=(1 << 64) - 1)),
    "5 bytes in 16 bits": (1002, frame(b"hello", form=16)),
    "5 bytes in 64 bits": (1002, frame(b"hello", form=64)),
    "300 bytes in 64 bits": (1002, frame(bytes(300), form=64)),
    "64 KiB and 1": (1009, frame(declared=KIB64 + 1)),
    "10 GB": (1009, frame(declared=10**10)),
    "2^63 - 1": (1009, frame(declared=(1 << 63) - 1)),
    "64 KiB and 1 in two": (
        1009,
        frame(bytes(40_000), fin=False) + frame(b"", CONTINUATION, declared=KIB64 + 1 - 40_000),
    ),
    "1,025 fragments of nothing": (1008, frame(fin=False) + frame(b"", CONTINUATION, fin=False) * 1024),
    "1,025 fragments of a byte": (1008, frame(b"a", fin=False) + frame(b"b", CONTINUATION, fin=False) * 1024),
}


@pytest.mark.parametrize(("code", "data"), REFUSED.values(), ids=REFUSED.keys())
def test_refusals(code: int, data: bytes) -> None:
    assert read(data)[1] == code
    assert read(data, list(range(len(data))))[1] == code


def test_what_is_just_within_the_limits_passes() -> None:
    fragments = frame(fin=False) + frame(b"", CONTINUATION, fin=False) * 1022 + frame(b"", CONTINUATION)
    assert read(fragments * 3) == (["", "", ""], None)
    assert read(frame(bytes(KIB64), BINARY) * 3) == ([bytes(KIB64)] * 3, None)
    halves = frame(bytes(KIB64 // 2), BINARY, fin=False) + frame(bytes(KIB64 // 2), CONTINUATION)
    assert read(halves * 3) == ([bytes(KIB64)] * 3, None)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(declared=10**10)[:10], 1009),  # the length is known; no mask, no payload yet
        (frame(declared=1 << 63)[:3], 1002),  # its first byte tells
        (frame(b"", 0x3)[:1], 1002),
        (frame(b"", rsv=1)[:1], 1002),
        (frame(b"", PING, fin=False)[:1], 1002),
        (frame(hidden=False)[:2], 1002),
        (frame(bytes(126), PING)[:2], 1002),
    ],
)
def test_a_verdict_falls_at_the_byte_that_gives_it_away(data: bytes, code: int) -> None:
    assert read(data)[1] == code
    assert read(data[:-1])[1] is None


def test_nothing_counts_after_a_close_frame_or_a_verdict() -> None:
    reader = FrameReader(KIB64)
    assert list(reader.feed(frame(b"", CLOSE) + b"\xff\xff garbage")) == [CloseFrame(1005)]
    assert list(reader.feed(b"\xff" * 100)) == []
    assert reader.over
    assert reader.received_close
    ended = FrameReader(KIB64)
    with pytest.raises(ConnectionEnd):
        list(ended.feed(b"\xff"))
    assert list(ended.feed(b"\xff" * 100)) == []
    assert ended.over
    assert not ended.received_close


def test_reasons_fit_into_a_close_frame() -> None:
    for code, data in REFUSED.values():
        with pytest.raises(ConnectionEnd) as caught:
            list(FrameReader(KIB64).feed(data))
        assert caught.value.code == code
        assert len(caught.value.reason.encode()) <= 123


def library_refuses(data: bytes) -> bool:
    """Whether wsproto finds the frames against the protocol (1002)."""
    protocol = FrameProtocol(client=False, extensions=[])
    protocol.receive_bytes(data)
    try:
        for received in protocol.received_frames():
            if received.opcode == CLOSE:
                return False
    except ParseFailed as error:
        return error.code == 1002
    return False


MATRIX = list(
    itertools.product(range(16), [False, True], range(8), [0, 1, 2, 125, 126, 65_535, 65_536], [False, True])
)


def test_the_matrix_of_all_headers_agrees_with_wsproto() -> None:
    """All opcodes x fin x reserved bits x classes of length x masked, at the start and inside a message."""
    for opcode, fin, rsv, length, hidden in MATRIX:
        # A close frame's payload is its own matter: 1000 and a reason; the rest is zeros.
        payload = (b"\x03\xe8" + bytes(length))[:length] if opcode == CLOSE and length > 1 else bytes(length)
        data = frame(payload, opcode, fin=fin, rsv=rsv, hidden=hidden)
        for before in (b"", frame(b"begun", fin=False)):
            ours = read(before + data, max_payload=1 << 20)[1] == 1002
            assert ours == library_refuses(before + data), (opcode, fin, rsv, length, hidden, before)


FRAMES = st.builds(
    frame,
    payload=st.sampled_from([0, 1, 2, 3, 125, 126, 300]).map(bytes),
    opcode=st.sampled_from([CONTINUATION, CONTINUATION, TEXT, BINARY, PING, PONG, 0x3, 0xB]),
    fin=st.booleans(),
    rsv=st.sampled_from([0] * 9 + [1]),
    hidden=st.sampled_from([True] * 9 + [False]),
)


@given(frames=st.lists(FRAMES, max_size=12), cuts=st.lists(st.integers(0, 4_000), max_size=15))
def test_cutting_changes_nothing_and_wsproto_agrees(frames: list[bytes], cuts: list[int]) -> None:
    data = b"".join(frames)
    whole = read(data, max_payload=1 << 20)
    assert read(data, cuts, max_payload=1 << 20) == whole
    assert (whole[1] == 1002) == library_refuses(data)


@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=15))
def test_cutting_changes_nothing_for_any_bytes(data: bytes, cuts: list[int]) -> None:
    assert read(data, cuts, 200, 3) == read(data, [], 200, 3)


@given(
    sizes=st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=20),
    cuts=st.lists(st.integers(0, 2_000), max_size=8),
)
def test_sizes_and_fragments_against_a_simple_model(sizes: list[tuple[int, bool]], cuts: list[int]) -> None:
    data, total, fragments, expected = b"", 0, 0, None
    for size, fin in sizes:
        data += frame(bytes(size), CONTINUATION if fragments else TEXT, fin=fin)
        total, fragments = total + size, fragments + 1
        if expected is None and (total > 100 or fragments > 4):
            expected = 1009 if total > 100 else 1008
        if fin:
            total = fragments = 0
    assert read(data, cuts, 100, 4)[1] == expected
