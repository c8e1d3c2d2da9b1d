"""A client of SQL v2 beside a gateway of the core alone: one statement, its timers, and its end."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from typing import Any, Final

from kiwi_gw.core.commands import Close, Command, Open, OpenQuery, SetTimer
from kiwi_gw.core.encoding import keyed_format
from kiwi_gw.core.notices import Notice, OpenFailed, TimerFired
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.core.subscription import Subscription
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialects.encoder import MAX_EVENT_BYTES
from kiwi_gw.dialects.lenses.settings import LensesSettings
from kiwi_gw.dialects.lenses.tables import Tables
from kiwi_gw.dialects.lenses.v2.executions import Executions
from kiwi_gw.dialects.lenses.v2.session import LensesSqlSession
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import (
    ANONYMOUS,
    Credential,
    EventSchema,
    HeadCredential,
    Identity,
    Positions,
    Refusal,
    SourceInfo,
)
from kiwi_gw.runtime.session_end import end_session
from tests.unit.core.desk import Gateway
from tests.unit.dialects.lenses.bench import Caller, Json

PATH: Final = "/api/ws/v2/sql/execute"
FULL_SECONDS: Final = 0.25
"""After so long a timer is tried again of a client that takes nothing."""

ROWS: Final = EventSchema(())


class SqlCaller(Caller):
    """One connection. executions: those of all. deadlines: timers that no client holds up.

    It ends as a connection does: behind a close frame nothing is carried out, and its session is told.
    """

    def __init__(
        self,
        gateway: Gateway,
        *,
        executions: Executions | None = None,
        settings: LensesSettings | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        identity: Identity = ANONYMOUS,
        known: Callable[[Credential], Identity | Refusal] = lambda credential: ANONYMOUS,
    ) -> None:
        self.executions = executions or Executions(64, 8)
        self.query: OpenQuery | None = None
        self.rows: SourceHub | None = None
        self.holds_queries = False
        self.deadlines: list[float] = []
        head = HeadCredential("GET", PATH, "", headers, "10.0.0.1:5000")
        clock = gateway.clock
        self.sql = LensesSqlSession(
            Tables(),
            SessionLimits(),
            settings or LensesSettings(),
            head,
            identity,
            self.executions,
            MAX_EVENT_BYTES,
            clock,
            lambda: round(clock() * 1000),
        )
        super().__init__(gateway, self.sql, known)

    def ask(self, sql: str, **members: object) -> None:
        """Send the one message."""
        self.say(sql=sql, **members)

    def receive(self, message: str | bytes) -> None:
        """Send any message."""
        if self.hung_up is None:
            self.carry_out(self.session.receive(message, self.gateway.clock()))

    @property
    def code(self) -> int | None:
        """The code of its close frame."""
        return None if self.hung_up is None else int(self.hung_up.code)

    def kinds(self) -> list[str]:
        """The types of the messages since the last call."""
        return [message["type"] for message in self.heard()]

    def end(self) -> None:
        """Go, or be let go."""
        for handle, subscription in list(self.open.items()):
            del self.open[handle]
            subscription.cancel()
        self.session = end_session(self.session)

    def notify(self, subscription: Subscription, notice: Notice) -> None:
        if self.hung_up is None:
            super().notify(subscription, notice)

    def carry_out(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if self.hung_up is not None:
                break
            match command:
                case Close():
                    self.hung_up = command
                    self.end()
                case SetTimer(seconds, False):
                    self.deadlines.append(self.gateway.clock() + seconds)
                case OpenQuery():
                    self.query = command
                    if not self.holds_queries:
                        self.run_query()
                case _:
                    super().carry_out((command,))

    def run_query(self) -> None:
        """Begin with the query that was asked for. Its rows are published by the test, to `rows`."""
        assert self.query is not None
        command, gateway = self.query, self.gateway
        info = SourceInfo("query", "query", ROWS)
        self.rows = SourceHub(info, gateway.limits, gateway.memo, gateway.budget, gateway.clock)
        gateway.hubs["query"] = self.rows
        try:
            item = keyed_format(command.wire(info))
        except SubscribeRefused as refused:
            self.carry_out(self.session.notice(OpenFailed(command.handle, refused.code, str(refused))))
            return
        asked = Open(command.handle, info.id, command.wire, limits=command.limits)
        self.open[command.handle] = self.rows.subscribe(asked, item, self.writer, self, self.payer)
        self.rows.started({0: 0})
        while self.rows.begin_some():
            pass

    def pass_time(self, seconds: float) -> None:
        """Let so many seconds pass, and have each timer fire when it is due and the client takes any."""
        clock = self.gateway.clock
        until = clock.now + seconds
        while (due := min([*self.timers, *self.deadlines], default=math.inf)) <= until:
            clock.now = max(clock.now, due)
            if due in self.deadlines:
                self.deadlines.remove(due)
                self.carry_out(self.session.notice(TimerFired(held=False)))
                continue
            self.timers.remove(due)
            if not self.writer.writable:
                self.timers.append(clock.now + FULL_SECONDS)
            else:
                self.carry_out(self.session.notice(TimerFired()))
        clock.now = until


def statement(sql: str, **members: object) -> str:
    """The message with a statement."""
    return json.dumps({"sql": sql, **members})


def data(messages: list[Json], kind: str) -> list[Any]:
    """What the messages of one type say."""
    return [message["data"] for message in messages if message["type"] == kind]


def replayable(gateway: Gateway, positions: Positions) -> SourceHub:
    """Add the source `cars` with a history that answers nothing by itself."""
    info = SourceInfo("cars", "fake", EventSchema(()), replayable=True)
    hub = SourceHub(info, gateway.limits, gateway.memo, gateway.budget, gateway.clock)
    gateway.hubs["cars"] = hub
    hub.started(positions)
    return hub
