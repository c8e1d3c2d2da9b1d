"""Whether a request may become a WebSocket connection, and what is answered then (RFC 6455, 4.2)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, field

from kiwi_gw.edge.http_errors import HttpError
from kiwi_gw.edge.request_head import RequestHead

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # of the protocol itself (1.3)
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A sound request for a WebSocket connection. `subprotocols` in the client's order of preference."""

    key: str = field(repr=False)
    subprotocols: tuple[str, ...] = field(repr=False, default=())

    def response(self, subprotocol: str | None) -> bytes:
        """Write the head that makes it one (4.2.2). Extensions are never accepted: none is spoken."""
        digest = hashlib.sha1(self.key.encode() + _GUID, usedforsecurity=False).digest()
        return (
            "HTTP/1.1 101 Switching Protocols\r\n"
            "Upgrade: websocket\r\n"
            "Connection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}\r\n"
            + (f"Sec-WebSocket-Protocol: {subprotocol}\r\n" if subprotocol else "")
            + "\r\n"
        ).encode()


def wants_websocket(head: RequestHead) -> bool:
    """Whether the request asks for a WebSocket connection, soundly or not.

    Other protocols in Upgrade (h2c) are ignored, as is Upgrade in HTTP/1.0 (RFC 9110, 7.8).
    """
    return head.version == "1.1" and "websocket" in head.tokens("upgrade")


def check_upgrade(head: RequestHead) -> Upgrade:
    """Check everything but the origin. Raises HttpError 400, 405 or 426."""
    if head.method != "GET":
        raise HttpError(405, "a WebSocket handshake is a GET request", (("Allow", "GET"),))
    if not wants_websocket(head):
        raise upgrade_required()
    if "upgrade" not in head.tokens("connection"):
        raise HttpError(400, "the Connection header does not name Upgrade; does a proxy remove it?")
    if head.header("transfer-encoding") is not None or (head.header("content-length") or "0").strip("0"):
        raise HttpError(400, "a WebSocket handshake has no body")
    if head.values("sec-websocket-version") != ["13"]:
        raise HttpError(
            426,
            "the WebSocket version must be 13",
            (("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")),
        )
    keys = head.values("sec-websocket-key")
    if len(keys) != 1 or not _is_key(keys[0]):
        raise HttpError(400, "Sec-WebSocket-Key must be the base64 of 16 bytes, once")
    return Upgrade(keys[0], _subprotocols(head))


def upgrade_required() -> HttpError:
    """Make the answer to a plain request where only WebSocket is spoken."""
    return HttpError(426, "connect with a WebSocket client", (("Upgrade", "websocket"),))


def _is_key(key: str) -> bool:
    try:
        return len(key) == 24 and len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False


def _subprotocols(head: RequestHead) -> tuple[str, ...]:
    names = tuple(head.listed("sec-websocket-protocol"))  # which are case-sensitive
    if not all(_TOKEN.fullmatch(name) for name in names):
        raise HttpError(400, "Sec-WebSocket-Protocol is not a list of names")
    return names
