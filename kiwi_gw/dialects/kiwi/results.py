"""RESULT: how the events of any source look on the Kiwi wire (Kiwi protocol, RESULT)."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from kiwi_gw.dialects.encoder import FrameEncoder
from kiwi_gw.model import Field, SourceInfo, WireFormat

Envelope = Literal["flat", "nested"]
"""`flat`: the messages of the protocol's document. `nested`: those of the original server."""

ORIGINAL = "original"
"""The variant of a source's shape that nested speaks, where the source has one."""

MAX_EVENT_BYTES = 8 * 1024 * 1024


def kiwi_wire(
    source: SourceInfo, envelope: Envelope = "flat", max_event_bytes: int = MAX_EVENT_BYTES
) -> WireFormat:
    """The wire format of a source: every fragment is a whole frame `{"type":"RESULT","data":{...}}`.

    All clients of one source get the same object. max_event_bytes: larger frames are unsendable.
    """
    fields = source.shape.of(ORIGINAL) if envelope == "nested" else source.shape.fields
    return _wire(source.id, source.type, fields, max_event_bytes)


@lru_cache(maxsize=1024)
def _wire(source_id: str, source_type: str, fields: tuple[Field, ...], max_event_bytes: int) -> WireFormat:
    encoder = FrameEncoder(
        fields,
        source_id,
        source_type,
        head=b'{"type":"RESULT","data":',
        tail=b"}",
        max_event_bytes=max_event_bytes,
    )
    # One string, whose hash is computed once: the key is looked up for every batch.
    return WireFormat(key=f"kiwi {(source_id, source_type, fields, max_event_bytes)!r}", encode=encoder)
