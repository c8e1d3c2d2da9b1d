"""Registers the Kiwi protocol."""

from __future__ import annotations

from collections.abc import Sequence

from kiwi_gw.api import hookimpl
from kiwi_gw.dialect_api import DialectContext, DialectType, Messages
from kiwi_gw.dialects.kiwi.dialect import KiwiDialect
from kiwi_gw.dialects.kiwi.messages import ClientMessage, ServerMessage
from kiwi_gw.dialects.kiwi.settings import KiwiSettings


def build(settings: KiwiSettings, context: DialectContext) -> KiwiDialect:
    """Make the protocol as the configuration wants it."""
    return KiwiDialect(settings.envelope, context.max_event_bytes, settings.unknown_members)


KIWI = DialectType(
    "kiwi",
    KiwiSettings,
    build,
    environment={"ENVELOPE": "envelope"},
    messages=Messages(ClientMessage, ServerMessage),
)


@hookimpl
def dialect_types() -> Sequence[DialectType[KiwiSettings]]:
    """Provide Kiwi."""
    return (KIWI,)
