"""The scanner of inbound frame headers, against wsproto where that has a verdict."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.frame_protocol import FrameProtocol, ParseFailed

from kiwi_gw.edge.frames_in import FrameScanner
from kiwi_gw.errors import ConnectionEnd

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
KIB64 = 64 * 1024


def frame(
    payload: bytes = b"",
    opcode: int = TEXT,
    *,
    fin: bool = True,
    rsv: int = 0,
    masked: bool = True,
    form: int | None = None,
    declared: int | None = None,
) -> bytes:
    """A client's frame (masked with zeros). `form`: 7, 16 or 64 bits of length; None: the shortest."""
    length = len(payload) if declared is None else declared
    if form is None:
        form = 7 if length < 126 else 16 if length < 65_536 else 64
    second = 0x80 if masked else 0
    if form == 7:
        head = bytes([second | length])
    elif form == 16:
        head = bytes([second | 126]) + length.to_bytes(2, "big")
    else:
        head = bytes([second | 127]) + length.to_bytes(8, "big")
    return bytes([fin << 7 | rsv << 4 | opcode]) + head + (bytes(4) if masked else b"") + payload


def verdict(data: bytes, cuts: list[int] = [], max_payload: int = KIB64, max_fragments: int = 1024) -> object:  # noqa: B006
    """The close code, or the counters and whether a frame is unfinished."""
    scanner = FrameScanner(max_payload, max_fragments)
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(edges):
        try:
            scanner.feed(data[start:end])
        except ConnectionEnd as end_:
            return end_.code
    return (scanner.data_frames, scanner.messages, scanner.pings, scanner.pongs, scanner.inside_frame)


def test_frames_are_counted() -> None:
    data = b"".join(
        [
            frame(b"hello"),
            frame(b"a", fin=False),
            frame(b"", PING),
            frame(b"b", CONTINUATION, fin=False),
            frame(b"x" * 125, PONG),
            frame(b"c", CONTINUATION),
            frame(bytes(300), BINARY),
            frame(bytes(KIB64), BINARY),
        ]
    )
    assert verdict(data) == (6, 4, 1, 1, False)
    assert verdict(data, list(range(len(data)))) == (6, 4, 1, 1, False)


REFUSED = {
    "unmasked": (1002, frame(b"a", masked=False)),
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
    assert verdict(data) == code
    assert verdict(data, list(range(len(data)))) == code


def test_what_is_just_within_the_limits_passes() -> None:
    fragments = frame(fin=False) + frame(b"", CONTINUATION, fin=False) * 1022 + frame(b"", CONTINUATION)
    assert verdict(fragments * 3) == (3 * 1024, 3, 0, 0, False)
    assert verdict(frame(bytes(KIB64)) * 3) == (3, 3, 0, 0, False)
    halves = frame(bytes(KIB64 // 2), fin=False) + frame(bytes(KIB64 // 2), CONTINUATION)
    assert verdict(halves * 3) == (6, 3, 0, 0, False)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(declared=10**10)[:10], 1009),  # the length is known; no mask, no payload yet
        (frame(declared=1 << 63)[:3], 1002),  # its first byte tells
        (frame(b"", 0x3)[:1], 1002),
        (frame(b"", rsv=1)[:1], 1002),
        (frame(b"", PING, fin=False)[:1], 1002),
        (frame(masked=False)[:2], 1002),
        (frame(bytes(126), PING)[:2], 1002),
    ],
)
def test_a_verdict_falls_at_the_byte_that_gives_it_away(data: bytes, code: int) -> None:
    assert verdict(data) == code
    assert isinstance(verdict(data[:-1]), tuple)


def test_nothing_counts_after_a_close_frame_or_a_verdict() -> None:
    scanner = FrameScanner(KIB64)
    scanner.feed(frame(b"", CLOSE) + b"\xff\xff garbage")
    scanner.feed(b"\xff" * 100)
    assert not scanner.inside_frame
    ended = FrameScanner(KIB64)
    with pytest.raises(ConnectionEnd):
        ended.feed(b"\xff")
    ended.feed(b"\xff" * 100)
    assert not ended.inside_frame


def test_an_unfinished_frame_shows() -> None:
    scanner = FrameScanner(KIB64)
    for byte in frame(b"hello")[:-1]:
        scanner.feed(bytes([byte]))
        assert scanner.inside_frame
    scanner.feed(b"o")
    assert not scanner.inside_frame


def test_reasons_fit_into_a_close_frame() -> None:
    for code, data in REFUSED.values():
        with pytest.raises(ConnectionEnd) as caught:
            FrameScanner(KIB64).feed(data)
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
    for opcode, fin, rsv, length, masked in MATRIX:
        # A close frame's payload is its own matter: 1000 and a reason; the rest is zeros.
        payload = (b"\x03\xe8" + bytes(length))[:length] if opcode == CLOSE and length > 1 else bytes(length)
        data = frame(payload, opcode, fin=fin, rsv=rsv, masked=masked)
        for before in (b"", frame(b"begun", fin=False)):
            ours = verdict(before + data, max_payload=1 << 20) == 1002
            assert ours == library_refuses(before + data), (opcode, fin, rsv, length, masked, before)


FRAMES = st.builds(
    frame,
    payload=st.sampled_from([0, 1, 2, 3, 125, 126, 300]).map(bytes),
    opcode=st.sampled_from([CONTINUATION, CONTINUATION, TEXT, BINARY, PING, PONG, 0x3, 0xB]),
    fin=st.booleans(),
    rsv=st.sampled_from([0] * 9 + [1]),
    masked=st.sampled_from([True] * 9 + [False]),
)


@given(frames=st.lists(FRAMES, max_size=12), cuts=st.lists(st.integers(0, 4_000), max_size=15))
def test_cutting_changes_nothing_and_wsproto_agrees(frames: list[bytes], cuts: list[int]) -> None:
    data = b"".join(frames)
    whole = verdict(data, max_payload=1 << 20)
    assert verdict(data, cuts, max_payload=1 << 20) == whole
    assert (whole == 1002) == library_refuses(data)


@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=15))
def test_cutting_changes_nothing_for_any_bytes(data: bytes, cuts: list[int]) -> None:
    assert verdict(data, cuts, 200, 3) == verdict(data, [], 200, 3)


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
    found = verdict(data, cuts, 100, 4)
    assert found == expected if expected is not None else isinstance(found, tuple)
