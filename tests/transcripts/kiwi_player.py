"""Plays a recorded exchange against a Kiwi session, comparing the exact text of every frame.

Its lines, beside remarks (see `recorded`):

    @ nested                        the envelope (flat if not said); first
    @ limits {"subscriptions": 2}   what differs from the default `SessionLimits`; first
    @ now 2.5                       the time of the frames that follow, in seconds
    > {"type": ...}                 a text frame of the client
    >> 00ff                         a binary frame of the client, in hex
    ! opened flights {...}          what happens in the core; see `_NOTICES`
    < {"type": ...}                 a text frame of the gateway
    < close 1008 the reason         it closes the connection
    = open flights push             a command to the core: `open`, `grant`, `cancel`, `remind`, `examine`

A transcript goes on after a close, as if on a connection with the same past, so that many bad frames fit in
one file.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, get_args

from kiwi_counter.counter import SCHEMA as COUNTER_SHAPE
from kiwi_gw.core.commands import AddCredit, Cancel, Close, Command, Inspect, Open, Reply, Session, SetTimer
from kiwi_gw.core.notices import (
    Cancelled,
    CreditAdded,
    Draining,
    Ended,
    Inspected,
    Lagged,
    Notice,
    Opened,
    OpenFailed,
    PositionsReported,
    SourceAppeared,
    SourceDegraded,
    TimerFired,
)
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialects.kiwi.dialect import KiwiDialect
from kiwi_gw.dialects.kiwi.results import Envelope
from kiwi_gw.model import (
    ANONYMOUS,
    AtPositions,
    AtTime,
    Batch,
    CloseReason,
    OverflowPolicy,
    SourceInfo,
    StartAt,
    Until,
    WireFormat,
)
from kiwi_kafka.event_schema import event_schema
from tests.encoding import encoded
from tests.heads import HEAD
from tests.transcripts.recorded import texts

SOURCES = {
    "flights": SourceInfo("flights", "kafka", event_schema()),
    "brief": SourceInfo("brief", "kafka", event_schema(["key", "value"])),
    "ticks": SourceInfo("ticks", "counter", COUNTER_SHAPE),
}


def source(source_id: str) -> SourceInfo:
    return SOURCES.get(source_id) or SourceInfo(source_id, "counter", COUNTER_SHAPE)


def _opened(source_id: str, positions: dict[str, int], overflow: str, capacity: int) -> Notice:
    return Opened(source_id, source(source_id), positions, OverflowPolicy(overflow), capacity)


def _lagged(source_id: str, **numbers: Any) -> Notice:
    ranges = {int(partition): tuple(ends) for partition, ends in numbers.pop("ranges").items()}
    return Lagged(source_id, source(source_id), ranges=ranges, **numbers)


def _ended(
    source_id: str, reason: str, message: str, positions: dict[str, int], dropped: int | None
) -> Notice:
    return Ended(source_id, source(source_id), CloseReason(reason), message, positions, dropped)


def _examined(source_id: str, sent: int, newest: list[dict[str, Any]]) -> Notice:
    return Inspected(source_id, source(source_id), sent, tuple(batch(**columns) for columns in newest))


_NOTICES: dict[str, Callable[..., Notice]] = {
    "opened": _opened,
    "failed": OpenFailed,
    "granted": CreditAdded,
    "cancelled": Cancelled,
    "lagged": _lagged,
    "ended": _ended,
    "positions": lambda source_id, positions: PositionsReported(source_id, source(source_id), positions),
    "troubled": lambda source_id, message: SourceDegraded(source_id, source(source_id), message),
    "draining": Draining,
    "reminded": TimerFired,
    "examined": _examined,
    "appeared": lambda source_id: SourceAppeared(source(source_id)),
}
"""`! name handle {arguments by name}`; the handle is missing where the notice has none."""


@dataclass
class Player:
    """One session and the wire formats that it has asked for."""

    envelope: Envelope = "flat"
    limits: dict[str, Any] = field(default_factory=dict)
    now: float = 0.0
    wires: dict[str, WireFormat] = field(default_factory=dict)
    _session: Session | None = None

    @property
    def session(self) -> Session:
        if self._session is None:
            limits = SessionLimits(**self.limits)
            self._session = KiwiDialect(self.envelope, clock=lambda: self.now).open_session(
                HEAD, {}, ANONYMOUS, limits
            )
        return self._session

    def play(self, line: str) -> list[str]:
        """What a `@`, `>`, `>>` or `!` line brings about, as lines."""
        mark, _, rest = line.partition(" ")
        match mark:
            case "@":
                self._set(rest)
                return []
            case ">":
                return self._said(self.session.receive(rest, self.now))
            case ">>":
                return self._said(self.session.receive(bytes.fromhex(rest), self.now))
            case "!":
                return self._happened(rest)
            case _:
                raise ValueError(f"not a line of a transcript: {line!r}")

    def _set(self, words: str) -> None:
        name, _, value = words.partition(" ")
        if name in get_args(Envelope):
            self.envelope = "nested" if name == "nested" else "flat"
        elif name == "limits":
            self.limits = json.loads(value)
        elif name == "now":
            self.now = float(value)
        else:
            raise ValueError(f"no setting is called {name!r}")

    def _happened(self, words: str) -> list[str]:
        name, _, rest = words.partition(" ")
        handle, _, arguments = rest.partition(" ") if not rest.startswith("{") else ("", "", rest)
        named = json.loads(arguments or "{}")
        if name == "events":
            return [f"< {text}" for text in texts(encoded(self.wires[handle], batch(**named)).buffer)]
        return self._said(self.session.notice(_NOTICES[name](*([handle] if handle else []), **named)))

    def _said(self, commands: Iterable[Command]) -> list[str]:
        lines: list[str] = []
        for command in commands:
            match command:
                case Reply(frame):
                    lines += [f"< {text}" for text in texts(frame)]
                case Close(code, reason):
                    lines.append(f"< close {code} {reason}")
                case Open():
                    self.wires[str(command.handle)] = command.wire(source(command.source_id))
                    lines.append(_open_line(command))
                case AddCredit(handle, n):
                    lines.append(f"= grant {handle} {n}")
                case Cancel(handle):
                    lines.append(f"= cancel {handle}")
                case SetTimer(seconds):
                    lines.append(f"= remind {seconds:g}")
                case Inspect(handle):
                    lines.append(f"= examine {handle}")
                case _:
                    raise AssertionError(command)
        return lines


def _open_line(command: Open) -> str:
    assert command.handle == command.source_id
    assert (command.credits, command.limits) == (0, {})
    words = ["= open", command.source_id, command.mode.value]
    if command.overflow is not None:
        words.append(command.overflow.value)
    if command.buffer_capacity is not None:
        words.append(str(command.buffer_capacity))
    match command.start:
        case StartAt.LATEST:
            pass
        case StartAt(value=name):
            words += ["from", name]
        case AtTime(timestamp):
            words += ["from time", str(timestamp)]
        case AtPositions(positions, skip_missing):
            words += ["from", json.dumps(positions), *(["skipping"] if skip_missing else [])]
    if command.until is not None:
        assert command.until is Until.END
        words.append("until the end")
    if command.positions_every is not None:
        words.append(f"positions every {command.positions_every:g} s")
    return " ".join(words)


def batch(partitions: list[int], offsets: list[int], **columns: list[Any]) -> Batch:
    """Columns in JSON: texts stand for their bytes, except in `{"base64": ".."}`."""
    return Batch(
        {0: 0},
        partitions,
        offsets,
        {name: [_value(value) for value in values] for name, values in columns.items()},
        cost=1,
    )


def _value(value: object) -> object:
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return value.encode() if isinstance(value, str) else value
