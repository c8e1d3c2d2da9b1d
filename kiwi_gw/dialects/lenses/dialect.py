"""The protocols of Lenses as a dialect of the gateway: their routes, and what their connections share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kiwi_gw.core.commands import Session
from kiwi_gw.dialect_api.dialect import Document, Route, WebSocketRoute
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialects.compiling import CompilingBudget
from kiwi_gw.dialects.encoder import MAX_EVENT_BYTES
from kiwi_gw.dialects.lenses.login import login_routes
from kiwi_gw.dialects.lenses.settings import LensesSettings
from kiwi_gw.dialects.lenses.tables import Tables
from kiwi_gw.dialects.lenses.v1.session import LensesV1Session
from kiwi_gw.dialects.lenses.v1.subscribing import StatementReader
from kiwi_gw.dialects.lenses.v2.executions import Executions
from kiwi_gw.dialects.lenses.v2.session import LensesSqlSession
from kiwi_gw.model import HeadCredential, Identity

V1 = "lenses_v1"
SQL = "lenses_sql"

_SQL_PATH = "/api/ws/v2/sql/execute"
_MOST_BYTES = 1_048_576
_MOST_SQL_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class LensesDialect:
    """Implement `kiwi_gw.dialect_api.Dialect`. clock: monotonic seconds."""

    settings: LensesSettings
    max_event_bytes: int = MAX_EVENT_BYTES
    clock: Callable[[], float] = time.monotonic
    _tables: Tables = field(default_factory=Tables, compare=False)
    _executions: Executions = field(init=False, compare=False)

    def __post_init__(self) -> None:
        sql = self.settings.sql
        object.__setattr__(self, "_executions", Executions(sql.queries, sql.queries_identity))

    @property
    def routes(self) -> Sequence[Route]:
        login_seconds = self.settings.login_timeout_ms / 1000
        return (
            WebSocketRoute("/api/kafka/ws/{client}", (), _MOST_BYTES, login_seconds, V1),
            WebSocketRoute(_SQL_PATH, (), _MOST_SQL_BYTES, login_seconds, SQL),
            *login_routes(),
        )

    @property
    def documents(self) -> Mapping[str, Document]:
        return {}

    def open_session(
        self, head: HeadCredential, parameters: Mapping[str, str], identity: Identity, limits: SessionLimits
    ) -> Session:
        settings = self.settings
        if head.path == _SQL_PATH:
            return LensesSqlSession(
                self._tables,
                limits,
                settings,
                head,
                identity,
                self._executions,
                self.max_event_bytes,
                self.clock,
            )
        client_id = parameters["client"]
        statements = StatementReader(
            self._tables,
            limits,
            CompilingBudget(limits, self.clock),
            settings.frame_bytes,
            self.max_event_bytes,
            self.clock,
        )
        known = identity.authenticator is not None  # who has shown nothing is nobody until it logs in
        user = identity.name if known else None
        return LensesV1Session(self._tables, statements, limits, settings, client_id, user, self.clock)
