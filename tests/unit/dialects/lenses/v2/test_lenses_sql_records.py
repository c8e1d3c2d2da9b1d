"""The frames of SQL v2 and what is counted of them, against the obvious way to make them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.core.encoding import EncodingMemo, keyed_format
from kiwi_gw.core.transforms import per_record
from kiwi_gw.core.window import MemoryBudget, WindowEntry
from kiwi_gw.dialects.lenses.v2.records import BAD, BYTES, RESULTS, SCANNED, RecordForm, id_of
from kiwi_gw.model import Decode, Encoded, EventTransform, Steps, TimeSlice
from kiwi_gw.query.avro import RegisteredSchema
from kiwi_gw.query.decoded_batch import DecodedBatch
from tests.effort import examples
from tests.unit.dialects.lenses.v2.statements import (
    FIRST,
    TIME,
    TIME_TEXT,
    Message,
    batch,
    counts,
    messages,
    wire,
)

AVRO = '{"type":"record","name":"r","fields":[{"name":"n","type":"int"}]}'
BAD_ONE = object()


# --- the model -------------------------------------------------------------------------------------


def _json(written: bytes) -> object:
    def refuse(text: str) -> None:
        raise ValueError(text)

    text = written.decode()
    found = json.loads(text, parse_constant=refuse)
    json.dumps(found, ensure_ascii=False).encode()  # no half of a surrogate pair
    return found


def _number(size: int) -> Callable[[bytes], object]:
    def number(written: bytes) -> object:
        if len(written) != size:
            raise ValueError
        return int.from_bytes(written, "big", signed=True)

    return number


def _avro(written: bytes) -> object:
    """A number of one byte: others are not made here."""
    (byte,) = written
    if byte >= 0x80:
        raise ValueError
    return {"n": (byte >> 1) ^ -(byte & 1)}


DECODERS: dict[str, Callable[[bytes], object]] = {
    "string": bytes.decode,
    "json": _json,
    "int": _number(4),
    "long": _number(8),
    "binary": lambda written: base64.b64encode(written).decode(),
    "avro": _avro,
}
BYTES_OF = {
    "string": st.text(max_size=5).map(lambda text: text.encode("utf-8", "replace")),
    "json": st.recursive(
        st.none() | st.integers() | st.text(max_size=3), lambda each: st.lists(each, max_size=3)
    ).map(lambda value: json.dumps(value).encode()),
    "int": st.binary(min_size=4, max_size=4),
    "long": st.binary(min_size=8, max_size=8),
    "binary": st.binary(max_size=5),
    "avro": st.integers(0, 127).map(lambda byte: bytes([byte])),
}
ODD = st.sampled_from([b"\xff", b"{", b"", b"NaN", b'"\\ud800"', b"[1", b"\x01" * 5, b'"\xed\xa0\x80"'])


def decoded(form: str, written: bytes | None) -> object:
    if written is None:
        return None
    try:
        return DECODERS[form](written)
    except ValueError:
        return BAD_ONE


@dataclass(frozen=True)
class Case:
    """A statement, as the model does it: what it looks at, and the offset from which it wants events."""

    sql: str
    looks_at: tuple[str, ...]
    columns: bool
    since: int = 0


CASES = [
    Case("SELECT * FROM t", (), columns=False),
    Case("SELECT * FROM t WHERE _offset >= 9", (), columns=False, since=9),
    Case("SELECT _value AS value, _key AS key FROM t", ("key", "value"), columns=True),
    Case("SELECT _key AS key FROM t WHERE _offset >= 8", ("key",), columns=True, since=8),
    Case("SELECT * FROM t WHERE _value IS NOT NULL OR _offset >= 0", ("value",), columns=False),
    Case("SELECT _offset AS o FROM t WHERE _offset >= 9", (), columns=True, since=9),
]


@dataclass(frozen=True)
class Expected:
    message: Message | None
    result: bool = False
    bad: bool = False


def expected(
    case: Case, form: RecordForm, forms: tuple[str, str], index: int, parts: tuple[bytes | None, bytes | None]
) -> Expected:
    offset = FIRST + index
    key, value = (decoded(how, part) for how, part in zip(forms, parts, strict=True))
    by_name = {"key": key, "value": value}
    place: Message = {"offset": offset, "partition": 0, "timestamp": TIME}
    bad = {"type": "BADRECORD", "data": {"metadata": {**place, "table": "t", "sourceId": id_of("t")}}}
    unread = any(by_name[name] is BAD_ONE for name in case.looks_at)
    if not unread and offset < case.since:
        return Expected(None)
    if unread or (not case.columns and BAD_ONE in (key, value)):
        return Expected(bad if form.bad else None, bad=True)
    sizes = {"__keysize": len(parts[0] or b""), "__valuesize": len(parts[1] or b"")}
    metadata = {**place, "timestamp": TIME_TEXT if form.iso else TIME, **sizes}
    if case.columns:
        data: Message = {"value": {name: by_name[name] for name in case.looks_at} or {"o": offset}}
    else:
        data = {"value": value} if key is None else {"key": key, "value": value}
    return Expected({"type": "RECORD", "data": {**data, "metadata": metadata, "rownum": offset}}, result=True)


@st.composite
def batches(draw: st.DrawFn) -> tuple[tuple[str, str], list[tuple[bytes | None, bytes | None]]]:
    forms = draw(st.sampled_from(list(DECODERS))), draw(st.sampled_from(list(DECODERS)))
    part = [st.none() | BYTES_OF[form] | BYTES_OF[form] | ODD for form in forms]
    return forms, draw(st.lists(st.tuples(*part), max_size=6))


@settings(max_examples=examples(600), deadline=None)
@given(batches(), st.sampled_from(CASES), st.booleans(), st.booleans(), st.integers(150, 220))
def test_every_event_has_the_frame_that_is_expected(
    events: tuple[tuple[str, str], list[tuple[bytes | None, bytes | None]]],
    case: Case,
    iso: bool,
    bad: bool,
    most: int,
) -> None:
    forms, parts = events
    form = RecordForm("t", iso, bad)
    decode = Decode(key=forms[0], value=forms[1], avro_schema=AVRO)  # type: ignore[arg-type]
    written = batch([value for _, value in parts], [key for key, _ in parts])
    whole = wire(case.sql, decode, form).encode(written)
    model = [expected(case, form, forms, index, each) for index, each in enumerate(parts)]
    assert messages(whole) == [each.message for each in model]
    assert counts(whole) == {
        RESULTS: [each.result for each in model],
        BAD: [each.bad for each in model],
        BYTES: [len(key or b"") + len(value or b"") for key, value in parts],
        SCANNED: [1] * len(parts),
    }
    assert whole.decode_errors == sum(each.bad for each in model)
    # A frame that is too large is neither a result nor bad, and the others are as before.
    sizes = [end - begin for begin, end in zip([0, *whole.ends], whole.ends, strict=False)]
    large = [n for n, each in enumerate(model) if each.result and sizes[n] > most]
    cut = wire(case.sql, decode, form, most).encode(written)
    assert cut.unsendable == tuple(large)
    assert messages(cut) == [None if n in large else each.message for n, each in enumerate(model)]
    assert counts(cut)[RESULTS] == [each.result and n not in large for n, each in enumerate(model)]
    assert counts(cut)[BAD] == counts(whole)[BAD]


@settings(max_examples=examples(100), deadline=None)
@given(batches(), st.sampled_from(CASES))
def test_it_makes_the_same_in_turns(
    events: tuple[tuple[str, str], list[tuple[bytes | None, bytes | None]]], case: Case
) -> None:
    forms, parts = events
    decode = Decode(key=forms[0], value=forms[1], avro_schema=AVRO)  # type: ignore[arg-type]
    form, parts = wire(case.sql, decode), parts * 20
    at_once = form.encode(batch([value for _, value in parts], [key for key, _ in parts]))
    assert form.steps is not None
    steps = form.steps(batch([value for _, value in parts], [key for key, _ in parts]), TimeSlice(until=0.0))
    assert last_of(steps) == at_once


def test_between_what_is_made_of_a_whole_batch_others_may_run() -> None:
    values = [b'{"n":%d}' % n for n in range(1_000)]
    form = wire("SELECT * FROM t WHERE n < 0", Decode("json"))
    assert form.steps is not None
    over = TimeSlice(until=0.0)
    steps = form.steps(batch(values), over)
    number = sum(1 for _ in steps)
    decoding = sum(1 for _ in DecodedBatch(batch(values), Decode("json")).decoded(("value",), over))
    assert number == decoding + 5, "before keys, values, sizes, frames, and their joining"


def last_of(steps: Steps[Encoded]) -> Encoded:
    """Take step after step, and return what comes of it."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            made: Encoded = done.value
            return made


