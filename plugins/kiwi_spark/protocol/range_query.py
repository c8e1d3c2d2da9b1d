"""What gateway and driver say about a query over ranges of topics, which a client has asked for."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Form = Literal["json", "string", "int", "long", "binary", "avro"]
"""What bytes hold, as `kiwi_gw.model.Form`."""


ROWS: Final = 10_000
"""Most rows of a result that a client gets: a larger LIMIT only bounds what is computed."""


class TopicTable(msgspec.Struct, frozen=True, kw_only=True):
    """A Kafka topic as a table: from its first record, or as narrowed, to where it ends when the query comes.

    source: what it is called in the gateway. topic, kafka: its name, and options of Spark's Kafka source.
    value, key: how its bytes are decoded. schema: DDL of the members of a JSON value; empty: inferred.
    avro: an Avro schema as JSON text; registry: URL of a Schema Registry instead, which has them under
    `{topic}-key` and `{topic}-value`. The others: as in `QueriedTable`.
    """

    source: str
    topic: str
    kafka: dict[str, str]
    value: Form = "json"
    key: Form = "string"
    schema: str = ""
    avro: str = ""
    registry: str = ""
    first_offset: int | None = None
    last_offset: int | None = None
    first_time: int | None = None
    partitions: list[int] | None = None


class RangeQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query that ends.

    source: what the gateway calls it. sql: a SELECT over `tables`, by these names. key: columns of the result
    that make a row's key, and are left out of its value. live: rows come as soon as there are some, and again
    when they change. checkpoint: a folder for what is needed while it runs, where Spark is on other machines,
    too. result_bytes: most bytes of the result. offsets: most offsets in all ranges together.
    """

    source: str
    sql: str
    tables: dict[str, TopicTable]
    key: list[str] = []
    live: bool = False
    checkpoint: str = ""
    result_bytes: int
    offsets: int
