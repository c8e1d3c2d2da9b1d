"""Registers the protocols of Lenses."""

from __future__ import annotations

from collections.abc import Sequence

from kiwi_gw.api import hookimpl
from kiwi_gw.dialect_api import DialectContext, DialectType, Messages
from kiwi_gw.dialects.lenses.dialect import LensesDialect
from kiwi_gw.dialects.lenses.settings import LensesSettings, LensesSource
from kiwi_gw.dialects.lenses.v1.messages import Request, ServerMessage


def build(settings: LensesSettings, context: DialectContext) -> LensesDialect | None:
    """Make the protocols as the configuration wants them; None: they are switched off."""
    return LensesDialect(settings, context.max_event_bytes) if settings.enabled else None


LENSES = DialectType("lenses", LensesSettings, build, LensesSource, messages=Messages(Request, ServerMessage))


@hookimpl
def dialect_types() -> Sequence[DialectType[LensesSettings]]:
    """Provide them."""
    return (LENSES,)
