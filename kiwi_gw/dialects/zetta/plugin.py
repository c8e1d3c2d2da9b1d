"""The hook that registers the Zetta protocol."""

from __future__ import annotations

from collections.abc import Sequence

from kiwi_gw.api import hookimpl
from kiwi_gw.dialect_api import DialectContext, DialectType, Messages
from kiwi_gw.dialects.zetta.dialect import ZettaDialect
from kiwi_gw.dialects.zetta.messages import ClientMessage, ServerMessage
from kiwi_gw.dialects.zetta.settings import ZettaSettings, ZettaSource


def build(settings: ZettaSettings, context: DialectContext) -> ZettaDialect | None:
    """Make the protocol as the configuration wants it; None: it is switched off."""
    if not settings.enabled:
        return None
    return ZettaDialect(settings.name or context.gateway_name, context.max_event_bytes)


ZETTA = DialectType(
    "zetta", ZettaSettings, build, ZettaSource, messages=Messages(ClientMessage, ServerMessage)
)


@hookimpl
def dialect_types() -> Sequence[DialectType[ZettaSettings]]:
    """Provide Zetta."""
    return (ZETTA,)
