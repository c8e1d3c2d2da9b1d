"""Where a query begins in its topics, fixed before it starts.

Spark itself resolves `latest` and times with its first batch, which may come seconds after the query was
started: what is produced meanwhile would be missed. So they are resolved here, Spark gets offsets, and these
are kept beside the checkpoint until the first batch is in it: a query that dies before that begins at the
same place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from kiwi_spark.driver.inputs import TIMEOUTS, client_options
from kiwi_spark.protocol.query_spec import QuerySpec, StreamInput

Offsets = dict[int, int]
"""The next offset, by partition."""


class TopicOffsets(msgspec.Struct, frozen=True):
    """start: where an input begins. end: where its topic ends now."""

    start: Offsets
    end: Offsets


def topic_of(item: StreamInput) -> str:
    """Return the topic of an input."""
    return item.kafka["subscribe"]


def look(spark: SparkSession, query: QuerySpec) -> dict[str, TopicOffsets]:
    """Ask Kafka, for every input that is a topic. Raises what Kafka's client raises, as Py4JJavaError."""
    return {name: _look(spark, item) for name, item in query.streams.items()}


def _look(spark: SparkSession, item: StreamInput) -> TopicOffsets:
    jvm: Any = spark._jvm
    options = client_options({**TIMEOUTS, **item.kafka})
    found: str = jvm.kiwigw.spark.TopicOffsets.of(options, topic_of(item), str(item.start))
    rows = [tuple(map(int, row.split())) for row in found.split(",")]
    return TopicOffsets({p: start for p, start, _ in rows}, {p: end for p, _, end in rows})


def resume_offsets(
    found: Mapping[str, TopicOffsets], query: QuerySpec, kept: Mapping[str, Offsets], logged: str | None
) -> dict[str, Offsets]:
    """Return where each input goes on. kept: where it began, as it was fixed when the query was new. logged:
    what Spark's checkpoint says of the last batch, None if there is none.

    A partition that is new begins at its first record, as Spark does it.
    """
    past = _logged(logged)
    begin = {}
    for name, offsets in found.items():
        topic = topic_of(query.streams[name])
        known = past.get(topic, {}) if past is not None else kept.get(name) or offsets.start
        begin[name] = {partition: known.get(partition, 0) for partition in offsets.end}
    return begin


def _logged(text: str | None) -> dict[str, Offsets] | None:
    """Read an entry of Spark's log of offsets: a line each for its version, the batch, and every source. Of
    two sources that read one topic the earlier offsets count."""
    if text is None:
        return None
    found: dict[str, Offsets] = {}
    for line in text.split("\n")[2:]:
        for topic, offsets in _topics(line):
            known = found.setdefault(topic, {})
            for partition, offset in offsets.items():
                known[partition] = min(offset, known.get(partition, offset))
    return found


def _topics(line: str) -> Iterable[tuple[str, Offsets]]:
    try:
        return msgspec.json.decode(line, type=dict[str, Offsets]).items()
    except msgspec.MsgspecError:  # a source of files, or none (`-`)
        return ()


def starting_offsets(item: StreamInput, kept: Offsets, found: TopicOffsets) -> str:
    """Write where an input begins as Spark reads it: as it was fixed, and new partitions from their first
    record."""
    first = -2  # as Spark writes it
    return msgspec.json.encode({topic_of(item): dict.fromkeys(found.end, first) | kept}).decode()
