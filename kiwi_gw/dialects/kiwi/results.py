"""RESULT: how the events of any source look on the Kiwi wire (Kiwi protocol, RESULT)."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Literal

from kiwi_gw.codes import RefusalCode
from kiwi_gw.dialects.encoder import MAX_EVENT_BYTES, FrameEncoder
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import Field, FieldEncoding, SourceInfo, ValueAs, WireFormat

Envelope = Literal["flat", "nested"]
"""`flat`: the messages of the protocol's document. `nested`: those of the original server."""

ORIGINAL = "original"
"""The variant of a source's shape that nested speaks, where the source has one."""


def kiwi_wire(
    source: SourceInfo,
    envelope: Envelope = "flat",
    max_event_bytes: int = MAX_EVENT_BYTES,
    value_as: ValueAs | None = None,
) -> WireFormat:
    """Make the wire format of a source: every fragment is a whole frame `{"type":"RESULT","data":{...}}`.

    All clients of one source get the same object. max_event_bytes: larger frames are unsendable. value_as: as
    `value_fields` has it.
    """
    return _wire(source.id, source.type, value_fields(source, envelope, value_as), max_event_bytes)


def value_fields(source: SourceInfo, envelope: Envelope, value_as: ValueAs | None) -> tuple[Field, ...]:
    """Return the members of an event, `value` in the form that a client asked for; None: in that of the
    source's configuration, where it can be had.

    Raises SubscribeRefused for one that cannot.
    """
    fields = source.event_schema.of(ORIGINAL) if envelope == "nested" else source.event_schema.fields
    wanted = value_as or source.value_as
    if wanted is None or value_form(fields) == wanted:
        return fields
    place = next((i for i, field in enumerate(fields) if field.name == "value"), None)
    made = None if place is None else _in_form(fields[place], wanted, source)
    if place is not None and made is not None:
        return (*fields[:place], made, *fields[place + 1 :])
    if value_as is None:
        return fields
    if place is None:
        raise SubscribeRefused(RefusalCode.VALUE_AS, "the events of this source have no value")
    why = "they are no JSON (decode.value)" if wanted == "json" else "they are no text"
    raise SubscribeRefused(
        RefusalCode.VALUE_AS, f"the values of this source cannot be had as {wanted}: {why}"
    )


def value_form(fields: tuple[Field, ...]) -> ValueAs | None:
    """How `value` is written; None: there is none, or it is base64."""
    return next((_FORMS.get((f.kind, f.parsed)) for f in fields if f.name == "value"), None)


_FORMS: dict[tuple[FieldEncoding, bool], ValueAs] = {
    (FieldEncoding.TEXT, False): "text",
    (FieldEncoding.TEXT, True): "json",
    (FieldEncoding.STRING, False): "text",
    (FieldEncoding.JSON, False): "json",
    (FieldEncoding.VALUE, False): "json",
}


def _in_form(field: Field, wanted: ValueAs, source: SourceInfo) -> Field | None:
    """None: it cannot be."""
    if wanted == "text" and field.kind in (FieldEncoding.JSON, FieldEncoding.TEXT):
        return replace(field, kind=FieldEncoding.TEXT, parsed=False)
    if wanted == "json" and field.kind is FieldEncoding.TEXT and source.decode.value == "json":
        return replace(field, parsed=True)
    return None


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
