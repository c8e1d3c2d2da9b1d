"""How positions in a topic are written for clients: `{"0": 12, "topic": "kHvM", "epochs": {"0": [5, 12]}}`.

`topic` is the topic's id, as Kafka's tools show it; `epochs` says, by partition, that the log held everything
before that offset when the leader of that epoch had it. Both may be missing: bare offsets are positions, too.
"""

from __future__ import annotations

import base64

from kiwi_gw.api import BY_PARTITION, PositionCodec, Positions

TOPIC, EPOCHS = "topic", "epochs"


def topic_text(topic_id: bytes) -> str:
    """URL-safe Base64 without padding, as Kafka's own tools write it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def _check_epochs(epochs: object) -> None:
    """ValueError, in words, for what was not written here."""
    for name, pair in epochs.items() if isinstance(epochs, dict) else [("", None)]:
        right = type(pair) is list and len(pair) == 2 and _within(pair[0], 2**31) and _within(pair[1], 2**63)
        if not (right and name.isascii() and name.isdigit() and len(name) < 10):
            raise ValueError("epochs must be an object of partition numbers with [epoch, offset] each")


def _within(value: object, bound: int) -> bool:
    return type(value) is int and 0 <= value < bound


def _load(value: object) -> Positions:
    if isinstance(value, dict):
        if not isinstance(value.get(TOPIC, ""), str):
            raise ValueError("topic must be the id of the topic, as it was given")  # noqa: TRY004
        _check_epochs(value.get(EPOCHS, {}))
        value = {name: item for name, item in value.items() if name not in (TOPIC, EPOCHS)}
    return BY_PARTITION.load(value)


BY_TOPIC = PositionCodec(dump=BY_PARTITION.dump, load=_load)
"""Reads positions with or without what says of which history they are; that is written by `Lineage`."""