# --- odd things ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, None),
        (None, None),
        (-2, "1969-12-31T23:59:59.998Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        (-62_135_596_800_001, -62_135_596_800_001),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, 253_402_300_800_000),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        ("2026-11-21", "2026-11-21"),
        (1.5, 1.5),
    ],
)
def test_times_that_no_calendar_has_are_as_they_are(moment: object, text: object) -> None:
    made = wire("SELECT * FROM t").encode(batch([b"1", b"{"], timestamp=[moment] * 2))
    good, bad = messages(made)
    assert good is not None
    assert bad is not None
    assert good["data"]["metadata"]["timestamp"] == text
    assert bad["data"]["metadata"]["timestamp"] == (None if moment == -1 else moment)


@pytest.mark.parametrize("sql", ["SELECT * FROM t", "SELECT _value AS v FROM t"])
def test_what_is_no_bytes_is_written_and_measured_as_queries_see_it(sql: str) -> None:
    values: Sequence[object] = ["é", {"a": 1, "b": 2}, [1, 2, 3], 5, b"7"]
    made = messages(wire(sql).encode(batch(values)))
    data: list[Any] = [message["data"] for message in made if message is not None]
    found = [each["value"] if sql.startswith("SELECT *") else each["value"]["v"] for each in data]
    assert found == ["é", {"a": 1, "b": 2}, [1, 2, 3], 5, 7]
    assert [each["metadata"]["__valuesize"] for each in data] == [2, 0, 0, 0, 1]
    alone = messages(wire(sql).encode(batch([{"a": 1}])))  # beside nothing that is bytes
    assert alone[0] is not None
    assert alone[0]["data"]["metadata"]["__valuesize"] == 0


