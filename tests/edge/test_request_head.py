"""Request heads: what is read, what is refused with which status, and that cutting changes nothing."""

from __future__ import annotations

import itertools
import re
from functools import partial

import h11
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from kiwi_gw.edge.http_errors import HttpError
from kiwi_gw.edge.request_head import (
    FoundHead,
    HeadCollector,
    HeadLimits,
    RequestHead,
    parse_head,
    read_head,
)

LIMITS = HeadLimits()
PLAIN = b"GET /health?x=1&y HTTP/1.1\r\nHost: a.example:80\r\nX-Name:  caf\xe9 \r\n\r\n"


def verdict(data: bytes, cuts: list[int], limits: HeadLimits = LIMITS) -> FoundHead | int | None:
    """What a collector says to `data` when it is cut at `cuts`: a head, a status, or None (incomplete)."""
    collector = HeadCollector(limits)
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(edges):
        try:
            found = collector.feed(data[start:end])
        except HttpError as error:
            return error.status
        if found is not None:
            # The rest would still be in the socket.
            return FoundHead(found.head, found.surplus + data[end:])
    return None


def test_a_head_is_taken_apart() -> None:
    head = parse_head(PLAIN)
    assert (head.method, head.path, head.query, head.version) == ("GET", "/health", "x=1&y", "1.1")
    assert head.target == "/health?x=1&y"
    assert head.headers == (("host", "a.example:80"), ("x-name", "café"))
    assert head.raw == PLAIN


def test_the_path_is_neither_decoded_nor_normalised() -> None:
    assert parse_head(b"GET /a%2Fb//../c%20 HTTP/1.1\r\nHost: h\r\n\r\n").path == "/a%2Fb//../c%20"


def test_nothing_of_a_head_that_may_be_secret_is_in_its_repr() -> None:
    head = parse_head(b"GET /?token=s3cret HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer s3cret\r\n\r\n")
    assert "s3cret" not in repr(head)
    credential = head.credential("127.0.0.1", secure=True)
    assert credential.query == "token=s3cret"
    assert credential.header("authorization") == "Bearer s3cret"
    assert (credential.remote, credential.secure) == ("127.0.0.1", True)


def test_tokens_come_from_all_lines_of_a_header() -> None:
    head = parse_head(
        b"GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive , UPGRADE\r\nConnection:,x\r\n\r\n"
    )
    assert head.tokens("connection") == ["keep-alive", "upgrade", "x"]


ACCEPTED = {
    "one empty line before it": b"\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
    "HTTP/1.0 without Host": b"GET / HTTP/1.0\r\n\r\n",
    "IPv6 host": b"GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
    "the form that proxies are sent": b"GET HTTP://H:80/x?y HTTP/1.1\r\nHost: h:80\r\n\r\n",
    "the same without a path": b"GET http://h HTTP/1.1\r\nHost: h\r\n\r\n",
    "OPTIONS *": b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
    "a body": b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n",
    "a chunked body": b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
    "100-continue": b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\n",
    "h2c, ignored": b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
    "exactly 100 headers": b"GET / HTTP/1.1\r\nHost: h\r\n" + b"a: b\r\n" * 99 + b"\r\n",
    "a line of exactly 8 KiB": b"GET /" + b"x" * (8192 - 16) + b" HTTP/1.1\r\nHost: h\r\n\r\n",
}


