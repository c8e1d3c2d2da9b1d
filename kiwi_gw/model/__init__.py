"""Vocabulary: the value types that every layer shares. Standard library only.

The words are those of docs/explanation/glossary.md.
"""

from kiwi_gw.model.batch import PIECE_BYTES, PIECE_EVENTS, Batch, Gap, Unreadable, batch_pieces
from kiwi_gw.model.diagnostic import Diagnostic
from kiwi_gw.model.engine_query import EngineLimits, EngineQuery, QueriedTable
from kiwi_gw.model.identity import ANONYMOUS, Credential, HeadCredential, Identity, Password, Token
from kiwi_gw.model.positions import (
    BY_PARTITION,
    HasLineage,
    Lineage,
    OffsetRange,
    PositionCodec,
    Positions,
    Ranges,
)
from kiwi_gw.model.producing import Outgoing, Published, Unpublished, total_size
from kiwi_gw.model.rights import Action, Permit, Refusal
from kiwi_gw.model.schema import (
    AS_JSON,
    SCHEMA_COLUMNS,
    Decode,
    EventSchema,
    Field,
    FieldEncoding,
    Form,
    Part,
    ValueAs,
)
from kiwi_gw.model.source import MetricSpec, SourceInfo, SourceStatistics
from kiwi_gw.model.subscribing import (
    AtOffset,
    AtPositions,
    AtTime,
    CloseReason,
    Committed,
    End,
    Mode,
    OverflowPolicy,
    Start,
    StartAt,
    Until,
    UntilOffset,
)
from kiwi_gw.model.wire_format import (
    Encoded,
    EventTransform,
    Framing,
    Interceptor,
    Record,
    Steps,
    TimeSlice,
    Transformed,
    WireFormat,
    at_once,
)