def test_a_source_with_neither_values_nor_times() -> None:
    made = wire("SELECT * FROM t").encode(batch(None, timestamp=[-1], count=[3]))
    (message,) = messages(made)
    assert message is not None
    assert message["data"]["value"] == {"count": 3, "timestamp": -1}
    assert message["data"]["metadata"]["timestamp"] is None


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT repeat(s, 100000) AS long FROM t WHERE _offset > 7",
        "SELECT * FROM t WHERE repeat(s, 100000) = 'x' AND _offset > 7",
    ],
)
def test_a_record_for_which_it_cannot_be_evaluated_is_bad(sql: str) -> None:
    value = b'{"s":"' + b"a" * 3_000 + b'"}'
    made = wire(sql).encode(batch([value, b'{"s":"a"}', b'"', value]))
    bad = [each is not None and each["type"] == "BADRECORD" for each in messages(made)]
    assert counts(made)[BAD] == bad
    assert (bad[2:], made.decode_errors) == ([True, True], sum(bad))


def test_a_source_that_ends_with_what_it_cannot_decode() -> None:
    decode = Decode(close=True)
    for sql in "SELECT *", "SELECT n":
        made = wire(f"{sql} FROM t", decode).encode(batch([b"1", b"{", b"3", b"["]))
        assert (made.failing, made.decode_errors) == ((1, 3), 0)
        assert [each and each["type"] for each in messages(made)][::2] == ["RECORD"] * 2
    both = wire("SELECT * FROM t WHERE _key.a = 1 OR _offset > 0", replace(decode, key="json"))
    values, keys = [b"1", b"{", b"3", b"4"], [b"{}", b"{}", b"{", b"{}"]
    assert both.encode(batch(values, keys=keys)).failing == (1, 2)
    assert wire("SELECT _offset AS o FROM t", decode).encode(batch([b"{"])).failing == ()


