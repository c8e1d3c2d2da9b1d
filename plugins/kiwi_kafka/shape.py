"""What a Kafka record looks like on the wire."""

from __future__ import annotations

from collections.abc import Sequence

from kiwi_gw.api import Field, Kind, Shape

_ALWAYS = (Field("sourceId", Kind.SOURCE_ID), Field("sourceType", Kind.SOURCE_TYPE))
_DEFAULT = ("key", "value", "payload", "partition", "offset", "timestamp")
FIELD_NAMES = ("sourceId", "sourceType", *_DEFAULT, "headers")
"""Every field that a configuration may name, in the order in which they are written."""

_ORIGINAL = (
    # What the original server sends, which differs from its document.
    Field("sourceType", Kind.SOURCE_TYPE),
    Field("key", Kind.BASE64),
    Field("payload", Kind.BASE64, column="value"),
    Field("sourceId", Kind.SOURCE_ID),
    Field("timestamp", Kind.INT, none=-1),
    Field("partition", Kind.INT),
    Field("offset", Kind.INT),
)


def event_shape(names: Sequence[str] | None = None) -> Shape:
    """The shape of a topic's events: all fields but `headers`, or the named ones, always in one order.

    A value that is not UTF-8 is null as text. Where `payload` is on the wire too, that has its bytes;
    where it is not, `valueBase64` is added, so that nothing is lost.
    """
    chosen = set(_DEFAULT if names is None else names)
    fields = {
        "key": Field("key", Kind.TEXT),
        "value": Field("value", Kind.TEXT, twin="payload" not in chosen),
        "payload": Field("payload", Kind.BASE64, column="value"),
        "partition": Field("partition", Kind.INT),
        "offset": Field("offset", Kind.INT),
        "timestamp": Field("timestamp", Kind.INT, none=-1),
        "headers": Field("headers", Kind.HEADERS),
    }
    listed = tuple(field for name, field in fields.items() if name in chosen)
    return Shape(_ALWAYS + listed, {"original": _ORIGINAL})
