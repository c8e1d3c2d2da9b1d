"""The source type `counter`: an integer that grows by one at every interval."""

from __future__ import annotations

from collections.abc import Sequence

from kiwi_counter.counter import SCHEMA, CounterSettings, build
from kiwi_counter.counter import Counter as Counter
from kiwi_gw.api import Decode, SourceDescription, SourceType, hookimpl


@hookimpl
def source_types() -> Sequence[SourceType]:
    # So that a query that names something else is refused. Of any type: it counts beyond 64 bits with a sign.
    description = SourceDescription(SCHEMA, decode=Decode(fields="count VARIANT"))
    return (SourceType("counter", CounterSettings, build, description),)