def test_the_ids_of_registered_schemas() -> None:
    number, text = RegisteredSchema(1, AVRO), RegisteredSchema(2, '"string"')
    decode = Decode(key="avro", value="avro", registry=True)
    columns = {"key schema": [text, text, None], "value schema": [number, None, number]}
    values = [b"\0\0\0\0\1\x0e", None, b"\0\0\0\0\1\x0e"]
    keys = [b"\0\0\0\0\2\x02k", b"\0\0\0\0\2\x02k", None]
    made = messages(wire("SELECT * FROM t", decode).encode(batch(values, keys, **columns)))
    ids = [
        {name: number for name, number in message["data"]["metadata"].items() if name.endswith("SchemaId")}
        for message in made
        if message is not None
    ]
    assert ids == [{"keySchemaId": 2, "valueSchemaId": 1}, {"keySchemaId": 2}, {"valueSchemaId": 1}]


# --- whose bytes are shared ------------------------------------------------------------------------


def test_only_what_changes_no_bytes_shares_them() -> None:
    same = [
        wire("SELECT * FROM t"),
        wire("SELECT  *  FROM t LIMIT 3"),
        wire("SET max.size=1; SELECT * FROM t"),
    ]
    assert len({form.key for form in same}) == 1
    others = [
        wire("SELECT * FROM t", form=RecordForm("u")),
        wire("SELECT * FROM t", form=RecordForm("t", iso=False)),
        wire("SELECT * FROM t", form=RecordForm("t", bad=False)),
        wire("SELECT * FROM t", Decode(value="string")),
        wire("SELECT * FROM t WHERE _vtype = 'STRING'"),
        wire("SELECT n FROM t"),
        wire("SELECT n AS m FROM t"),
        wire("SELECT * FROM t WHERE n > 1"),
        wire("SELECT * FROM t", most=200),
    ]
    # The table that is read as a source declares it, and as the statement says, is the same table.
    assert others[3].key == others[4].key
    assert len({form.key for form in [*same, *others]}) == len(others)
    assert [form.chosen for form in same] == [False] * 3
    assert [form.chosen for form in others] == [False, True, True, False, True, True, True, True, False]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.sampled_from([b'{"n":1}', b"{", b'{"n":2}', b'"#"', b"#"]), max_size=8))
def test_what_an_interceptor_withholds_is_in_no_number(values: list[bytes]) -> None:
    """Nor in a frame; and what it leaves has the frames and numbers that it has alone."""

    def hide(record: Any) -> Any:
        return None if b"#" in record["value"] else {**record, "value": record["value"].upper()}

    events = batch(values)
    entry = WindowEntry(events, 0)
    budget = MemoryBudget(1 << 20)
    item = keyed_format(wire("SELECT * FROM t"), [EventTransform(per_record(hide), "hide")])
    made = EncodingMemo(1 << 20, budget).encoded(entry, item)
    shown = [b"#" not in value for value in values]
    alone = wire("SELECT * FROM t").encode(batch([value.upper() for value in values]))
    assert messages(made) == [
        message if there else None for message, there in zip(messages(alone), shown, strict=True)
    ]
    assert counts(made) == {
        label: [number if there else 0 for number, there in zip(numbers, shown, strict=True)]
        for label, numbers in counts(alone).items()
    }
