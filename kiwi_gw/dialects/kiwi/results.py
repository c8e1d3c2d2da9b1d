"""RESULT: how the events of any source look on the Kiwi wire (Kiwi protocol, RESULT)."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Literal

from kiwi_gw.dialects.encoder import FrameEncoder
from kiwi_gw.errors import SubscribeRefused
from kiwi_gw.model import Field, Kind, SourceInfo, ValueAs, WireFormat

Envelope = Literal["flat", "nested"]
"""`flat`: the messages of the protocol's document. `nested`: those of the original server."""

ORIGINAL = "original"
"""The variant of a source's shape that nested speaks, where the source has one."""

MAX_EVENT_BYTES = 8 * 1024 * 1024


def kiwi_wire(
    source: SourceInfo,
    envelope: Envelope = "flat",
    max_event_bytes: int = MAX_EVENT_BYTES,
    value_as: ValueAs | None = None,
) -> WireFormat:
    """The wire format of a source: every fragment is a whole frame `{"type":"RESULT","data":{...}}`.

    All clients of one source get the same object. max_event_bytes: larger frames are unsendable. value_as: as
    `value_fields` has it.
    """
    return _wire(source.id, source.type, value_fields(source, envelope, value_as), max_event_bytes)


def value_fields(source: SourceInfo, envelope: Envelope, value_as: ValueAs | None) -> tuple[Field, ...]:
    """The members of an event, `value` in the form that a client asked for; None: in that of the source's
    configuration, where it can be had.

    Raises SubscribeRefused for one that cannot.
    """
    fields = source.shape.of(ORIGINAL) if envelope == "nested" else source.shape.fields
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
        raise SubscribeRefused("value_as", "the events of this source have no value")
    why = "they are no JSON (decode.value)" if wanted == "json" else "they are no text"
    raise SubscribeRefused("value_as", f"the values of this source cannot be had as {wanted}: {why}")


def value_form(fields: tuple[Field, ...]) -> ValueAs | None:
    """How `value` is written; None: there is none, or it is base64."""
    return next((_FORMS.get((f.kind, f.parsed)) for f in fields if f.name == "value"), None)


_FORMS: dict[tuple[Kind, bool], ValueAs] = {
    (Kind.TEXT, False): "text",
    (Kind.TEXT, True): "json",
    (Kind.STRING, False): "text",
    (Kind.JSON, False): "json",
    (Kind.VALUE, False): "json",
}


def _in_form(field: Field, wanted: ValueAs, source: SourceInfo) -> Field | None:
    """None: it cannot be."""
    if wanted == "text" and field.kind in (Kind.JSON, Kind.TEXT):
        return replace(field, kind=Kind.TEXT, parsed=False)
    if wanted == "json" and field.kind is Kind.TEXT and source.decode.value == "json":
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
