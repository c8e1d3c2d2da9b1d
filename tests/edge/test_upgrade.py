"""WebSocket handshakes: every requirement of RFC 6455, 4.2.1, and bytes that come too early."""

from __future__ import annotations

import functools
from typing import Any

import h11
import pytest
import trio
import trio.testing
import wsproto
from trio_websocket import wrap_server_stream
from wsproto.events import AcceptConnection, Message, Ping, Request, TextMessage
from wsproto.handshake import H11Handshake

from kiwi_gw.edge.answers import HttpError
from kiwi_gw.edge.head import parse_head
from kiwi_gw.edge.replay import ReplayStream
from kiwi_gw.edge.upgrade import check_upgrade, wants_websocket

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
GOOD = {
    "Host": "h",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": KEY,
}


def request(line: str = "GET / HTTP/1.1", **changes: str | None) -> bytes:
    """A handshake with some headers changed (underscores are hyphens; None: left out; | : two lines)."""
    headers: dict[str, str | None] = {**GOOD, **{name.replace("_", "-"): v for name, v in changes.items()}}
    lines = [line]
    for name, value in headers.items():
        if value is not None:
            lines += [f"{name}: {part}" for part in value.split("|")]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


SOUND: dict[str, dict[str, Any]] = {
    "plain": {},
    "case": {"Upgrade": "WebSocket", "Connection": "keep-alive, UPGRADE"},
    "two Connection lines": {"Connection": "Upgrade|keep-alive"},
    "two protocols in Upgrade": {"Upgrade": "websocket, h2c"},
    "two Upgrade lines": {"Upgrade": "h2c|websocket"},
    "a length of zero": {"Content-Length": "0"},
    "an extension offer that nobody can decode": {"Sec-WebSocket-Extensions": 'x; y="caf\xe9, \xff"'},
    "a host that is no IDNA name": {"Host": "a..b"},
    "subprotocols": {"Sec-WebSocket-Protocol": "a, B|c"},
}


@pytest.mark.parametrize("changes", SOUND.values(), ids=SOUND.keys())
def test_sound_handshakes_are_taken_and_the_library_takes_what_it_is_given(changes: dict[str, Any]) -> None:
    head = parse_head(request(**changes))
    assert wants_websocket(head)
    upgrade = check_upgrade(head)
    assert upgrade.key == KEY
    library = H11Handshake(wsproto.ConnectionType.SERVER)
    library.receive_data(upgrade.handshake(head))
    events = list(library.events())
    assert len(events) == 1
    assert isinstance(events[0], Request)
    assert events[0].subprotocols == list(upgrade.subprotocols)
    assert events[0].extensions == []
    assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in library.send(AcceptConnection())


def test_subprotocols_keep_their_order_and_case() -> None:
    assert check_upgrade(parse_head(request(Sec_WebSocket_Protocol="b, A|c"))).subprotocols == ("b", "A", "c")


BAD: dict[str, tuple[int, dict[str, Any]]] = {
    "POST": (405, {"line": "POST / HTTP/1.1"}),
    "HEAD": (405, {"line": "HEAD / HTTP/1.1"}),
    "HTTP/1.0": (426, {"line": "GET / HTTP/1.0"}),
    "a URL as target": (400, {"line": "GET http://h/ HTTP/1.1"}),
    "no Upgrade": (426, {"Upgrade": None}),
    "h2c": (426, {"Upgrade": "h2c"}),
    "no Connection": (400, {"Connection": None}),
    "Connection without Upgrade": (400, {"Connection": "keep-alive"}),
    "no version": (426, {"Sec_WebSocket_Version": None}),
    "version 8": (426, {"Sec_WebSocket_Version": "8"}),
    "versions 13 and 8": (426, {"Sec_WebSocket_Version": "13|8"}),
    "version 013": (426, {"Sec_WebSocket_Version": "013"}),
    "no key": (400, {"Sec_WebSocket_Key": None}),
    "two keys": (400, {"Sec_WebSocket_Key": f"{KEY}|{KEY}"}),
    "a short key": (400, {"Sec_WebSocket_Key": "SGVsbG8sIHdvcmxkIQ=="}),
    "a key of 18 bytes": (400, {"Sec_WebSocket_Key": "AAAAAAAAAAAAAAAAAAAAAAAA"}),
    "a key that is no base64": (400, {"Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25j!!=="}),
    "a key that is not ASCII": (400, {"Sec_WebSocket_Key": "\xe9" * 24}),
    "a body": (400, {"Content_Length": "5"}),
    "a chunked body": (400, {"Transfer_Encoding": "chunked"}),
    "subprotocols that are no names": (400, {"Sec_WebSocket_Protocol": "a b"}),
    "subprotocols that are not ASCII": (400, {"Sec_WebSocket_Protocol": "caf\xe9"}),
}


