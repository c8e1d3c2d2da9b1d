"""What is said in Lenses SQL v2: one message of the client, and what it is answered (document 001)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

LEAST_STATS_MS = 250
"""A shorter time between two STATS counts as this."""


class Execute(Struct, frozen=True):
    """Ask for the records of a statement. The only message of a client; other members are ignored.

    token: None, what the handshake has shown counts. live: go on past the end. stats: ms between two STATS.
    """

    sql: Annotated[str, Meta(description="a string")]
    token: Annotated[str, Meta(description="a string")] | None = None
    live: Annotated[bool, Meta(description="true or false")] | None = None
    stats: Annotated[int, Meta(ge=0, le=2**53 - 1, description="a whole number of milliseconds")] | None = (
        None
    )

    def __repr__(self) -> str:
        return "Execute(...)"  # a token is in it


class Fields(Struct, frozen=True):
    """The members of the metadata of every record."""

    fields: tuple[str, ...]


class Metadata(Struct, frozen=True, tag="METADATA", tag_field="type"):
    """The first answer, once."""

    data: Fields


class RecordMetadata(Struct, frozen=True, omit_defaults=True):
    """Where a record is. timestamp: ISO 8601, or ms since the epoch (`SET format.timestamp`); null: it has
    none. Sizes: bytes. Ids: of its Avro schemas in their registry."""

    offset: int
    partition: int
    timestamp: str | int | None
    key_size: int = msgspec.field(name="__keysize")
    value_size: int = msgspec.field(name="__valuesize")
    key_schema_id: int | UnsetType = msgspec.field(name="keySchemaId", default=UNSET)
    value_schema_id: int | UnsetType = msgspec.field(name="valueSchemaId", default=UNSET)


class RecordData(Struct, frozen=True, omit_defaults=True):
    """One record: `key` only with `SELECT *` and where it is not null. rownum: its offset; of an aggregate,
    the number of the row, which has no metadata."""

    value: Raw
    rownum: int
    key: Raw | UnsetType = UNSET
    metadata: RecordMetadata | UnsetType = UNSET


class Record(Struct, frozen=True, omit_defaults=True, rename="camel", tag="RECORD", tag_field="type"):
    """One record, or one row of an aggregate. row_id: of a row: one with the same id takes its place."""

    data: RecordData
    row_id: str | UnsetType = UNSET
    statement_index: int | UnsetType | None = UNSET


class BadMetadata(Struct, frozen=True, rename="camel"):
    """Where a record is that cannot be read."""

    offset: int
    partition: int
    timestamp: int | None
    table: str
    source_id: str


class BadData(Struct, frozen=True):
    """One record that cannot be read."""

    metadata: BadMetadata


class BadRecord(Struct, frozen=True, tag="BADRECORD", tag_field="type"):
    """Stands for a record whose bytes are not what they are read as."""

    data: BadData


ReasonType = Literal["MAX_SIZE", "MAX_QUERY_TIME", "MAX_IDLE_TIME", "MAX_ROWS", "RETENTION"]


class Reason(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Why. amount: bytes, ms, rows, or records lost (null: nobody knows). timeout: ms, where it is one."""

    type: ReasonType
    source: str
    source_id: str
    amount: int | None
    timeout: int | UnsetType = UNSET


class SentinelData(Struct, frozen=True):
    """What happened to the execution."""

    event: Literal["QUERY_TERMINATED", "RECORDS_LOST"]
    reason: Reason


class Sentinel(Struct, frozen=True, tag="SENTINEL", tag_field="type"):
    """A threshold was reached, or records are gone that were to be read."""

    data: SentinelData


class SqlHeartbeat(Struct, frozen=True, tag="HEARTBEAT", tag_field="type"):
    """Sent where nothing else was for a while."""

    data: None = None


class SqlError(Struct, frozen=True, tag="ERROR", tag_field="type"):
    """Say in words what is wrong. END follows."""

    data: str


class PartitionStats(Struct, frozen=True, rename="camel"):
    """What was read of one partition. Offsets include both ends; `end` and `offset_bound` are one less than
    `begin` where there is nothing. offset_bound: where the query ends; null: nowhere."""

    begin: int
    offset_bound: int | None
    bytes_read: int
    records_scanned: int
    end: int


class StatsData(Struct, frozen=True, rename="camel"):
    """How far the execution is. Maps are by the id of a source. duration: ms; started_at: ms since the
    epoch."""

    id: str
    bytes_read: int
    sources: Mapping[str, str]
    source_configs: Mapping[str, Mapping[str, int | bool]]
    sources_stats: Mapping[str, Mapping[str, PartitionStats]]
    bad_records_total: int
    records_skipped: int
    results: int
    records_scanned: int
    duration: int
    started_at: int


class Stats(Struct, frozen=True, tag="STATS", tag_field="type"):
    """Sent as often as the client has asked for, and once at the end."""

    data: StatsData


class End(Struct, frozen=True, tag="END", tag_field="type"):
    """The last message. A close frame follows."""


ServerMessage = Metadata | Record | BadRecord | Sentinel | SqlHeartbeat | SqlError | Stats | End
