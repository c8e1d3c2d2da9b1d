"""The frames of records that cannot be read (document 001, Bad Record)."""

from __future__ import annotations

from typing import Any

from kiwi_gw.dialect_api.frames import message_frame
from kiwi_gw.dialects.lenses.v2.messages import BadData, BadMetadata, BadRecord
from kiwi_gw.dialects.lenses.v2.timestamps import milliseconds
from kiwi_gw.model import Batch


class BadFrames:
    """Make those of a batch, by index. table: what the client calls it; source_id: its id in answers."""

    def __init__(self, batch: Batch, table: str, source_id: str) -> None:
        self._batch, self._table, self._source_id = batch, table, source_id
        self._timestamps: Any = batch.columns.get("timestamp")

    def __getitem__(self, index: int) -> bytes:
        batch = self._batch
        timestamp = None if self._timestamps is None else milliseconds(self._timestamps[index])
        offset, partition = batch.offsets[index], batch.partitions[index]
        metadata = BadMetadata(offset, partition, timestamp, self._table, self._source_id)
        return message_frame(BadRecord(BadData(metadata)))
