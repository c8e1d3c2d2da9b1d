"""The source type `counter`: an integer that grows by one at every interval."""

from __future__ import annotations

from collections.abc import Sequence

from kiwi_counter.counter import SHAPE, Counter, CounterSettings, build
from kiwi_gw.api import SourceType, hookimpl

__all__ = ["Counter", "CounterSettings", "source_types"]


@hookimpl
def source_types() -> Sequence[SourceType]:
    return (SourceType("counter", CounterSettings, build, SHAPE),)
