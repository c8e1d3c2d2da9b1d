"""How positions in a topic are written for clients: `{"0": 12, "topic": "kHvM", "epochs": {"0": [5, 12]}}`.

`topic` is the topic's id, as Kafka's tools show it; `epochs` says, by partition, that the log held everything
before that offset when the leader of that epoch had it. Both may be missing: bare offsets are positions, too.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

from kiwi_gw.api import BY_PARTITION, PositionCodec, Positions

TOPIC, EPOCHS = "topic", "epochs"


def topic_text(topic_id: bytes) -> str:
    """URL-safe Base64 without padding, as Kafka's own tools write it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def epochs_of(given: Mapping[str, object]) -> dict[int, tuple[int, int]]:
    """Epoch and offset by partition. ValueError, in words, for what was not written here."""
    found: dict[int, tuple[int, int]] = {}
    epochs = given.get(EPOCHS, {})
    for name, pair in epochs.items() if isinstance(epochs, dict) else [("", None)]:
        match pair:
            case [epoch, offset] if _within(epoch, 2**31) and _within(offset, 2**63) and _is_number(name):
                found[int(name)] = (epoch, offset)
            case _:
                raise ValueError("epochs must be an object of partition numbers with [epoch, offset] each")
    return found


def _within(value: object, bound: int) -> bool:
    return type(value) is int and 0 <= value < bound


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) < 10


def _load(value: object) -> Positions:
    if isinstance(value, dict):
        if not isinstance(value.get(TOPIC, ""), str):
            raise ValueError("topic must be the id of the topic, as it was given")  # noqa: TRY004
        epochs_of(value)
        value = {name: item for name, item in value.items() if name not in (TOPIC, EPOCHS)}
    return BY_PARTITION.load(value)


BY_TOPIC = PositionCodec(dump=BY_PARTITION.dump, load=_load)
"""Reads positions with or without what says of which history they are; that is written by `Lineage`."""
