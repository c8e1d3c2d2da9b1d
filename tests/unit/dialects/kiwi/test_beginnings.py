"""`from` and `onMissing` in SUBSCRIBE: every form, and a sentence for everything else."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from kiwi_gw.dialects.kiwi.beginnings import (
    LONE_ON_MISSING,
    WRONG_FROM,
    WRONG_OFFSETS,
    WRONG_ON_MISSING,
    WRONG_POSITIONS,
    WRONG_TIMESTAMP,
    Wrong,
    beginning,
)
from kiwi_gw.model import AtPositions, AtTime, Start, StartAt


def raw(value: object) -> Raw:
    return Raw(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("value", "start"),
    [
        ("latest", StartAt.LATEST),
        ("earliest", StartAt.EARLIEST),
        ("snapshot", StartAt.SNAPSHOT),
        ({"timestamp": 0}, AtTime(0)),
        ({"timestamp": 1_700_000_000_000}, AtTime(1_700_000_000_000)),
        ({"offsets": {"0": 12, "10": 0}}, AtPositions({"0": 12, "10": 0})),
        ({"offsets": {}}, AtPositions({})),
        ({"positions": {"batch": 3, "row": [1]}}, AtPositions({"batch": 3, "row": [1]})),
    ],
)
def test_every_form(value: object, start: Start) -> None:
    assert beginning(raw(value), None) == start


def test_without_it_from_now_on() -> None:
    assert beginning(None, None) is StartAt.LATEST


@pytest.mark.parametrize("kind", ["offsets", "positions"])
def test_what_is_gone_may_be_skipped(kind: str) -> None:
    assert beginning(raw({kind: {"0": 1}}), raw("earliest")) == AtPositions({"0": 1}, skip_missing=True)


NO_BEGINNINGS: tuple[object, ...] = (
    *("newest", "", None, 5, True, [], ["latest"], {}, {"offset": 5}, {"Timestamp": 5}),
    {"timestamp": 5, "offsets": {}},
)
NO_TIMESTAMPS: tuple[object, ...] = (-1, 1.5, "5", None, True, 2**53, {})
NO_OFFSETS: tuple[object, ...] = (
    *(None, 5, [], "0"),
    *({"0": -1}, {"0": 1.0}, {"0": "1"}, {"0": True}, {"0": 2**53}, {"0": None}),
    *({"a": 1}, {"": 1}, {"-1": 1}, {"01": 1}, {"\u0661": 1}, {"1" * 11: 1}),
)
NO_POSITIONS: tuple[object, ...] = (None, 5, [], "x", True)
NO_ON_MISSING: tuple[object, ...] = ("latest", "", None, 5, {})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        *[(value, WRONG_FROM) for value in NO_BEGINNINGS],
        *[({"timestamp": value}, WRONG_TIMESTAMP) for value in NO_TIMESTAMPS],
        *[({"offsets": value}, WRONG_OFFSETS) for value in NO_OFFSETS],
        *[({"positions": value}, WRONG_POSITIONS) for value in NO_POSITIONS],
    ],
)
def test_a_sentence_for_everything_else(value: object, words: str) -> None:
    with pytest.raises(Wrong) as error:
        beginning(raw(value), None)
    assert str(error.value) == words


@pytest.mark.parametrize("written", [b"{" * 60_000, b'{"positions":' + b"[" * 50_000, b"1e5", b'"\\ud800"'])
def test_what_is_no_json_inside(written: bytes) -> None:
    with pytest.raises(Wrong):
        beginning(Raw(written), None)


def test_on_missing() -> None:
    for value in NO_ON_MISSING:
        with pytest.raises(Wrong, match=WRONG_ON_MISSING.partition(";")[0]):
            beginning(raw({"offsets": {}}), raw(value))
    for begin in (None, raw("latest"), raw("earliest"), raw({"timestamp": 5})):
        with pytest.raises(Wrong, match=LONE_ON_MISSING):
            beginning(begin, raw("earliest"))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(["timestamp", "offsets", "positions", "0", "1"]) | st.text(max_size=2),
            children,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(anything, st.none() | anything)
def test_whatever_it_is(value: object, on_missing: object) -> None:
    with suppress(Wrong):
        start = beginning(raw(value), None if on_missing is None else raw(on_missing))
        assert isinstance(start, StartAt | AtTime | AtPositions)