@pytest.mark.parametrize("data", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_legal_heads_are_taken(data: bytes) -> None:
    found = verdict(data, [])
    assert isinstance(found, FoundHead)


@pytest.mark.parametrize("scheme", ["http", "https", "ws", "wss", "WS"])
def test_an_absolute_target_is_taken_and_its_authority_replaces_host(scheme: str) -> None:
    line = f"GET {scheme}://gw.example:80/x?y HTTP/1.1\r\n".encode()
    head = parse_head(line + b"a: b\r\nHost: evil.example\r\n\r\n")
    assert (head.path, head.query) == ("/x", "y")
    assert head.values("host") == ["gw.example:80"]
    assert head.header("a") == "b"
    assert parse_head(b"GET http://h?q HTTP/1.1\r\nHost: h\r\n\r\n").path == "/"
    assert parse_head(b"GET ws://[::1]:8/ HTTP/1.0\r\n\r\n").header("host") == "[::1]:8"


def get(*lines: bytes) -> bytes:
    return b"\r\n".join((b"GET / HTTP/1.1", b"Host: h", *lines, b"", b""))


REFUSED = {
    "folded header": (400, get(b"A: b", b" c")),
    "folded with a tab": (400, get(b"A: b", b"\tc")),
    "fold before the first header": (400, b"GET / HTTP/1.1\r\n Host: h\r\n\r\n"),
    "TE and CL": (400, get(b"Transfer-Encoding: chunked", b"Content-Length: 5")),
    "CL and TE": (400, get(b"Content-Length: 5", b"Transfer-Encoding: chunked")),
    "TE in HTTP/1.0": (400, b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "unknown transfer coding": (501, get(b"Transfer-Encoding: gzip, chunked")),
    "TE twice": (501, get(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked")),
    "two lengths": (400, get(b"Content-Length: 5", b"Content-Length: 6")),
    "the same length twice": (400, get(b"Content-Length: 5", b"Content-Length: 5")),
    "a list of lengths": (400, get(b"Content-Length: 5, 5")),
    "a signed length": (400, get(b"Content-Length: +5")),
    "a hexadecimal length": (400, get(b"Content-Length: 0x5")),
    "a length of 30 digits": (400, get(b"Content-Length: " + b"9" * 30)),
    "CR alone in a value": (400, get(b"A: b\rc")),
    "CR alone at the end": (400, get(b"A: b\r")),
    "LF alone": (400, b"GET / HTTP/1.1\nHost: h\n\n"),
    "LF alone in the middle": (400, b"GET / HTTP/1.1\r\nHost: h\nA: b\r\n\r\n"),
    "NUL": (400, get(b"A: b\x00c")),
    "a control character": (400, get(b"A: b\x01c")),
    "DEL": (400, get(b"A: b\x7fc")),
    "space before the colon": (400, get(b"A : b")),
    "no colon": (400, get(b"A")),
    "an empty name": (400, get(b": b")),
    "no Host": (400, b"GET / HTTP/1.1\r\n\r\n"),
    "two Hosts": (400, get(b"Host: h")),
    "an empty Host": (400, b"GET / HTTP/1.1\r\nHost:\r\n\r\n"),
    "a URL as Host": (400, b"GET / HTTP/1.1\r\nHost: http://h/\r\n\r\n"),
    "user in Host": (400, b"GET / HTTP/1.1\r\nHost: u@h\r\n\r\n"),
    "two names in Host": (400, b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"),
    "bad method characters": (400, b"G(T / HTTP/1.1\r\nHost: h\r\n\r\n"),
    "a method that begins badly": (400, b"\x80ET / HTTP/1.1\r\nHost: h\r\n\r\n"),
    "two spaces": (400, b"GET  / HTTP/1.1\r\nHost: h\r\n\r\n"),
    "a space in the target": (400, b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n"),
    "non-ASCII in the target": (400, b"GET /\xe9 HTTP/1.1\r\nHost: h\r\n\r\n"),
    "a fragment": (400, b"GET /#x HTTP/1.1\r\nHost: h\r\n\r\n"),
    "a relative target": (400, b"GET x HTTP/1.1\r\nHost: h\r\n\r\n"),
    "a URL without a server": (400, b"GET ws:/// HTTP/1.1\r\nHost: h\r\n\r\n"),
    "a URL with a user": (400, b"GET ws://h@other/ HTTP/1.1\r\nHost: h\r\n\r\n"),
    "a URL with half a port": (400, b"GET ws://h:8x/ HTTP/1.1\r\nHost: h\r\n\r\n"),
    "a URL with a fragment": (400, b"GET ws://h/#a HTTP/1.1\r\nHost: h\r\n\r\n"),
    "a URL beside a bad Host": (400, b"GET ws://h/ HTTP/1.1\r\nHost: u@h\r\n\r\n"),
    "a URL without Host": (400, b"GET ws://h/ HTTP/1.1\r\n\r\n"),
    "the form of CONNECT": (400, b"CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n"),
    "a URL of another scheme": (400, b"GET file:///etc/passwd HTTP/1.1\r\nHost: h\r\n\r\n"),
    "CONNECT": (400, b"CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n"),
    "GET *": (400, b"GET * HTTP/1.1\r\nHost: h\r\n\r\n"),
    "HTTP/0.9": (400, b"GET /\r\n\r\n"),
    "the HTTP/2 preface": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "HTTP/2.0": (505, b"GET / HTTP/2.0\r\nHost: h\r\n\r\n"),
    "HTTP/1.2": (505, b"GET / HTTP/1.2\r\nHost: h\r\n\r\n"),
    "lower-case http": (400, b"GET / http/1.1\r\nHost: h\r\n\r\n"),
    "two empty lines before it": (400, b"\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"),
    "a TLS hello": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "binary": (400, b"\x00\x00"),
    "an expectation": (417, get(b"Expect: tea")),
    "101 headers": (431, get(*[b"a: b"] * 100)),
    "a header line of 9 KiB": (431, get(b"A: " + b"b" * 9216)),
    "a header of 9 KiB without end": (431, b"GET / HTTP/1.1\r\nA: " + b"b" * 9216),
    "17 KiB in all": (431, get(*[b"A: " + b"b" * 1000] * 17)),
    "17 KiB without end": (431, get(*[b"A: " + b"b" * 1000] * 17)[:-2]),
    "a target of 9 KiB": (431, b"GET /" + b"x" * 9216 + b" HTTP/1.1\r\nHost: h\r\n\r\n"),
    "a target without end": (431, b"GET /" + b"x" * 9216),
    "a line of 8 KiB and 1": (431, b"GET /" + b"x" * (8193 - 16) + b" HTTP/1.1\r\nHost: h\r\n\r\n"),
}


@pytest.mark.parametrize(("status", "data"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_heads_are_refused(status: int, data: bytes) -> None:
    assert verdict(data, []) == status
    assert verdict(data, list(range(len(data)))) == status


def test_a_refusal_does_not_repeat_what_was_sent() -> None:
    with pytest.raises(HttpError) as caught:
        parse_head(get(b"Authorization s3cret"))
    assert "s3cret" not in str(caught.value)


ANY_HEAD = st.sampled_from([*ACCEPTED.values(), *(data for _, data in REFUSED.values())])


@given(data=ANY_HEAD, surplus=st.binary(max_size=30), cuts=st.lists(st.integers(0, 20_000), max_size=12))
def test_cutting_changes_nothing(data: bytes, surplus: bytes, cuts: list[int]) -> None:
    assert verdict(data + surplus, cuts) == verdict(data + surplus, [])


@given(
    data=st.lists(
        st.sampled_from(
            [b"GET ", b"/", b" HTTP/1.1", b"\r\n", b"\n", b"\r", b"Host: h", b"a: b", b"x" * 40, b" "]
        ),
        max_size=30,
    ).map(b"".join),
    cuts=st.lists(st.integers(0, 500), max_size=8),
)
def test_cutting_changes_nothing_for_any_bytes(data: bytes, cuts: list[int]) -> None:
    limits = HeadLimits(line_bytes=64, total_bytes=160, headers=4)
    assert verdict(data, cuts, limits) == verdict(data, [], limits)


def test_what_follows_the_head_is_kept() -> None:
    found = verdict(PLAIN + b"\x81\x80rest", [10, len(PLAIN) + 1])
    assert found == FoundHead(parse_head(PLAIN), b"\x81\x80rest")


# --- from a stream -----------------------------------------------------------------------------


async def test_a_head_in_pieces_is_read() -> None:
    client, server = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def _send() -> None:
            for byte in PLAIN:
                await client.send_all(bytes([byte]))

        found = await read_head(server, LIMITS)
    assert found == FoundHead(parse_head(PLAIN), b"")


async def test_bytes_that_were_read_before_come_first() -> None:
    client, server = trio.testing.memory_stream_pair()
    await client.send_all(PLAIN[20:] + b"more")
    found = await read_head(server, LIMITS, received=PLAIN[:20])
    assert found == FoundHead(parse_head(PLAIN), b"more")
    found = await read_head(server, LIMITS, received=PLAIN + b"x")
    assert found == FoundHead(parse_head(PLAIN), b"x")


async def test_the_deadline_is_for_the_whole_head(autojump_clock: trio.testing.MockClock) -> None:
    client, server = trio.testing.memory_stream_pair()
    start = trio.current_time()
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def _dribble() -> None:
            for byte in PLAIN:
                await client.send_all(bytes([byte]))
                await trio.sleep(1)

        with pytest.raises(HttpError) as caught:
            await read_head(server, LIMITS)
        nursery.cancel_scope.cancel()
    assert caught.value.status == 408
    assert trio.current_time() - start == pytest.approx(5)


async def test_a_client_that_says_nothing_gets_408(autojump_clock: trio.testing.MockClock) -> None:
    _client, server = trio.testing.memory_stream_pair()
    with pytest.raises(HttpError) as caught:
        await read_head(server, LIMITS)
    assert caught.value.status == 408


async def test_a_client_that_leaves_before_its_first_byte_gets_nothing() -> None:
    client, server = trio.testing.memory_stream_pair()
    await client.aclose()
    assert await read_head(server, LIMITS) is None


async def test_a_client_that_leaves_inside_its_head_gets_400() -> None:
    client, server = trio.testing.memory_stream_pair()
    await client.send_all(PLAIN[:-1])
    await client.send_eof()
    with pytest.raises(HttpError) as caught:
        await read_head(server, LIMITS)
    assert caught.value.status == 400


LENGTHS = [
    "",
    "Content-Length: 5",
    "content-length:5",
    "Content-Length:  7 ",
    "Content-Length: 007",
    "X: Content-Length: 5",
]
HEADS = st.builds(
    lambda path, *lines: "\r\n".join([f"POST {path} HTTP/1.1", *filter(None, lines), "", ""]).encode(),
    st.sampled_from(["/", "/a?b=c"]),
    st.sampled_from(["", "Connection: close"]),
    st.sampled_from(LENGTHS),
    st.sampled_from(["Host: h", "Host: other", ""]),
    st.sampled_from(["", "Content-Length: 6", "Expect: 100-continue"]),
)
NUMBERS = st.sampled_from(
    [b"", b"0", b"5", b"12", b"0012", b"5, 5", b"+5", b"5\r\nA: 5", b"9" * 9, b"9" * 10, b"9" * 30]
)


async def read(data: bytes, limits: HeadLimits, before: RequestHead | None) -> object:
    client, server = trio.testing.memory_stream_pair()
    await client.send_eof()
    try:
        found = await read_head(server, limits, data, before=before)
    except HttpError as error:
        return error.status, str(error), error.path
    return None if found is None else (found.head, dict(found.head.first), found.surplus)


@given(HEADS, NUMBERS, st.binary(max_size=3), st.integers(0, 12), st.data())
async def test_the_next_head_is_read_as_if_there_had_been_none_before(
    raw: bytes, number: bytes, surplus: bytes, room: int, data: st.DataObject
) -> None:
    try:
        before = parse_head(raw)
    except HttpError:
        return
    limits = HeadLimits(total_bytes=len(raw) + room)
    following = data.draw(st.one_of(st.just(raw), HEADS, st.just(re.sub(rb"(?<=: )5", number, raw))))
    following = following[: data.draw(st.integers(len(following) - 3, len(following)))] + surplus
    assert await read(following, limits, before) == await read(following, limits, None)


async def test_a_head_that_comes_again_may_be_no_longer_than_others() -> None:
    raw = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n"
    with pytest.raises(HttpError) as caught:
        await read_head(
            trio.testing.memory_stream_pair()[0],
            HeadLimits(total_bytes=len(raw)),
            raw.replace(b"9", b"10"),
            before=parse_head(raw),
        )
    assert caught.value.status == 431


def test_a_head_that_comes_again_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n"
    before = parse_head(raw)
    monkeypatch.setattr(h11, "Connection", None)
    longer = raw.replace(b"9", b"10")
    for data, size in ((raw, "9"), (longer, "10")):
        ours = trio.testing.memory_stream_pair()[0]
        found = trio.run(partial(read_head, ours, LIMITS, data, before=before))
        assert found is not None
        head = found.head
        assert (head.raw, head.header("content-length"), head.values("content-length")) == (
            data,
            size,
            [size],
        )
