"""The encoder against a slow and obvious one, and its frames against an independent parser."""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import TextMessage

from kiwi_gw.dialects.encoder import FrameEncoder, separators
from kiwi_gw.errors import EncodingFailed
from kiwi_gw.model import Batch, Encoded, Field, FieldEncoding
from tests.effort import examples

HEAD, TAIL = b'{"type":"RESULT","data":', b"}"
MIB = 1024 * 1024


def encoder(fields: Sequence[Field], max_event_bytes: int = 8 * MIB) -> FrameEncoder:
    return FrameEncoder(fields, "täst", "demo", head=HEAD, tail=TAIL, max_event_bytes=max_event_bytes)


def batch_of(length: int = 1, **columns: Sequence[object]) -> Batch:
    return Batch({0: 0}, array("q", [0] * length), array("q", range(length)), columns, cost=1)


def messages(data: bytes) -> list[str]:
    """What an independent client reads."""
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(data)
    texts: list[str] = []
    parts: list[str] = []
    for event in client.events():
        assert isinstance(event, TextMessage)
        parts.append(event.data)
        if event.message_finished:
            texts.append("".join(parts))
            parts.clear()
    assert not parts
    return texts


def fragments(encoded: Encoded) -> list[bytes]:
    starts = [0, *encoded.ends[:-1]]
    return [encoded.buffer[a:b] for a, b in zip(starts, encoded.ends, strict=True)]


def read(encoded: Encoded) -> list[list[tuple[str, Any]] | None]:
    """The members of every event in their order, None for one that yields nothing."""
    result: list[list[tuple[str, Any]] | None] = []
    for fragment in fragments(encoded):
        if not fragment:
            result.append(None)
            continue
        (text,) = messages(fragment)
        assert text.startswith('{"type":"RESULT","data":{')
        outer = json.loads(text, object_pairs_hook=list)
        assert [name for name, _ in outer] == ["type", "data"]
        result.append(outer[1][1])
    return result


def slowly(fields: Sequence[Field], batch: Batch, index: int) -> list[tuple[str, Any]]:
    """What the members of an event should be, by the words of `FieldEncoding`."""
    members: list[tuple[str, Any]] = []
    for field in fields:
        if field.kind is FieldEncoding.SOURCE_ID:
            members.append((field.name, "täst"))
            continue
        if field.kind is FieldEncoding.SOURCE_TYPE:
            members.append((field.name, "demo"))
            continue
        value: Any = batch.column(field.source_column)[index]
        match field.kind:
            case FieldEncoding.INT:
                members.append((field.name, None if value == field.none else value))
            case FieldEncoding.TEXT:
                members += as_text(field, value)
            case FieldEncoding.BASE64:
                members.append((field.name, None if value is None else b64(value)))
            case FieldEncoding.JSON:
                members.append((field.name, None if value is None else pairs(json.loads(value))))
            case FieldEncoding.HEADERS:
                listed = [[("key", k), ("value", None if v is None else b64(v))] for k, v in value]
                members.append((field.name, listed))
            case _:
                members.append((field.name, pairs(value)))
    return members


def as_text(field: Field, value: bytes | None) -> list[tuple[str, Any]]:
    try:
        return [(field.name, None if value is None else value.decode())]
    except UnicodeDecodeError:
        base64_fallback = [(f"{field.name}Base64", b64(value or b""))] if field.base64_fallback else []
        return [(field.name, None), *base64_fallback]


def b64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def pairs(value: Any) -> Any:
    return json.loads(json.dumps(value), object_pairs_hook=list)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=8,
)
maybe_bytes = st.none() | st.binary(max_size=300) | st.text(max_size=120).map(str.encode)
VALUES: Mapping[FieldEncoding, st.SearchStrategy[Any]] = {
    FieldEncoding.INT: st.integers(-2, 2) | st.integers(-(2**63), 2**63 - 1),
    FieldEncoding.TEXT: maybe_bytes,
    FieldEncoding.BASE64: maybe_bytes,
    FieldEncoding.STRING: st.none() | st.text(max_size=80),
    FieldEncoding.JSON: st.none() | json_values.map(lambda value: json.dumps(value, indent=1).encode()),
    FieldEncoding.VALUE: json_values,
    FieldEncoding.HEADERS: st.lists(
        st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3
    ),
}


