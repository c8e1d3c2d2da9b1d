"""Zetta's multiplexed WebSocket streams: topics with wildcards and regular expressions, and CaQL."""

from kiwi_gw.dialects.zetta.dialect import ZettaDialect as ZettaDialect
