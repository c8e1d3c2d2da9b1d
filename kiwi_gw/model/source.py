"""What is known about a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kiwi_gw.model.positions import (
    BY_PARTITION,
    PositionCodec,
)
from kiwi_gw.model.schema import AS_JSON, Decode, EventSchema, ValueAs


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """Hold what every client and plugin may know about a source. `replayable`: it can be read again from
    positions.

    blocks: what its configuration says to single protocols, by the name of the block. value_as: how its
    configuration wants values to be written; None: as in its schema. members: what its values are made of, in
    DDL, as the source has said (`Publisher.describe`): a query that names something else is refused. Empty:
    not known. publish, commit: what its configuration opens to clients (`runtime.hooks` says when that
    counts). keeps_commits: it keeps positions of groups.
    """

    id: str
    type: str
    event_schema: EventSchema
    codec: PositionCodec = BY_PARTITION
    replayable: bool = False
    decode: Decode = AS_JSON
    blocks: Mapping[str, object] = field(default_factory=dict)
    value_as: ValueAs | None = None
    members: str = ""
    publish: bool = False
    commit: bool = False
    keeps_commits: bool = False


@dataclass(frozen=True, slots=True)
class SourceStatistics:
    """Hold what a source knows of its origin at the moment.

    behind: by partition, how many records the origin has that were not handed over yet (where it has no
        counts, a difference of offsets); empty where the source cannot know.
    reachable: whether the origin answers.
    details: what else operators may want to see of it (`/sources`), by name; nothing secret.
    """

    behind: Mapping[int, int] = field(default_factory=dict)
    reachable: bool = True
    details: Mapping[str, str | int | float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """Declare a metric that a type of sources has for itself, with the label `source`.

    name: without the gateway's prefix, with its unit (`spark_batch_duration_seconds`). kind: `counter` (its
    name ends in `_total`), `gauge` or `histogram`. meaning: a sentence. merge: what becomes of the gauges of
    several workers. bounds: upper bounds of a histogram's buckets, ascending.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    merge: Literal["sum", "largest", "smallest"] = "sum"
    bounds: tuple[float, ...] = ()

    @property
    def grows(self) -> bool:
        """Return whether it is added to, and never goes back."""
        return self.kind == "counter"
