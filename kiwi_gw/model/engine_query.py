"""A query over whole sources, for an engine beside the gateway: what a protocol asks, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kiwi_gw.model.schema import Decode


@dataclass(frozen=True, slots=True)
class QueriedTable:
    """A source that a query reads, from its first event, or as narrowed, to where it ends when that is asked.

    decode: how its bytes are read. first_offset, last_offset: of every partition; first_time: ms since the
    epoch; partitions: the only ones. Ends are included; None: all. They only say what need not be read: the
    query has these conditions, too.
    """

    source_id: str
    decode: Decode
    first_offset: int | None = None
    last_offset: int | None = None
    first_time: int | None = None
    partitions: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What one query may cost: seconds that it runs, bytes of its result, offsets that it reads."""

    seconds: float = 60.0
    result_bytes: int = 16 * 1024 * 1024
    offsets: int = 10_000_000


@dataclass(frozen=True, slots=True)
class EngineQuery:
    """A query that ends.

    sql: a SELECT in Spark's SQL, written from a tree that was validated: no text of a client is in it but
    constants and names, in quotes. It means what queries mean where `spark.sql.ansi.enabled` is false,
    `spark.sql.caseSensitive` true and the zone UTC. tables: by the name that it has in `sql` (`t0`). Each has
    the columns `key`, `value` (decoded; of JSON and AVRO with members), `headers` (a map of strings),
    `partition`, `offset`, `timestamp` (ms, BIGINT), `key_size` and `value_size` (INT; null: 0).

    key: columns of the result that say which row it is, and are left out of its value; a row of the same key
    takes the place of the one before. live: rows come as soon as there are some, and again when they change.
    """

    sql: str
    tables: Mapping[str, QueriedTable]
    key: tuple[str, ...] = ()
    live: bool = False
    limits: EngineLimits = EngineLimits()
