"""The fragments of a batch, made without a gateway around."""

from __future__ import annotations

from kiwi_gw.core.encoding import EncodingMemo, keyed_format
from kiwi_gw.core.window import MemoryBudget, WindowEntry
from kiwi_gw.model import Batch, Encoded, WireFormat


def encoded(form: WireFormat, batch: Batch) -> Encoded:
    """Write a batch, through what its client has asked to be done before."""
    return EncodingMemo(1 << 26, MemoryBudget(1 << 30)).encoded(WindowEntry(batch, 0), keyed_format(form))
