"""The section `lenses` of the configuration, and the block `lenses` of a source."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kiwi_gw.api import Bytes, Milliseconds, Section


class LensesSqlSettings(Section):
    """What a statement of SQL v2 may cost. A statement may SET less."""

    max_size: Annotated[Bytes, Field(ge=1)] = 200 * 1024 * 1024
    """Bytes of keys and values that it reads, unless it is `live` (`max.size`)."""
    max_query_time_ms: Annotated[Milliseconds, Field(ge=1)] = 3_600_000
    """How long it may take (`max.query.time`)."""
    max_idle_time_ms: Annotated[Milliseconds, Field(ge=1)] = 20_000
    """How long it may read nothing, unless it is `live` (`max.idle.time`)."""
    offset_timeout_ms: Annotated[Milliseconds, Field(ge=1)] = 10_000
    """How long it may take to find out where it begins and ends (`kafka.offset.timeout`)."""
    queries: Annotated[int, Field(ge=1)] = 64
    """Statements that are executed at a time, in each worker."""
    queries_identity: Annotated[int, Field(ge=1)] = 8
    """The same for one client: a name, or an address where it has none."""


class LensesSettings(Section):
    """The protocols of Lenses: WebSocket v1 on `/api/kafka/ws/{client}`, SQL v2 on
    `/api/ws/v2/sql/execute`."""

    enabled: bool = False
    """Whether they are served."""
    login_timeout_ms: Annotated[Milliseconds, Field(ge=100)] = 5_000
    """How long a client may be connected before it has logged in."""
    heartbeat_ms: Annotated[Milliseconds, Field(ge=1_000)] = 10_000
    """After how long without anything sent a HEARTBEAT is sent, to within a second."""
    frame_bytes: Annotated[int, Field(ge=1_024, le=1_048_576)] = 32_768
    """Bytes of the records in one KAFKAMSG, at most, or one record."""
    group: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9._{}-]+$")] = (
        "kiwi-gw.{user}.{client}"
    )
    """The consumer group whose offsets COMMIT moves, and SUBSCRIBE begins at; `{user}` and `{client}` are put
    in percent-encoded, dots too, so that nobody moves the offsets of another."""
    commit: Literal["done", "next"] = "done"
    """What the offset in a COMMIT names: `done`, the last record that is done; `next`, the one to go on
    with."""
    sql: LensesSqlSettings = Field(default_factory=LensesSqlSettings)
    """What a statement of SQL v2 may cost."""


class LensesSource(Section):
    """What this source is called in the protocols of Lenses."""

    topic: Annotated[str, Field(min_length=1, max_length=249)] | None = None
    """The name of its table; null: the id of the source."""
