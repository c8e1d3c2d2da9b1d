"""The source type `counter`: an integer that grows by one at every interval."""

from __future__ import annotations

from collections.abc import Sequence

from kiwi_counter.counter import SHAPE, Counter, CounterSettings, build
from kiwi_gw.api import Decode, SourceType, hookimpl

__all__ = ["Counter", "CounterSettings", "source_types"]


@hookimpl
def source_types() -> Sequence[SourceType]:
    # So that a query that names something else is told so. Of any type: it counts beyond 64 bits with a sign.
    return (SourceType("counter", CounterSettings, build, SHAPE, decode=Decode(fields="count VARIANT")),)
