"""Clients of Lenses beside a gateway of the core alone: what they say, and what they hear."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.commands import (
    AddCredit,
    Call,
    Cancel,
    Command,
    Commit,
    Continue,
    Inspect,
    LogIn,
    Offload,
    Open,
    Produce,
    Session,
    SetTimer,
    WatchSilence,
)
from kiwi_gw.core.encoding import keyed_format
from kiwi_gw.core.notices import CallDone, Continued, Inspected, OpenFailed, TimerFired
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialects.compiling import CompilingBudget
from kiwi_gw.dialects.encoder import MAX_EVENT_BYTES
from kiwi_gw.dialects.lenses.settings import LensesSettings
from kiwi_gw.dialects.lenses.tables import Tables
from kiwi_gw.dialects.lenses.v1.session import LensesV1Session
from kiwi_gw.dialects.lenses.v1.subscribing import StatementReader
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import ANONYMOUS, Credential, Identity, Refusal
from tests.edge.wire import CLOSE, FrameReader
from tests.unit.core.desk import Desk, Gateway

Json = dict[str, Any]


FRAME_BYTES = 300
"""Of the records of a frame: a few."""


def reader(tables: Tables, limits: SessionLimits, clock: Callable[[], float]) -> StatementReader:
    """Make what reads SQL, as the protocol does."""
    compiling = CompilingBudget(limits, clock)
    return StatementReader(tables, limits, compiling, FRAME_BYTES, MAX_EVENT_BYTES, clock)


class Caller(Desk):
    """One connection, of any protocol of Lenses. known: says whose a credential is. silence: for how long
    nothing may be said. offloads: questions that are not answered, where it holds them. given_up: what was
    cancelled that is not open. turns: what it has asked for to go on."""

    def __init__(
        self,
        gateway: Gateway,
        session: Session,
        known: Callable[[Credential], Identity | Refusal] = lambda credential: ANONYMOUS,
    ) -> None:
        self.timers: list[float] = []
        self.silence: float | None = None
        self.calls: list[Call] = []
        self.writes: list[Produce | Commit] = []
        self.holds_calls = False
        self.offloads: list[Offload] = []
        self.holds_offloads = False
        self.given_up: list[Hashable] = []
        self.turns: list[Continue] = []
        self._known = known
        self._frames = FrameReader()
        super().__init__(gateway, session)

    def heard(self) -> list[Json]:
        """Return the messages since the last call."""
        data = bytes(self.writer.wire[self._read :])
        self._read += len(data)
        return [json.loads(each.payload) for each in self._frames.feed(data) if each.opcode != CLOSE]

    def carry_out(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case SetTimer(seconds):
                    self.timers.append(self.gateway.clock() + seconds)
                case WatchSilence(seconds):
                    self.silence = seconds
                case Inspect(handle):
                    if (found := self.open.get(handle)) is not None:
                        told = Inspected(handle, found.hub.info, found.delivery.matched, ())
                        self.carry_out(self.session.notice(told))
                case AddCredit(handle) if handle not in self.open:
                    pass
                case Cancel(handle) if handle not in self.open:
                    self.given_up.append(handle)
                case Offload() if self.holds_offloads:
                    self.offloads.append(command)
                case Produce() | Commit():
                    self.writes.append(command)
                case Continue():
                    self.turns.append(command)
                case Call():
                    self.calls.append(command)
                    if not self.holds_calls:
                        self.answer()
                case _:
                    super().carry_out((command,))

    def _open(self, command: Open) -> None:
        """Open it as a connection does: it is there while it waits for its source."""
        hub = self.gateway.hubs.get(command.source_id)
        if hub is None:
            unknown = OpenFailed(command.handle, RefusalCode.UNKNOWN_SOURCE, "no source has this id")
            self.carry_out(self.session.notice(unknown))
            return
        try:
            form = keyed_format(command.wire(hub.info))
            subscription = hub.subscribe(command, form, self.writer, self, self.payer)
        except SubscribeRefused as refused:
            self.carry_out(self.session.notice(OpenFailed(command.handle, refused.code, str(refused))))
        else:
            if not subscription.closed:
                self.open[command.handle] = subscription

    def answer(self) -> None:
        """Answer the calls that wait."""
        while self.calls:
            call = self.calls.pop(0)
            assert isinstance(call.request, LogIn)
            self.carry_out(self.session.notice(CallDone(call.handle, self._known(call.request.credential))))

    def go_on(self) -> None:
        """Let it have the turn that it waits for."""
        self.turns.pop()
        self.carry_out(self.session.notice(Continued(idle=False)))

    def pass_time(self, seconds: float) -> None:
        """Let so many seconds pass, and have the timers that are due fire."""
        self.gateway.clock.now += seconds
        due = [at for at in self.timers if at <= self.gateway.clock()]
        self.timers = [at for at in self.timers if at > self.gateway.clock()]
        for _ in due:
            self.carry_out(self.session.notice(TimerFired()))


class Page(Caller):
    """A connection of v1. identified: somebody is logged in."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        identified: bool = True,
        known: Callable[[Credential], Identity | Refusal] = lambda credential: ANONYMOUS,
        limits: SessionLimits | None = None,
    ) -> None:
        tables, limits = Tables(), limits or SessionLimits()
        session = LensesV1Session(
            tables,
            reader(tables, limits, gateway.clock),
            limits,
            LensesSettings(),
            "me",
            "ann" if identified else None,
            gateway.clock,
        )
        super().__init__(gateway, session, known)

    def ask(self, kind: str, number: int, content: object, token: str | None = None) -> None:
        """Send a request."""
        self.say(type=kind, correlationId=number, content=json.dumps(content), authToken=token)
