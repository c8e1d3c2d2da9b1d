"""The subscriptions of one source that are sent the same bytes."""

from __future__ import annotations

from typing import Generic, TypeVar

from kiwi_gw.core.encoding import KeyedFormat
from kiwi_gw.core.evaluation_costs import EvaluationCosts

S = TypeVar("S")


class EncodingGroup(Generic[S]):
    """The subscriptions of one source with one wire key; `live` are those at the head, in order. costs: of
    its query, where it has one and that is charged."""

    __slots__ = ("costs", "live", "size", "wire")

    def __init__(self, item: KeyedFormat, costs: EvaluationCosts | None = None) -> None:
        self.wire = item
        self.costs = costs
        self.live: dict[S, None] = {}
        self.size = 0
