"""Everything that one subscription is sent, read as fast as it comes and kept small."""

from __future__ import annotations

import base64
import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import trio

from tests.integration.wire import CLOSE, PING, PONG, TEXT, command, frame, frames, shake_hands

_RESULT = b'{"type":"RESULT",'
_CHUNK = 1 << 20


class _Row(msgspec.Struct):
    batch: int
    row: int
    key: Any
    value: Any


class _Result(msgspec.Struct):
    data: _Row


@dataclass(slots=True)
class Result:
    """batches: of every row, the batch it is of. texts: every row as one JSON text, see `text_of`. holes:
    rows that do not follow the one before them. begins: the positions at the start. notices: all others than
    the end. reason: why it ended."""

    begins: dict[str, int] = field(default_factory=dict)
    batches: array[int] = field(default_factory=lambda: array("q"))
    texts: list[bytes] = field(default_factory=list)
    holes: list[tuple[int, int]] = field(default_factory=list)
    notices: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""


def text_of(key: object, value: object) -> bytes:
    """A row in a form in which equal rows are equal bytes, whoever has written the numbers."""
    return msgspec.json.encode((key, value))


async def read_all(address: str, source: str) -> Result:
    """Subscribes, with the policy `block`, and reads until the source has ended."""
    host, _, port = address.rpartition(":")
    stream = await trio.open_tcp_stream(host, int(port))
    async with stream:
        await shake_hands(stream)
        await stream.send_all(command("SUBSCRIBE", source, mode="push", overflow="block"))
        return await _read(stream)


async def _read(stream: trio.SocketStream) -> Result:
    result, buffer, before = Result(), bytearray(), (-1, 0)
    decode = msgspec.json.Decoder(_Result).decode
    while not result.reason:
        data = await stream.receive_some(_CHUNK)
        assert data, f"the connection ended after {len(result.texts)} rows: {result.notices}"
        buffer += data
        for opcode, payload in frames(buffer):
            if opcode == TEXT and payload.startswith(_RESULT):
                row = decode(payload).data
                place = (row.batch, row.row)
                if place != (before[0], before[1] + 1) and not (place[0] > before[0] and place[1] == 0):
                    result.holes.append(place)
                before = place
                result.batches.append(row.batch)
                result.texts.append(text_of(row.key, row.value))
            elif opcode == TEXT:
                _note(result, msgspec.json.decode(payload))
            elif opcode == PING:
                await stream.send_all(frame(PONG, payload))
            else:
                assert opcode != CLOSE, payload
    return result


def _note(result: Result, message: dict[str, Any]) -> None:
    data = message["data"]
    if message["type"] == "SUBSCRIBE_OK":
        result.begins = data["positions"]
        assert data["overflow"] == "block", data
    elif data.get("type") == "SUBSCRIPTION_CLOSED":
        result.reason = data["reason"]
    else:
        result.notices.append(message)


def texts_of(table: pa.Table, key: Sequence[str]) -> Iterator[bytes]:
    """The rows that Spark has answered with, as their documented JSON forms, see `text_of`."""
    columns = {name: [form(value) for value in table.column(name).to_pylist()] for name in table.column_names}
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        yield text_of({name: row[name] for name in key} if key else None, row)


def form(value: object) -> object:
    """The JSON form of a value, by the table in docs/guides/kiwi.md; written anew, for comparison."""
    match value:
        case datetime():
            assert value.tzinfo is not None
            return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        case date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case bytes():
            return base64.b64encode(value).decode()
        case float() if not math.isfinite(value):
            raise AssertionError("none of the queries here should have one")
        case dict():
            return {name: form(item) for name, item in value.items()}
        case list():
            return [form(item) for item in value]
    return value
