"""The section `lenses` of the configuration, and the block `lenses` of a source."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kiwi_gw.api import Milliseconds, Section


class LensesSettings(Section):
    """The protocols of Lenses: WebSocket v1 on `/api/kafka/ws/{client}`."""

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


class LensesSource(Section):
    """What this source is called in the protocols of Lenses."""

    topic: Annotated[str, Field(min_length=1, max_length=249)] | None = None
    """The name of its table; null: the id of the source."""