@st.composite
def shapes(draw: st.DrawFn) -> tuple[tuple[Field, ...], Batch]:
    names = draw(st.lists(st.text(max_size=6), min_size=1, max_size=6, unique=True))
    length = draw(st.integers(1, 6))
    fields, columns = [], {}
    for index, name in enumerate(names):
        kind = draw(st.sampled_from(list(FieldEncoding)))
        none = draw(st.none() | st.just(-1)) if kind is FieldEncoding.INT else None
        base64_fallback = f"{name}Base64" not in names and draw(st.booleans())
        fields.append(Field(name, kind, column=f"c{index}", none=none, base64_fallback=base64_fallback))
        if kind in VALUES:
            columns[f"c{index}"] = draw(st.lists(VALUES[kind], min_size=length, max_size=length))
    return tuple(fields), batch_of(length, **columns)


@given(shapes())
@settings(max_examples=examples(300), deadline=None)
def test_it_says_what_the_obvious_encoder_says(case: tuple[tuple[Field, ...], Batch]) -> None:
    fields, batch = case
    encoded = encoder(fields)(batch)
    assert read(encoded) == [slowly(fields, batch, index) for index in range(len(batch))]
    assert (encoded.prefix_counts, encoded.unsendable, encoded.decode_errors) == (None, (), 0)
    assert len(messages(encoded.buffer)) == len(batch)


KEY_VALUE = (
    Field("sourceId", FieldEncoding.SOURCE_ID),
    Field("sourceType", FieldEncoding.SOURCE_TYPE),
    Field("key", FieldEncoding.TEXT),
    Field("value", FieldEncoding.TEXT, base64_fallback=False),
    Field("offset", FieldEncoding.INT),
)


def test_exact_bytes() -> None:
    encoded = encoder(KEY_VALUE)(batch_of(2, key=[b"a", None], value=[b'{"n":1}', b"\n"]))
    texts = [
        '{"type":"RESULT","data":{"sourceId":"täst","sourceType":"demo","key":"a","value":"{\\"n\\":1}","offset":0}}',
        '{"type":"RESULT","data":{"sourceId":"täst","sourceType":"demo","key":null,"value":"\\n","offset":1}}',
    ]
    assert messages(encoded.buffer) == texts
    assert isinstance(encoded.buffer, bytes)
    assert [len(fragment) for fragment in fragments(encoded)] == [2 + len(t.encode()) for t in texts]


def test_only_what_is_not_utf8_has_a_twin() -> None:
    encoded = encoder(KEY_VALUE)(batch_of(3, key=[b"ok", b"\xff\x00", None], value=[b"\xfe", b"", None]))
    tails = [
        [member for member in (event or []) if member[0] not in ("sourceId", "sourceType")]
        for event in read(encoded)
    ]
    assert tails == [
        [("key", "ok"), ("value", None), ("offset", 0)],
        [("key", None), ("keyBase64", "/wA="), ("value", ""), ("offset", 1)],
        [("key", None), ("value", None), ("offset", 2)],
    ]


def test_bytes_may_be_any_buffer() -> None:
    fields = (Field("text", FieldEncoding.TEXT), Field("raw", FieldEncoding.BASE64, column="text"))
    values = [b"a", bytearray(b"b"), memoryview(b"c")]
    assert read(encoder(fields)(batch_of(3, text=values))) == [
        [("text", char), ("raw", b64(char.encode()))] for char in "abc"
    ]


@pytest.mark.parametrize(
    "size", [0, 1, 60, 61, 62, 125, 126, 127, 65_470, 65_471, 65_472, 65_535, 65_536, 200_000]
)
def test_every_header_size(size: int) -> None:
    encoded = encoder((Field("v", FieldEncoding.TEXT),))(batch_of(2, v=[b"x" * size, b"y" * size]))
    assert [json.loads(text)["data"] for text in messages(encoded.buffer)] == [
        {"v": "x" * size},
        {"v": "y" * size},
    ]


def test_what_is_too_large_is_left_out_and_named() -> None:
    batch = batch_of(5, key=[None] * 5, value=[b"1", b"x" * 200, b"3", b"x" * 101, b"x" * 100])
    whole = encoder(KEY_VALUE)(batch)
    limit = max(len(fragments(whole)[index]) for index in (0, 2, 4))
    encoded = encoder(KEY_VALUE, max_event_bytes=limit)(batch)
    assert encoded.unsendable == (1, 3)
    assert list(encoded.prefix_counts or ()) == [0, 1, 1, 2, 2, 3]
    expected = fragments(whole)
    assert fragments(encoded) == [expected[0], b"", expected[2], b"", expected[4]]
    exactly = encoder(KEY_VALUE, max_event_bytes=max(map(len, expected)))(batch)
    assert (exactly.unsendable, exactly.prefix_counts) == ((), None)


