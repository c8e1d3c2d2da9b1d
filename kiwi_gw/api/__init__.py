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

from kiwi_gw.api.declarations import ConfigSection as ConfigSection
from kiwi_gw.api.declarations import PluginContext as PluginContext
from kiwi_gw.api.declarations import ServiceType as ServiceType
from kiwi_gw.api.declarations import SourceContext as SourceContext
from kiwi_gw.api.declarations import SourceDescription as SourceDescription
from kiwi_gw.api.declarations import SourceType as SourceType
from kiwi_gw.api.query_engine import QueryEngine as QueryEngine
from kiwi_gw.api.settings import Section as Section
from kiwi_gw.api.source import Committer as Committer
from kiwi_gw.api.source import GroupAssignment as GroupAssignment
from kiwi_gw.api.source import GroupMember as GroupMember
from kiwi_gw.api.source import Groups as Groups
from kiwi_gw.api.source import GroupState as GroupState
from kiwi_gw.api.source import HasStatistics as HasStatistics
from kiwi_gw.api.source import History as History
from kiwi_gw.api.source import HistoryReader as HistoryReader
from kiwi_gw.api.source import Producer as Producer
from kiwi_gw.api.source import Publisher as Publisher
from kiwi_gw.api.source import SchemaRegistrar as SchemaRegistrar
from kiwi_gw.api.source import SchemaVersion as SchemaVersion
from kiwi_gw.api.source import Sharing as Sharing
from kiwi_gw.api.source import Source as Source
from kiwi_gw.api.source import SourceMetrics as SourceMetrics
from kiwi_gw.backoff import Backoff as Backoff
from kiwi_gw.codes import RefusalCode as RefusalCode
from kiwi_gw.errors import CommitRefused as CommitRefused
from kiwi_gw.errors import KiwiError as KiwiError
from kiwi_gw.errors import PluginError as PluginError
from kiwi_gw.errors import SchemaRefused as SchemaRefused
from kiwi_gw.errors import SourceChanged as SourceChanged
from kiwi_gw.errors import SourceFailed as SourceFailed
from kiwi_gw.loopback import is_loopback as is_loopback
from kiwi_gw.model import ANONYMOUS as ANONYMOUS
from kiwi_gw.model import AS_JSON as AS_JSON
from kiwi_gw.model import BY_PARTITION as BY_PARTITION
from kiwi_gw.model import SCHEMA_COLUMNS as SCHEMA_COLUMNS
from kiwi_gw.model import Action as Action
from kiwi_gw.model import Batch as Batch
from kiwi_gw.model import Credential as Credential
from kiwi_gw.model import Decode as Decode
from kiwi_gw.model import Diagnostic as Diagnostic
from kiwi_gw.model import Encoded as Encoded
from kiwi_gw.model import EngineLimits as EngineLimits
from kiwi_gw.model import EngineQuery as EngineQuery
from kiwi_gw.model import EventSchema as EventSchema
from kiwi_gw.model import EventTransform as EventTransform
from kiwi_gw.model import Field as Field
from kiwi_gw.model import FieldEncoding as FieldEncoding
from kiwi_gw.model import Framing as Framing
from kiwi_gw.model import Gap as Gap
from kiwi_gw.model import HasLineage as HasLineage
from kiwi_gw.model import HeadCredential as HeadCredential
from kiwi_gw.model import Identity as Identity
from kiwi_gw.model import Interceptor as Interceptor
from kiwi_gw.model import Lineage as Lineage
from kiwi_gw.model import MetricSpec as MetricSpec
from kiwi_gw.model import OffsetRange as OffsetRange
from kiwi_gw.model import Outgoing as Outgoing
from kiwi_gw.model import Part as Part
from kiwi_gw.model import Password as Password
from kiwi_gw.model import Permit as Permit
from kiwi_gw.model import PositionCodec as PositionCodec
from kiwi_gw.model import Positions as Positions
from kiwi_gw.model import Published as Published
from kiwi_gw.model import QueriedTable as QueriedTable
from kiwi_gw.model import Ranges as Ranges
from kiwi_gw.model import Record as Record
from kiwi_gw.model import Refusal as Refusal
from kiwi_gw.model import SourceInfo as SourceInfo
from kiwi_gw.model import SourceStatistics as SourceStatistics
from kiwi_gw.model import Token as Token
from kiwi_gw.model import Transformed as Transformed
from kiwi_gw.model import Unpublished as Unpublished
from kiwi_gw.model import Unreadable as Unreadable
from kiwi_gw.model import WireFormat as WireFormat
from kiwi_gw.query.avro import RegisteredSchema as RegisteredSchema
from kiwi_gw.query.avro import schema_id as schema_id
from kiwi_gw.query.decode import decode_mistake as decode_mistake
from kiwi_gw.query.weighted_lru import WeightedLru as WeightedLru
from kiwi_gw.units import Bytes as Bytes
from kiwi_gw.units import Milliseconds as Milliseconds
from kiwi_gw.wakeup import Wakeup as Wakeup

hookimpl = pluggy.HookimplMarker("kiwi_gw")
