"""What the gateway says in Zetta, one whole frame each (Multiplexed WebSocket Streams).

The members come in the order of the document's examples. `timestamp` is when the message was made, in ms.
"""

from __future__ import annotations

import msgspec

from kiwi_gw.dialects.frames import text_frame

_encode = msgspec.json.Encoder().encode


def subscribed(timestamp: int, written: bytes, number: int) -> bytes:
    """written: the topic as JSON, as it came."""
    head = b'{"type":"subscribe-ack","timestamp":%d,"topic":' % timestamp
    return text_frame(b'%b%b,"subscriptionId":%d}' % (head, written, number))


def unsubscribed(timestamp: int, number: int) -> bytes:
    return text_frame(b'{"type":"unsubscribe-ack","timestamp":%d,"subscriptionId":%d}' % (timestamp, number))


def pong(timestamp: int, data: bytes | None) -> bytes:
    """data: JSON, as it came; None: the ping had none."""
    more = b"" if data is None else b',"data":%b' % data
    return text_frame(b'{"type":"pong","timestamp":%d%b}' % (timestamp, more))


def error(timestamp: int, code: int, topic: bytes | None, message: str, number: int | None = None) -> bytes:
    """topic: JSON, as it came; None: there is none. number: of the subscription that it is about."""
    parts = [b'{"type":"error","code":%d,"timestamp":%d' % (code, timestamp)]
    if topic is not None:
        parts.append(b',"topic":%b' % topic)
    # An operating system's error may hold half a character (a file name that is not UTF-8).
    parts.append(b',"message":%b' % _encode(message.encode(errors="backslashreplace").decode()))
    if number is not None:
        parts.append(b',"subscriptionId":%d' % number)
    return text_frame(b"".join(parts) + b"}")
