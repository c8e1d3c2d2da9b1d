"""`from` and `onMissing` in SUBSCRIBE: every form, and a sentence for everything else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_gw.dialects.kiwi.messages import Subscribe
from kiwi_gw.dialects.kiwi.requests import InvalidCommand, open_command, read
from kiwi_gw.dialects.kiwi.results import kiwi_wire
from kiwi_gw.model import AtPositions, AtTime, Start, StartAt
from kiwi_gw.struct_errors import descriptions

MAX_INTEGER = 2**53 - 1
WRONG_FROM = (
    'from must be "latest", "earliest", "snapshot", {"timestamp": ms}, {"offsets": {"0": 12}} '
    'or {"positions": ...}'
)
WRONG_TIMESTAMP = f"from.timestamp must be an integer from 0 to {MAX_INTEGER}: ms since the epoch"
WRONG_OFFSETS = 'from.offsets must be an object of partition numbers and offsets, as in {"0": 12}'
WRONG_POSITIONS = "from.positions must be an object that the gateway has sent as positions"
WRONG_ON_MISSING = 'onMissing must be "earliest"; without it what is gone is refused'
LONE_ON_MISSING = "onMissing goes with from.offsets or from.positions"
NESTED = "The message is nested too deeply"


def subscribe(**members: object) -> Start | str:
    """Where a SUBSCRIBE with these members begins, or what is wrong with it."""
    return written(json.dumps({"type": "SUBSCRIBE", "sourceId": "a", **members}))


def written(message: str) -> Start | str:
    command = read(message)
    if isinstance(command, InvalidCommand):
        return command.message
    assert isinstance(command, Subscribe)
    return open_command(command, kiwi_wire).start


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
    assert subscribe(**{"from": value}) == start


def test_without_it_from_now_on() -> None:
    assert subscribe() is StartAt.LATEST


@pytest.mark.parametrize("kind", ["offsets", "positions"])
def test_what_is_gone_may_be_skipped(kind: str) -> None:
    start = subscribe(**{"from": {kind: {"0": 1}}, "onMissing": "earliest"})
    assert start == AtPositions({"0": 1}, skip_missing=True)


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
    assert subscribe(**{"from": value}) == words


@pytest.mark.parametrize(
    ("begin", "words"),
    [
        ('{"positions":{"0":' + "[" * 1_200 + "]" * 1_200 + "}}", NESTED),
        ('{"positions":' + '{"a":' * 1_200 + "1" + "}" * 1_201, NESTED),
        ("1e5", WRONG_FROM),
        ('{"offsets":{"0":1e400}}', WRONG_OFFSETS),
        ('{"timestamp":' + "9" * 5_000 + "}", WRONG_TIMESTAMP),
    ],
    ids=["arrays", "objects", "a number", "infinite", "long"],
)
def test_what_no_client_means(begin: str, words: str) -> None:
    assert written('{"type":"SUBSCRIBE","sourceId":"a","from":' + begin + "}") == words


def test_on_missing() -> None:
    for value in NO_ON_MISSING:
        assert subscribe(**{"from": {"offsets": {}}, "onMissing": value}) == WRONG_ON_MISSING
    for begin in ({}, {"from": "latest"}, {"from": "earliest"}, {"from": {"timestamp": 5}}):
        assert subscribe(**begin, onMissing="earliest") == LONE_ON_MISSING


def test_every_member_of_a_subscribe_is_described() -> None:
    assert descriptions(Subscribe).keys() >= set(Subscribe.__struct_encode_fields__)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
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
    more = {} if on_missing is None else {"onMissing": on_missing}
    start = subscribe(**{"from": value}, **more)
    if isinstance(start, str):
        assert start.startswith(("from", "onMissing")) or start == NESTED
    else:
        assert isinstance(start, StartAt | AtTime | AtPositions)
