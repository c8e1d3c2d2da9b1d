"""A client of the gateway that keeps everything it is given, with times and values, for the checker."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import trio

from tests.faults.checker import Closed, Item, Lag, Resumed, Run
from tests.integration.wire import CLOSE, PING, PONG, TEXT, command, frame, frames, shake_hands
from tests.offsets_of import offsets_of

_READ_BYTES = 65_536


def kafka_value(event: Mapping[str, Any]) -> object:
    """Return the number of a record of `tests.integration.feeder`."""
    return int(event["value"][:12])


@dataclass(frozen=True, slots=True)
class Wish:
    """Say what a watcher asks for. more: further members of its SUBSCRIBE. resume: whether it comes back when
    its connection ends, and goes on where it was."""

    source: str
    mode: str = "push"
    credit: int = 0
    more: Mapping[str, object] = field(default_factory=dict)
    resume: bool = False


class Watcher:
    """Keep what a client is given. history: since `cut`. next: where it is, per partition. lost: how many of
    its connections have ended without its wish. complaints: what no protocol allows. told: what notices said
    of its source, and when (SOURCE_DEGRADED, SOURCE_RESTORED)."""

    def __init__(
        self,
        name: str,
        port: int,
        wish: Wish,
        value: Callable[[Mapping[str, Any]], object] | None = None,
        keep: Callable[[float, Mapping[str, Any]], None] | None = None,
    ) -> None:
        self.name = name
        self.history: list[Item] = []
        self.next: dict[int, int] = {}
        self.lost = 0
        self.complaints: list[str] = []
        self.told: list[tuple[float, str]] = []
        self.last_at = 0.0
        self.closed: Closed | None = None
        self._port = port
        self._wish = wish
        self._value = value
        self._keep = keep
        self._balance = 0
        self._buffer = bytearray()
        self._told = trio.lowlevel.ParkingLot()
        self._subscribed = False

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled, or its connection has ended (and it does not resume)."""
        told_started = False
        while True:
            self._subscribed = False
            async with await trio.open_tcp_stream("127.0.0.1", self._port) as stream:
                await self._subscribe(stream)
                if not told_started:
                    task_status.started()
                    told_started = True
                try:
                    await self._read(stream)
                except trio.BrokenResourceError as error:
                    self.complaints.append(f"the connection broke: {error.__cause__ or error}")
            self.lost += 1
            self._told.unpark_all()
            if not self._wish.resume:
                return

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait until this is so, looking whenever something has come."""
        while not done():
            await self._told.park()

    def cut(self) -> list[Item]:
        """Return the history so far; a new one begins."""
        history, self.history = self.history, []
        return history

    # --- inside ---

    async def _subscribe(self, stream: trio.SocketStream) -> None:
        more = dict(self._wish.more)
        if self.next:
            more["from"] = {"positions": {str(p): offset for p, offset in self.next.items()}}
        await shake_hands(stream)
        await stream.send_all(command("SUBSCRIBE", self._wish.source, mode=self._wish.mode, **more))
        self._buffer.clear()
        while not self._subscribed:
            if not await self._read_some(stream):
                raise AssertionError(f"{self.name}: the connection ended before SUBSCRIBE_OK")

    async def _read(self, stream: trio.SocketStream) -> None:
        if self._wish.mode == "pull":
            self._balance = 0
            await self._top_up(stream)
        while await self._read_some(stream):
            if self._wish.mode == "pull" and self._balance <= self._wish.credit // 2:
                await self._top_up(stream)

    async def _read_some(self, stream: trio.SocketStream) -> bool:
        data = await stream.receive_some(_READ_BYTES)
        if not data:
            return False
        now = time.monotonic()
        self._buffer += data
        for opcode, payload in frames(self._buffer):
            if opcode == TEXT:
                self._message(msgspec.json.decode(payload), now)
            elif opcode == PING:
                await stream.send_all(frame(PONG, payload))
            elif opcode == CLOSE:
                self.complaints.append(f"close frame {payload!r}")
            else:
                self.complaints.append(f"frame {opcode:x}")
        self._told.unpark_all()
        return True

    async def _top_up(self, stream: trio.SocketStream) -> None:
        if self._balance < 0:
            self.complaints.append(f"{-self._balance} more events than were asked for")
        n = self._wish.credit - self._balance
        self._balance += n
        await stream.send_all(command("REQUEST", self._wish.source, n=n))

    def _message(self, message: dict[str, Any], now: float) -> None:
        data = message.get("data", {})
        match message["type"]:
            case "RESULT":
                self._event(data, now)
            case "REQUEST_OK":
                pass
            case "SUBSCRIBE_OK":
                begins = {int(p): offset for p, offset in offsets_of(data["positions"]).items()}
                if self.next:
                    self.history.append(Resumed(begins))
                self.next = begins
                self._subscribed = True
            case "NOTICE" if data["type"] == "LAG":
                ranges = {int(p): (first, last) for p, (first, last) in data["ranges"].items()}
                self.history.append(Lag(data["behind"], data["dropped"], data["count"], ranges))
                for partition, (_, last) in ranges.items():
                    self.next[partition] = max(self.next.get(partition, 0), last + 1)
            case "NOTICE" if data["type"] == "SUBSCRIPTION_CLOSED":
                positions = {int(p): offset for p, offset in offsets_of(data["positions"]).items()}
                self.closed = Closed(data["reason"], data["dropped"], positions)
                self.history.append(self.closed)
            case "NOTICE" if data["type"] in ("SOURCE_DEGRADED", "SOURCE_RESTORED"):
                self.told.append((now, data["type"]))
            case _:
                self.complaints.append(f"unexpected: {message}")

    def _event(self, event: dict[str, Any], now: float) -> None:
        partition, offset = event["partition"], event["offset"]
        values = None if self._value is None else (self._value(event),)
        last = self.history[-1] if self.history else None
        if (
            isinstance(last, Run)
            and (last.partition, last.last + 1, last.at) == (partition, offset, now)
            and (last.values is None) == (values is None)
        ):
            merged = None if values is None or last.values is None else last.values + values
            self.history[-1] = Run(partition, last.first, offset, now, merged)
        else:
            self.history.append(Run(partition, offset, offset, now, values))
        self.next[partition] = offset + 1
        self.last_at = now
        self._balance -= 1
        if self._keep is not None:
            self._keep(now, event)
