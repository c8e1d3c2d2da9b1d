"""WebSocket handshakes: every requirement of RFC 6455, 4.2, with wsproto as the client."""

from __future__ import annotations

from typing import Any

import pytest
import wsproto
from wsproto.events import AcceptConnection, Request

from kiwi_gw.edge.http_errors import HttpError
from kiwi_gw.edge.request_head import parse_head
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
    "an offer to compress": {"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"},
    "an extension offer that nobody can decode": {"Sec-WebSocket-Extensions": 'x; y="caf\xe9, \xff"'},
    "a host that is no IDNA name": {"Host": "a..b"},
    "subprotocols": {"Sec-WebSocket-Protocol": "a, B|c"},
}


@pytest.mark.parametrize("changes", SOUND.values(), ids=SOUND.keys())
def test_sound_handshakes_are_taken_and_a_client_takes_the_answer(changes: dict[str, Any]) -> None:
    client = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
    asked = client.send(Request(host="h", target="/", subprotocols=["a", "B", "c"]))
    key = parse_head(asked).header("sec-websocket-key")
    assert key is not None
    head = parse_head(request(**changes, Sec_WebSocket_Key=key))
    assert wants_websocket(head)
    upgrade = check_upgrade(head)
    assert upgrade.key == key
    subprotocol = upgrade.subprotocols[-1] if upgrade.subprotocols else None
    client.receive_data(upgrade.response(subprotocol))
    assert list(client.events()) == [AcceptConnection(subprotocol=subprotocol, extensions=[])]


def test_the_answer_to_the_example_of_the_rfc() -> None:
    answer = check_upgrade(parse_head(request())).response(None)
    assert b"\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in answer
    assert b"Protocol" not in answer.partition(b"\r\n")[2]


def test_subprotocols_keep_their_order_and_case() -> None:
    assert check_upgrade(parse_head(request(Sec_WebSocket_Protocol="b, A|c"))).subprotocols == ("b", "A", "c")


BAD: dict[str, tuple[int, dict[str, Any]]] = {
    "POST": (405, {"line": "POST / HTTP/1.1"}),
    "HEAD": (405, {"line": "HEAD / HTTP/1.1"}),
    "HTTP/1.0": (426, {"line": "GET / HTTP/1.0"}),
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
