"""A gateway with a few sources, and connections that carry out what sessions want. Frames: JSON lines."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from functools import lru_cache

from kiwi_gw.core.accounts import ClientAccount, Payer
from kiwi_gw.core.commands import (
    AddCredit,
    Cancel,
    Close,
    Command,
    Offload,
    Open,
    Reconfigure,
    Reply,
    Session,
)
from kiwi_gw.core.encoding import EncodingMemo, keyed_format
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.notices import (
    Cancelled,
    CreditAdded,
    Ended,
    Notice,
    Offloaded,
    Opened,
    OpenFailed,
    ReconfigureRefused,
    SourceAppeared,
)
from kiwi_gw.core.publishing import publish
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.window import MemoryBudget
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import Batch, EventSchema, SourceInfo
from kiwi_gw.query.worker_messages import answer
from tests.unit.core.fakes import Clock, FakeFrameWriter

Json = dict[str, object]
_answered = lru_cache(maxsize=64)(answer)
"""As by the process beside the loop, whose last answers are known, too."""


def line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


class Gateway:
    """Hold a few sources, and what tells sessions of new ones."""

    def __init__(self, *names: str, limits: HubLimits | None = None) -> None:
        self.clock = Clock()
        self.budget = MemoryBudget(1 << 30)
        self.memo = EncodingMemo(1 << 30, self.budget)
        self.limits = limits or HubLimits()
        self.hubs: dict[str, SourceHub] = {}
        self.desks: list[Desk] = []
        for name in names:
            self.add(name)

    def add(self, name: str, *, started: bool = True) -> SourceHub:
        info = SourceInfo(name, "fake", EventSchema(()))
        hub = self.hubs[name] = SourceHub(info, self.limits, self.memo, self.budget, self.clock)
        if started:
            hub.started({0: 0})
        for desk in self.desks:
            desk.carry_out(desk.session.notice(SourceAppeared(info)))
        return hub

    def publish(self, name: str, *values: object) -> None:
        hub = self.hubs[name]
        first = hub.positions[0]
        offsets = range(first, first + len(values))
        for _ in publish(hub, Batch({0: first}, [0] * len(values), offsets, {"value": values}, 0)):
            pass


class Desk:
    """Carry out what its session wants, as a connection does."""

    def __init__(self, gateway: Gateway, session: Session) -> None:
        self.gateway = gateway
        self.session = session
        self.writer = FakeFrameWriter()
        self.open: dict[Hashable, Subscription] = {}
        self.hung_up: Close | None = None
        self.payer = Payer(ClientAccount(0), self)
        self._read = 0
        gateway.desks.append(self)
        for hub in gateway.hubs.values():
            self.carry_out(session.notice(SourceAppeared(hub.info)))

    def say(self, **message: object) -> None:
        self.carry_out(self.session.receive(json.dumps(message), self.gateway.clock()))

    def hear(self) -> list[Json]:
        """Return the messages since the last call."""
        data = bytes(self.writer.wire[self._read :])
        self._read += len(data)
        return [json.loads(text) for text in data.splitlines()]

    def notify(self, subscription: Subscription, notice: Notice) -> None:
        if isinstance(notice, Opened):
            self.open[notice.handle] = subscription
        elif isinstance(notice, Ended | OpenFailed):
            self.open.pop(notice.handle, None)
        self.carry_out(self.session.notice(notice))

    def carry_out(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Reply(frame):
                    self.writer.control(frame)
                case Open():
                    self._open(command)
                case AddCredit(handle, n):
                    balance = self.open[handle].add_credit(n)
                    self.carry_out(self.session.notice(CreditAdded(handle, n, balance)))
                case Reconfigure():
                    self._recast(command)
                case Cancel(handle):
                    self.open.pop(handle).cancel()
                    self.carry_out(self.session.notice(Cancelled(handle)))
                case Offload(handle, question):
                    self.carry_out(self.session.notice(Offloaded(handle, _answered(question))))
                case Close():
                    self.hung_up = command

    def _open(self, command: Open) -> None:
        hub = self.gateway.hubs.get(command.source_id)
        if hub is None:
            words = "No source exists with the specified ID"
            self.carry_out(self.session.notice(OpenFailed(command.handle, "refused", words)))
            return
        hub.subscribe(command, keyed_format(command.wire(hub.info)), self.writer, self, self.payer)

    def _recast(self, command: Reconfigure) -> None:
        subscription = self.open[command.handle]
        item = keyed_format(command.wire(subscription.hub.info))
        try:
            subscription.hub.reconfigure(subscription, item, command.limits, fewer=command.fewer)
        except SubscribeRefused as refused:
            if command.fewer:
                subscription.hub.withdraw(subscription, str(refused))
            else:
                self.carry_out(
                    self.session.notice(ReconfigureRefused(command.handle, refused.code, str(refused)))
                )
