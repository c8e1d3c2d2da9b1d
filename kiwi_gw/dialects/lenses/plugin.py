"""Registers the protocols of Lenses."""

from __future__ import annotations

from collections.abc import Sequence

from kiwi_gw.api import PluginContext, hookimpl
from kiwi_gw.dialect_api import DialectContext, DialectType, Messages
from kiwi_gw.dialects.lenses.any_queries import warm_up
from kiwi_gw.dialects.lenses.dialect import SQL, LensesDialect
from kiwi_gw.dialects.lenses.settings import LensesSettings, LensesSource
from kiwi_gw.dialects.lenses.tables import table_name
from kiwi_gw.dialects.lenses.v1 import messages as v1
from kiwi_gw.dialects.lenses.v2 import messages as v2
from kiwi_gw.dialects.source_names import check_distinct


def build(settings: LensesSettings, context: DialectContext) -> LensesDialect | None:
    """Make the protocols as the configuration wants them; None: they are switched off."""
    return LensesDialect(settings, context.max_event_bytes) if settings.enabled else None


LENSES = DialectType(
    "lenses",
    LensesSettings,
    build,
    LensesSource,
    messages=Messages(v1.Request, v1.ServerMessage),
    other_messages={SQL: Messages(v2.Execute, v2.ServerMessage)},
    warm_up=warm_up,
)


@hookimpl
def configure(context: PluginContext) -> None:
    """Refuse two sources that would be one table. Raises PluginError."""
    settings = context.sections.get("lenses")
    if not isinstance(settings, LensesSettings) or not settings.enabled:
        return
    names = ((source_id, table_name(source_id, blocks)) for source_id, blocks in context.blocks.items())
    check_distinct(names, "the protocols of Lenses (lenses.topic)")


@hookimpl
def dialect_types() -> Sequence[DialectType[LensesSettings]]:
    """Provide them."""
    return (LENSES,)
