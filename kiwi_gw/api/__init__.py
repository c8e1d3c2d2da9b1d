"""The plugin contract. A plugin imports this module (one with a protocol
`kiwi_gw.dialect_api`, too) and nothing else of `kiwi_gw`.

A source in 30 lines:

    from kiwi_gw.api import Batch, EventSchema, Field, FieldEncoding, Positions, Publisher, Section
    from kiwi_gw.api import SourceType, hookimpl

    class TickSettings(Section):
        type: Literal["tick"]

    SCHEMA = EventSchema((Field("sourceId", FieldEncoding.SOURCE_ID), Field("tick", FieldEncoding.INT)))

    class Ticks:
        async def run(self, publisher: Publisher, start: Positions | None) -> None:
            tick = start[0] if start else 0
            await publisher.ready({0: tick})
            while True:
                await trio.sleep(1)
                await publisher.publish(Batch({0: tick}, [0], [tick], {"tick": [tick]}, cost=8))
                tick += 1

    @hookimpl
    def source_types():
        return [SourceType("tick", TickSettings, lambda settings, context: Ticks(), SCHEMA)]

`kiwi_gw.testing.check_source()` checks a source against this contract.
"""

from __future__ import annotations

import pluggy

from kiwi_gw.api.declarations import (
    ConfigSection,
    PluginContext,
    ServiceType,
    SourceContext,
    SourceDescription,
    SourceType,
)
from kiwi_gw.api.settings import Section
from kiwi_gw.api.source import HasStatistics, History, HistoryReader, Publisher, Source, SourceMetrics
from kiwi_gw.backoff import Backoff
from kiwi_gw.codes import RefusalCode
from kiwi_gw.errors import KiwiError, PluginError, SourceChanged, SourceFailed
from kiwi_gw.model import (
    ANONYMOUS,
    AS_JSON,
    BY_PARTITION,
    Action,
    Batch,
    Credential,
    Decode,
    Diagnostic,
    Encoded,
    EventSchema,
    EventTransform,
    Field,
    FieldEncoding,
    Gap,
    HasLineage,
    HeadCredential,
    Identity,
    Interceptor,
    Lineage,
    MetricSpec,
    OffsetRange,
    Password,
    Permit,
    PositionCodec,
    Positions,
    Ranges,
    Record,
    Refusal,
    SourceInfo,
    SourceStatistics,
    Token,
    Transformed,
    Unreadable,
    WireFormat,
)
from kiwi_gw.query.decode import mistake as decode_mistake
from kiwi_gw.units import Bytes, Milliseconds
from kiwi_gw.wakeup import Wakeup

__all__ = [
    "ANONYMOUS",
    "AS_JSON",
    "BY_PARTITION",
    "Action",
    "Backoff",
    "Batch",
    "Bytes",
    "ConfigSection",
    "Credential",
    "Decode",
    "Diagnostic",
    "Encoded",
    "EventSchema",
    "EventTransform",
    "Field",
    "FieldEncoding",
    "Gap",
    "HasLineage",
    "HasStatistics",
    "HeadCredential",
    "History",
    "HistoryReader",
    "Identity",
    "Interceptor",
    "KiwiError",
    "Lineage",
    "MetricSpec",
    "Milliseconds",
    "OffsetRange",
    "Password",
    "Permit",
    "PluginContext",
    "PluginError",
    "PositionCodec",
    "Positions",
    "Publisher",
    "Ranges",
    "Record",
    "Refusal",
    "RefusalCode",
    "Section",
    "ServiceType",
    "Source",
    "SourceChanged",
    "SourceContext",
    "SourceDescription",
    "SourceFailed",
    "SourceInfo",
    "SourceMetrics",
    "SourceStatistics",
    "SourceType",
    "Token",
    "Transformed",
    "Unreadable",
    "Wakeup",
    "WireFormat",
    "decode_mistake",
    "hookimpl",
]

hookimpl = pluggy.HookimplMarker("kiwi_gw")
