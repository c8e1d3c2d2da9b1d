"""What a filter names that no event has."""

from __future__ import annotations

import json

import pytest

from kiwi_gw.model import AS_JSON, Batch, Decode
from kiwi_gw.query import sql
from kiwi_gw.query.missing_members import MOST_EVENTS, missing_members
from tests.processor import least


def batch(*values: bytes | None) -> Batch:
    count = len(values)
    return Batch({0: 0}, [0] * count, range(count), {"value": list(values)}, cost=1)


EVENTS = batch(b'{"a": {"b": [1]}, "delay": null}', b'{"carrier": "AA"}', None, b"no json", b"5")


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("value.delay > 1 AND value.carrier = 'UA' AND value.a.b[0] = 2 AND key = 'x'", None),
        ("partition = 3", None),
        ("value = 7", None),
        ("value.dely > 1", "none of the newest 5 events has value.dely (did you mean delay?)"),
        ("value.a.c > 1", "none of the newest 5 events has value.a.c"),
        ("value.a.b[1] > 1 OR value.zz = 1", "none of the newest 5 events has value.a.b[1], value.zz"),
        (
            "value.zz = value.zy OR value.zx = value.zw OR value.zz = value.zv",
            "none of the newest 5 events has value.zz, value.zy, value.zx and 2 more",
        ),
    ],
)
def test_members_that_no_event_has_are_named_with_the_nearest(where: str, words: str | None) -> None:
    assert missing_members(sql.read(where, None), [EVENTS], AS_JSON) == words


def test_a_member_that_one_of_the_last_batches_has_is_known() -> None:
    query = sql.read("value.rare = 1", None)
    rare, common = batch(b'{"rare": 1}'), batch(b'{"a": 1}')
    assert missing_members(query, [rare, common, common], AS_JSON) is None
    assert missing_members(query, [rare, *[common] * MOST_EVENTS], AS_JSON) is not None, "too long ago"
    assert missing_members(query, [], AS_JSON) is None
    assert missing_members(sql.read(None, "value.rare"), [common], AS_JSON) is None


@pytest.mark.cost
def test_it_costs_little_whatever_the_query_and_the_events() -> None:
    where = " OR ".join(f"value.{'a' * 20}{number} = 1" for number in range(60))
    names = {f"{'a' * 19}{number}": number for number in range(500)}
    # The largest that are looked at, and one that is not.
    events = [batch(*[json.dumps(names).encode()] * 2_000), batch(b" " * 8_000_000)]
    query = sql.read(where, None)
    assert least(lambda: missing_members(query, events, AS_JSON), 0.010) < 0.010
    words = missing_members(query, events, AS_JSON)
    assert words is not None
    assert len(words) < 500
    assert missing_members(query, events, Decode("string")) is not None
    assert missing_members(query, events[1:], AS_JSON) is None, "it is too large to be looked at"
