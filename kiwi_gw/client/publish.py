"""Writing records to a source of a gateway, over the WebSocket protocol v1 of Lenses.

Records go out one after the other without waiting; at most `IN_FLIGHT` are not answered. A connection that is
lost ends it: of what was not answered by then nobody knows whether it was written, so nothing is sent twice.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

import msgspec
import trio

from kiwi_gw.client.address import Address
from kiwi_gw.client.transport import ClientConnection, ConnectionLost, Dial, connected
from kiwi_gw.errors import KiwiError

IN_FLIGHT: Final = 512
MOST_BYTES: Final = 1_048_576
"""Of a message: a larger one would end the connection."""
_PATH: Final = "/api/kafka/ws/kiwi-gw-produce"
_LOGIN: Final = -1
"""The id of the login; those of records are their numbers, from 0."""


@dataclass(frozen=True, slots=True)
class NotWritten:
    """Say why a record was not written, or that nobody knows. number: of the record, from 0."""

    number: int
    why: str


async def publish(
    address: Address,
    topic: str,
    records: AsyncIterator[Mapping[str, Any]],
    failed: Callable[[NotWritten], None],
    *,
    dial: Dial,
    headers: Sequence[tuple[str, str]] = (),
) -> int:
    """Write all records (`key`, `value`, `partition` and so on, as PUBLISH has them). Returns how many were
    written. failed: called for each that was not.

    Raises KiwiError if the gateway cannot be reached, lets nobody in, or goes away meanwhile; and what the
    records raise, when those before are answered.
    """
    writing = _Writing(topic, failed)
    try:
        async with connected(replace(address, resource=_PATH), dial=dial, headers=headers) as connection:
            await writing.log_in(connection, known=bool(headers))
            return await writing.run(connection, records)
    except ConnectionLost as lost:
        raise KiwiError(f"{lost.ending.why}{writing.left_open}") from None


class _Writing:
    def __init__(self, topic: str, failed: Callable[[NotWritten], None]) -> None:
        self._topic = topic
        self._failed = failed
        self._room = trio.Semaphore(IN_FLIGHT)
        self._waiting: set[int] = set()
        self._written = 0
        self._sent_all = False
        self._trouble: KiwiError | None = None

    @property
    def left_open(self) -> str:
        """Say what is not known where the connection is lost."""
        if not self._waiting:
            return ""
        return f"; {self._written} were written, and of {len(self._waiting)} more nobody knows"

    async def log_in(self, connection: ClientConnection, *, known: bool) -> None:
        """Say who asks, where the head of the request has not: a gateway without authentication wants it,
        too."""
        if known:
            return
        await connection.send(_message("LOGIN", _LOGIN, {"user": "", "password": ""}))
        answer = await _hear(connection)
        if answer.get("type") != "SUCCESS":
            raise KiwiError(f"{answer.get('content')}: a token is needed (--token)")

    async def run(self, connection: ClientConnection, records: AsyncIterator[Mapping[str, Any]]) -> int:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_all, connection, records, nursery.cancel_scope)
            while not self._sent_all or self._waiting:
                self._take(await _hear(connection))
            nursery.cancel_scope.cancel()
        if self._trouble is not None:
            raise KiwiError(f"{self._trouble}; {self._written} were written")
        return self._written

    async def _send_all(
        self,
        connection: ClientConnection,
        records: AsyncIterator[Mapping[str, Any]],
        done: trio.CancelScope,
    ) -> None:
        for number in count():
            try:
                record = await anext(records)
            except StopAsyncIteration:
                break
            except KiwiError as error:
                self._trouble = error
                break
            message = _message("PUBLISH", number, {**record, "topic": self._topic})
            if len(message.encode()) > MOST_BYTES:
                self._failed(NotWritten(number, f"its message has more than {MOST_BYTES} bytes"))
                continue
            await self._room.acquire()
            self._waiting.add(number)
            await connection.send(message)
        self._sent_all = True
        if not self._waiting:
            done.cancel()

    def _take(self, answer: Mapping[str, Any]) -> None:
        number = answer.get("correlationId")
        if number not in self._waiting:
            return  # a heartbeat, or what a newer gateway says
        self._waiting.discard(number)
        self._room.release()
        if answer["type"] == "SUCCESS":
            self._written += 1
        else:
            self._failed(NotWritten(number, str(answer.get("content"))))


def _message(kind: str, number: int, content: Mapping[str, Any]) -> str:
    request = {"type": kind, "correlationId": number, "content": msgspec.json.encode(content).decode()}
    return msgspec.json.encode(request).decode()


async def _hear(connection: ClientConnection) -> Mapping[str, Any]:
    found: object = json.loads(await connection.receive())
    return found if isinstance(found, dict) else {}