@pytest.mark.parametrize(("status", "changes"), BAD.values(), ids=BAD.keys())
def test_bad_handshakes_are_refused(status: int, changes: dict[str, Any]) -> None:
    head = parse_head(request(**changes))
    with pytest.raises(HttpError) as caught:
        check_upgrade(head)
    assert caught.value.status == status


def test_a_wrong_version_is_told_the_right_one() -> None:
    with pytest.raises(HttpError) as caught:
        check_upgrade(parse_head(request(Sec_WebSocket_Version="8")))
    assert ("Sec-WebSocket-Version", "13") in caught.value.headers


# --- replay ------------------------------------------------------------------------------------


async def test_the_surplus_is_held_back_until_something_was_sent() -> None:
    client, server = trio.testing.memory_stream_pair()
    await client.send_all(b"third")
    seen: list[bytes | bytearray] = []
    stream = ReplayStream(server, b"first", b"second", seen.append)
    assert await stream.receive_some(2) == b"fi"
    assert await stream.receive_some() == b"rst"
    received: list[bytes | bytearray] = []

    async def receive() -> None:
        received.extend(
            [await stream.receive_some(4), await stream.receive_some(), await stream.receive_some()]
        )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        assert received == []
        await stream.send_all(b"answer")
    assert received == seen == [b"seco", b"nd", b"third"]
    assert await client.receive_some() == b"answer"
    await client.aclose()
    assert await stream.receive_some() == b""
    assert len(seen) == 3


async def test_a_reader_that_is_held_back_wakes_when_the_stream_is_closed() -> None:
    _client, server = trio.testing.memory_stream_pair()
    stream = ReplayStream(server, b"", b"surplus")

    async def receive() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await stream.receive_some()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        await stream.aclose()


async def test_what_the_observer_raises_reaches_the_reader() -> None:
    def refuse(_data: bytes | bytearray) -> None:
        raise ValueError("no")

    _client, server = trio.testing.memory_stream_pair()
    stream = ReplayStream(server, b"", b"surplus", refuse)
    await stream.send_all(b"x")
    with pytest.raises(ValueError, match="no"):
        await stream.receive_some()


class Client:
    """A WebSocket client on a bare stream, after its handshake."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.protocol = wsproto.connection.Connection(wsproto.ConnectionType.CLIENT)

    async def messages(self, count: int, received: bytes) -> list[str]:
        texts: list[str] = []
        self.protocol.receive_data(received)
        while True:
            texts += [event.data for event in self.protocol.events() if isinstance(event, TextMessage)]
            if len(texts) >= count:
                return texts
            self.protocol.receive_data(bytes(await self.stream.receive_some()))


@pytest.mark.parametrize("surplus", [0, 7, 10_000])
async def test_frames_sent_before_our_101_reach_the_websocket_library(surplus: int) -> None:
    """`surplus`: how many of the early bytes were read together with the head."""
    transport, server = trio.testing.memory_stream_pair()
    client = Client(transport)
    early = b"".join(client.protocol.send(Message(data=f"early {n}")) for n in range(3))
    early += client.protocol.send(Ping())
    await transport.send_all(early[surplus:])
    head = parse_head(request(Host="a..b", Connection="Upgrade|keep-alive"), early[:surplus])
    stream = ReplayStream(server, check_upgrade(head).handshake(head), head.surplus)
    async with trio.open_nursery() as nursery:
        handshake = await wrap_server_stream(nursery, stream)
        await trio.testing.wait_all_tasks_blocked()  # the library now reads on, before it has answered
        websocket = await handshake.accept()
        for _ in range(3):
            await websocket.send_message(f"re: {await websocket.get_message()!s}")
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += await transport.receive_some()
        reader = h11.Connection(h11.CLIENT)
        reader.send(h11.Request(method="GET", target="/", headers=[*GOOD.items()]))
        reader.receive_data(answer)
        response = reader.next_event()
        assert isinstance(response, h11.InformationalResponse)
        assert response.status_code == 101
        frames = reader.trailing_data[0]
        assert await client.messages(3, frames) == ["re: early 0", "re: early 1", "re: early 2"]
        nursery.start_soon(functools.partial(websocket.aclose, 1000))
        await trio.testing.wait_all_tasks_blocked()
        await transport.aclose()
        nursery.cancel_scope.cancel()
