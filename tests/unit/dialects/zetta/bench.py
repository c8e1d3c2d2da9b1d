"""Connections that speak Zetta over a core without a network: real feeds and frames, the test's clock."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from kiwi_gw.core.commands import Command, Continue, Open, SetTimer
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.notices import Continued, OpenFailed, SourceAppeared, TimerFired
from kiwi_gw.core.publishing import publish
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialects.zetta import ZettaDialect
from kiwi_gw.dialects.zetta.settings import ZettaSource
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import ANONYMOUS, Batch, EventSchema, SourceInfo
from tests.heads import head
from tests.transcripts.recorded import texts
from tests.unit.core.desk import Desk, Gateway

NOW = 1_442_944_840_135
"""Every message's timestamp, and that of events."""


class Sources(Gateway):
    """Sources by id, each with a `zetta` block."""

    def __init__(self, limits: HubLimits | None = None, /, **blocks: dict[str, str]) -> None:
        super().__init__(limits=limits)
        self.dialect = ZettaDialect("hub", wall=lambda: NOW, clock=self.clock)
        for name, block in blocks.items():
            self.source(name, **block)

    def source(self, name: str, /, **block: str) -> SourceHub:
        """A new source, or another one under the old name."""
        info = SourceInfo(name, "fake", EventSchema(()), blocks={"zetta": ZettaSource(**block)})
        hub = self.hubs[name] = SourceHub(info, self.limits, self.memo, self.budget, self.clock)
        hub.started({0: 0})
        for desk in self.desks:
            desk.carry_out(desk.session.notice(SourceAppeared(info)))
        return hub

    def send(self, name: str, *values: object, keys: Sequence[str | None] | None = None) -> None:
        """One batch with these values, as JSON."""
        self.raw(name, [json.dumps(value, separators=(",", ":")).encode() for value in values], keys)

    def raw(
        self, name: str, values: Sequence[bytes | None], keys: Sequence[str | None] | None = None
    ) -> None:
        hub = self.hubs[name]
        first = hub.positions[0]
        offsets = range(first, first + len(values))
        columns = {
            "key": [key and key.encode() for key in keys or [None] * len(values)],
            "value": values,
            "timestamp": [NOW] * len(values),
        }
        for _ in publish(hub, Batch({0: first}, [0] * len(values), offsets, columns, 0)):
            pass

    def client(self, query: str = "", limits: SessionLimits | None = None) -> Client:
        return Client(self, query, limits or SessionLimits())


class Client(Desk):
    """One connection. reminders: what its session asked for, in seconds; turns: the same, for a turn.
    refusal: the code with which it is refused every source, if any."""

    def __init__(self, sources: Sources, query: str, limits: SessionLimits) -> None:
        self.reminders: list[float] = []
        self.turns: list[float] = []
        self.refusal = ""
        self._heard = 0
        super().__init__(sources, sources.dialect.open_session(head(query), {}, ANONYMOUS, limits))

    def carry_out(self, commands: Iterable[Command]) -> None:
        def noted() -> Iterable[Command]:
            for command in commands:
                if isinstance(command, SetTimer):
                    self.reminders.append(command.seconds)
                elif isinstance(command, Continue):
                    self.turns.append(command.seconds)
                yield command

        super().carry_out(noted())

    def _open(self, command: Open) -> None:
        if self.refusal:
            failed = OpenFailed(command.handle, self.refusal, "it cannot be read")
            self.carry_out(self.session.notice(failed))
            return
        try:
            super()._open(command)
        except SubscribeRefused as refused:
            self.carry_out(self.session.notice(OpenFailed(command.handle, refused.code, str(refused))))

    def raw(self, message: str | bytes) -> None:
        self.carry_out(self.session.receive(message, self.gateway.clock()))

    def subscribe(self, topic: str, **more: object) -> None:
        self.say(type="subscribe", topic=topic, **more)

    def hear(self) -> list[dict[str, Any]]:
        data = bytes(self.writer.wire[self._heard :])
        self._heard += len(data)
        return [json.loads(text) for text in texts(data)]

    def seen(self) -> list[tuple[object, ...]]:
        """(topic, id, data) of events, (type, id) of the rest, (code, topic, message) of errors."""
        found: list[tuple[object, ...]] = []
        for message in self.hear():
            assert message.pop("timestamp") == NOW
            match message["type"]:
                case "event":
                    found.append((message["topic"], message["subscriptionId"], message["data"]))
                case "error":
                    found.append((message["code"], message.get("topic"), message["message"]))
                case kind:
                    found.append((kind, message.get("subscriptionId")))
        return found

    def pass_time(self, seconds: float) -> None:
        """Time goes by, and what was asked for comes."""
        self.gateway.clock.now += seconds
        due, self.reminders = self.reminders, []
        for _ in due:
            self.carry_out(self.session.notice(TimerFired()))

    def turn(self, *, idle: bool = False) -> None:
        """The turn comes that was asked for."""
        (_,), self.turns = self.turns, []
        self.carry_out(self.session.notice(Continued(idle)))

    def finish(self) -> None:
        """Every turn that it asks for comes."""
        while self.turns:
            self.turn()
