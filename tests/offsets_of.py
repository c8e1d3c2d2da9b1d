"""The offsets of positions that a Kafka source wrote, without what says of which history they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def offsets_of(positions: Mapping[str, Any]) -> dict[str, int]:
    """As the client has them: the next offset by the partition's number, as text."""
    return {partition: offset for partition, offset in positions.items() if partition.isdigit()}
