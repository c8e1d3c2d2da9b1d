"""What a Kafka record looks like on the wire."""

from __future__ import annotations

from collections.abc import Sequence

from kiwi_gw.api import EventSchema, Field, FieldEncoding

_ALWAYS = (Field("sourceId", FieldEncoding.SOURCE_ID), Field("sourceType", FieldEncoding.SOURCE_TYPE))
_DEFAULT = ("key", "value", "payload", "partition", "offset", "timestamp")
FIELD_NAMES = ("sourceId", "sourceType", *_DEFAULT, "headers")
"""Every field that a configuration may name, in the order in which they are written."""

_ORIGINAL = (
    # What the original server sends, which differs from its document.
    Field("sourceType", FieldEncoding.SOURCE_TYPE),
    Field("key", FieldEncoding.BASE64),
    Field("payload", FieldEncoding.BASE64, column="value"),
    Field("sourceId", FieldEncoding.SOURCE_ID),
    Field("timestamp", FieldEncoding.INT, none=-1),
    Field("partition", FieldEncoding.INT),
    Field("offset", FieldEncoding.INT),
)


def event_schema(names: Sequence[str] | None = None) -> EventSchema:
    """Return the schema of a topic's events: all fields but `headers`, or the named ones, always in one
    order.

    A value that is not UTF-8 is null as text. Where `payload` is on the wire too, that has its bytes;
    where it is not, `valueBase64` is added, so that nothing is lost.
    """
    chosen = set(_DEFAULT if names is None else names)
    fields = {
        "key": Field("key", FieldEncoding.TEXT),
        "value": Field("value", FieldEncoding.TEXT, base64_fallback="payload" not in chosen),
        "payload": Field("payload", FieldEncoding.BASE64, column="value"),
        "partition": Field("partition", FieldEncoding.INT),
        "offset": Field("offset", FieldEncoding.INT),
        "timestamp": Field("timestamp", FieldEncoding.INT, none=-1),
        "headers": Field("headers", FieldEncoding.HEADERS),
    }
    listed = tuple(field for name, field in fields.items() if name in chosen)
    return EventSchema(_ALWAYS + listed, {"original": _ORIGINAL})
