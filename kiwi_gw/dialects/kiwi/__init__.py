"""The Kiwi WebSocket protocol: SUBSCRIBE, UNSUBSCRIBE, REQUEST; RESULT and NOTICE."""

from kiwi_gw.dialects.kiwi.dialect import KiwiDialect
from kiwi_gw.dialects.kiwi.results import Envelope, kiwi_wire

__all__ = ["Envelope", "KiwiDialect", "kiwi_wire"]