def test_many_small_events_are_not_one_large_one() -> None:
    batch = batch_of(100, key=[b"k"] * 100, value=[b"v"] * 100)
    assert encoder(KEY_VALUE, max_event_bytes=200)(batch) == encoder(KEY_VALUE)(batch)


class Odd:
    """Has no JSON."""


RECURSIVE: list[object] = []
RECURSIVE.append(RECURSIVE)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (FieldEncoding.VALUE, Odd()),
        (FieldEncoding.VALUE, {"deep": [Odd()]}),
        (FieldEncoding.VALUE, RECURSIVE),
        (FieldEncoding.STRING, "\ud800"),
        (FieldEncoding.TEXT, 5),
        (FieldEncoding.TEXT, "text"),
        (FieldEncoding.BASE64, Odd()),
        (FieldEncoding.INT, Odd()),
        (FieldEncoding.JSON, b""),
        (FieldEncoding.JSON, b'{"a":'),
        (FieldEncoding.JSON, b'{"a":1} {}'),
        (FieldEncoding.JSON, b'"\xff"'),
        (FieldEncoding.JSON, b"[" * 100_000),
        (FieldEncoding.JSON, 5),
        (FieldEncoding.HEADERS, None),
        (FieldEncoding.HEADERS, [5]),
        (FieldEncoding.HEADERS, [("a", "b", "c")]),
        (FieldEncoding.HEADERS, [("a", Odd())]),
    ],
)
def test_an_event_without_json_takes_no_other_with_it(kind: FieldEncoding, value: object) -> None:
    good: Mapping[FieldEncoding, object] = {
        FieldEncoding.TEXT: b"1",
        FieldEncoding.JSON: b"1",
        FieldEncoding.HEADERS: [],
        FieldEncoding.BASE64: b"1",
    }
    values = [good.get(kind, 1), value, good.get(kind, 1)]
    encoded = encoder((Field("v", kind), Field("offset", FieldEncoding.INT)))(batch_of(3, v=values))
    assert encoded.decode_errors == 1
    assert list(encoded.prefix_counts or ()) == [0, 1, 1, 2]
    assert [event and event[1] for event in read(encoded)] == [("offset", 0), None, ("offset", 2)]
    assert encoded.unsendable == ()


def test_numbers_that_json_has_not_are_null() -> None:
    values = [float("nan"), float("inf"), 1.5]
    assert read(encoder((Field("v", FieldEncoding.VALUE),))(batch_of(3, v=values))) == [
        [("v", None)],
        [("v", None)],
        [("v", 1.5)],
    ]


def test_constants_may_stand_anywhere() -> None:
    source_id, source_type = Field("a", FieldEncoding.SOURCE_ID), Field("b", FieldEncoding.SOURCE_TYPE)
    offset = Field("offset", FieldEncoding.INT)
    for fields in (
        (source_id, source_type, offset),
        (offset, source_id, source_type),
        (source_type, offset, source_id),
        (source_id, source_type),
        (source_id,),
        (),
    ):
        batch = batch_of(2)
        assert read(encoder(fields)(batch)) == [slowly(fields, batch, index) for index in range(2)]


@pytest.mark.parametrize("names", [('say "hi"', "back\\slash", "line\nbreak", "", "ü")])
def test_any_member_name(names: Iterable[str]) -> None:
    fields = tuple(Field(name, FieldEncoding.TEXT, column="c") for name in names)
    batch = batch_of(2, c=[b"x", b"\xff"])
    assert read(encoder(fields)(batch)) == [slowly(fields, batch, index) for index in range(2)]


def test_an_empty_batch() -> None:
    encoded = encoder(KEY_VALUE)(batch_of(0, key=[], value=[]))
    assert (encoded.buffer, list(encoded.ends)) == (b"", [])


def test_a_batch_without_its_columns_cannot_be_encoded() -> None:
    with pytest.raises(EncodingFailed, match="'täst' lack the column 'value'"):
        encoder(KEY_VALUE)(batch_of(1, key=[b"k"]))
    for values in ([b"1"], [b"1", b"2", b"3"]):
        with pytest.raises(EncodingFailed, match="2 events"):
            encoder((Field("v", FieldEncoding.TEXT),))(batch_of(2, v=values))


def test_what_stands_before_frames_is_kept_within_bytes() -> None:
    found = separators(b"h" * 10_000, b"")
    assert [len(found[length]) for length in (1, 200, 65_536)] == [10_004, 10_004, 10_010]
    for length in range(2_000):
        assert found[length].endswith(b"h" * 10_000)
    assert sum(map(len, found.values())) <= 512 * 1024
