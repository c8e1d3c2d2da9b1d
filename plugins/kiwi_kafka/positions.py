"""How positions in a topic are written for clients: `{"0": 12, "topic": "kHvM", "epochs": {"0": [5, 12]}}`.

`topic` is the topic's id, as Kafka's tools show it; `epochs` says, by partition, that the log held everything
before that offset when the leader of that epoch had it. Both may be missing: bare offsets are positions, too.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from kiwi_gw.api import BY_PARTITION, PositionCodec, Positions

TOPIC, EPOCHS = "topic", "epochs"


class LineagePositions(dict[int, int]):
    """Hold positions with what was said of their history.

    topic: the topic's id, as text; None: it was not said. epochs: by partition, the epoch of a leader and how
    far the log reached under it; only of partitions that have a position, which is not their beginning.
    """

    __slots__ = ("epochs", "topic")

    def __init__(self, offsets: Positions, topic: str | None, epochs: Mapping[int, tuple[int, int]]) -> None:
        super().__init__(offsets)
        self.topic = topic
        self.epochs = epochs


def topic_text(topic_id: bytes) -> str:
    """Write it as URL-safe Base64 without padding, as Kafka's own tools do."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def _epochs(value: object, offsets: Positions) -> dict[int, tuple[int, int]]:
    """Read them as `LineagePositions` keeps them. ValueError, in words, for what was not written here."""
    found = {}
    pairs: Iterable[tuple[str, Any]] = value.items() if isinstance(value, dict) else [("", None)]
    for name, pair in pairs:
        right = type(pair) is list and len(pair) == 2 and _within(pair[0], 2**31) and _within(pair[1], 2**63)
        if not (right and name.isascii() and name.isdigit() and len(name) < 10):
            raise ValueError("epochs must be an object of partition numbers with [epoch, offset] each")
        if offsets.get(int(name)):
            found[int(name)] = (pair[0], pair[1])
    return found


def _within(value: object, bound: int) -> bool:
    return type(value) is int and 0 <= value < bound


def _load(value: object) -> Positions:
    if not isinstance(value, dict) or not (TOPIC in value or EPOCHS in value):
        return BY_PARTITION.load(value)
    topic = value.get(TOPIC)
    if TOPIC in value and not isinstance(topic, str):
        raise ValueError("topic must be the id of the topic, as it was given")
    offsets = BY_PARTITION.load({name: at for name, at in value.items() if name not in (TOPIC, EPOCHS)})
    return LineagePositions(offsets, topic, _epochs(value.get(EPOCHS, {}), offsets))


BY_TOPIC = PositionCodec(dump=BY_PARTITION.dump, load=_load)
"""Reads positions with or without what says of which history they are; that is written by `TopicLineage`."""
