"""A gateway with a few sources, and connections that carry out what sessions want. Frames: JSON lines."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from functools import lru_cache

from kiwi_gw.core.accounts import OwnAccount, Payer
from kiwi_gw.core.commands import Cancel, Command, Grant, Hangup, Offload, Open, Recast, Reply, Session
from kiwi_gw.core.encoding import EncodingMemo, wire
from kiwi_gw.core.feed import Feed, FeedLimits, Request
from kiwi_gw.core.notices import (
    Cancelled,
    Ended,
    Granted,
    Notice,
    Offloaded,
    Opened,
    OpenFailed,
    RecastRefused,
    SourceAppeared,
)
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.core.window import Budget
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import Batch, Shape, SourceInfo
from kiwi_gw.query.offloaded import answer
from tests.unit.core.fakes import Clock, FakeOutlet

Json = dict[str, object]
_answered = lru_cache(maxsize=64)(answer)
"""As by the process beside the loop, whose last answers are known, too."""


def line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


class Gateway:
    """A few sources, and what tells sessions of new ones."""

    def __init__(self, *names: str, limits: FeedLimits | None = None) -> None:
        self.clock = Clock()
        self.budget = Budget(1 << 30)
        self.memo = EncodingMemo(1 << 30, self.budget)
        self.limits = limits or FeedLimits()
        self.feeds: dict[str, Feed] = {}
        self.desks: list[Desk] = []
        for name in names:
            self.add(name)

    def add(self, name: str) -> Feed:
        info = SourceInfo(name, "fake", Shape(()))
        feed = self.feeds[name] = Feed(info, self.limits, self.memo, self.budget, self.clock)
        feed.started({0: 0})
        for desk in self.desks:
            desk.carry_out(desk.session.notice(SourceAppeared(info)))
        return feed

    def publish(self, name: str, *values: object) -> None:
        feed = self.feeds[name]
        first = feed.positions[0]
        offsets = range(first, first + len(values))
        for _ in feed.publish(Batch({0: first}, [0] * len(values), offsets, {"value": values}, 0)):
            pass


class Desk:
    """A connection: carries out what its session wants."""

    def __init__(self, gateway: Gateway, session: Session) -> None:
        self.gateway = gateway
        self.session = session
        self.outlet = FakeOutlet()
        self.open: dict[Hashable, Subscription] = {}
        self.hung_up: Hangup | None = None
        self.payer = Payer(OwnAccount(0), self)
        self._read = 0
        gateway.desks.append(self)
        for feed in gateway.feeds.values():
            self.carry_out(session.notice(SourceAppeared(feed.info)))

    def say(self, **message: object) -> None:
        self.carry_out(self.session.receive(json.dumps(message), self.gateway.clock()))

    def hear(self) -> list[Json]:
        """The messages since the last call."""
        data = bytes(self.outlet.wire[self._read :])
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
                    self.outlet.control(frame)
                case Open():
                    self._open(command)
                case Grant(handle, n):
                    self.carry_out(self.session.notice(Granted(handle, n, self.open[handle].grant(n))))
                case Recast():
                    self._recast(command)
                case Cancel(handle):
                    self.open.pop(handle).cancel()
                    self.carry_out(self.session.notice(Cancelled(handle)))
                case Offload(handle, question):
                    self.carry_out(self.session.notice(Offloaded(handle, _answered(question))))
                case Hangup():
                    self.hung_up = command

    def _open(self, command: Open) -> None:
        feed = self.gateway.feeds.get(command.source_id)
        if feed is None:
            words = "No source exists with the specified ID"
            self.carry_out(self.session.notice(OpenFailed(command.handle, "refused", words)))
            return
        # "end": where the source's next event will be at this moment.
        until = feed.positions if command.until == "end" else feed.info.codec.load(command.until or {})
        request = Request(
            command.handle,
            wire(command.wire(feed.info), None),
            command.mode,
            command.credits,
            command.limits,
            until=until if command.until is not None else None,
            start=command.start,
            payer=self.payer,
        )
        feed.subscribe(request, self.outlet, self)

    def _recast(self, command: Recast) -> None:
        subscription = self.open[command.handle]
        item = wire(command.wire(subscription.feed.info), None)
        try:
            subscription.recast(item, command.limits, fewer=command.fewer)
        except SubscribeRefused as refused:
            if command.fewer:
                subscription.feed.withdraw(subscription, str(refused))
            else:
                self.carry_out(self.session.notice(RecastRefused(command.handle, refused.code, str(refused))))
