"""Whatever a client of Lenses v1 sends: nothing raises, and every text gets one answer."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from kiwi_gw.dialect_api.limits import SessionLimits
from tests.effort import examples
from tests.unit.core.desk import Gateway
from tests.unit.dialects.frames import anything, frames
from tests.unit.dialects.lenses.bench import Page
from tests.unit.dialects.lenses.v2.test_lenses_sql_fuzz import garbled, member, statement

SQL = st.sampled_from(
    [
        "SELECT * FROM cars",
        "SELECT a.b[0] AS n, _key FROM `cars` WHERE a > 1 AND _vtype='JSON' LIMIT 3;",
        "SET x=y; SELECT _value.*, _meta.* FROM cars WHERE _sample=2",
        "SELECT count(*) FROM cars GROUP BY a",
    ]
)
CONTENT = st.one_of(
    st.fixed_dictionaries({"user": st.text(), "password": st.text()}),
    st.fixed_dictionaries({"sqls": st.lists(SQL | st.text(), max_size=3)}),
    st.fixed_dictionaries({"topics": st.lists(st.sampled_from(["cars", "x"]) | anything(), max_size=3)}),
    st.fixed_dictionaries(
        {"topic": st.just("cars"), "value": anything(), "vtype": st.sampled_from(["INT", "json", "AVRO"])}
    ),
    st.fixed_dictionaries(
        {
            "commits": st.lists(
                st.fixed_dictionaries(
                    {"topic": st.just("cars"), "partition": st.integers(0, 9), "offset": st.integers()}
                )
            )
        }
    ),
    anything("topic", "sqls"),
)
TYPES = st.sampled_from(["LOGIN", "SUBSCRIBE", "UNSUBSCRIBE", "PUBLISH", "COMMIT", "login"])
REQUESTS: SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "type": TYPES,
        "correlationId": st.integers(-(2**63), 2**63 - 1) | anything(),
        "content": CONTENT.map(json.dumps) | st.text(),
    },
    optional={"authToken": st.sampled_from(["", "t"]) | anything(), "more": anything()},
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(frames(REQUESTS.map(json.dumps), anything("type", "content", "correlationId")), max_size=8))
def test_every_text_gets_one_answer(messages: list[str | bytes]) -> None:
    page = unhurried()
    for message in messages:
        hears_one_answer(page, message)


def unhurried() -> Page:
    """A client that may send as fast as it likes."""
    limits = replace(SessionLimits(), commands_per_second=0, requests_per_second=0)
    return Page(Gateway("cars"), limits=limits)


def hears_one_answer(page: Page, message: str | bytes) -> None:
    """Send a message; what is to be written is answered later."""
    before = len(page.writes)
    page.carry_out(page.session.receive(message, 0.0))
    if isinstance(message, bytes):
        assert page.hung_up is not None
        page.hung_up = None
        return
    heard = [each for each in page.heard() if each["type"] != "KAFKAMSG"]
    written = page.writes[before:]
    assert len(heard) == (0 if written else 1), (message, heard)


def content(chance: random.Random, kind: object) -> object:
    """Make what a request of that kind has, mostly as it should be."""
    topic = chance.choice(("cars", "cars", "cars", "x", member(chance)))
    number = chance.choice((0, 1, 7, -1, member(chance)))
    match kind if chance.random() < 0.95 else member(chance):
        case "LOGIN":
            return {"user": chance.choice(("ann", "")), "password": chance.choice(("right", member(chance)))}
        case "SUBSCRIBE":
            return {"sqls": [statement(chance) for _ in range(chance.choice((0, 1, 1, 1, 2)))]}
        case "UNSUBSCRIBE":
            return {"topics": [topic, {"topic": topic}][: chance.randrange(3)]}
        case "PUBLISH":
            form = chance.choice(("INT", "json", "STRING", "x"))
            return {"topic": topic, "key": "k", "value": member(chance), "vtype": form}
        case "COMMIT":
            return {"commits": [{"topic": topic, "partition": number, "offset": number}]}
    return member(chance)


def message(chance: random.Random) -> str | bytes:
    """A request, mostly as it should be; its text may be cut, or have something put into it."""
    kinds = "LOGIN", "SUBSCRIBE", "UNSUBSCRIBE", "PUBLISH", "COMMIT"
    kind = chance.choice(kinds) if chance.random() < 0.95 else member(chance)
    number = chance.choice((chance.getrandbits(63), -(2**63), 1))
    members = {"type": kind, "correlationId": number, "content": json.dumps(content(chance, kind))}
    for name in ("authToken", "more", "correlationId"):
        if chance.random() < 0.05:
            members[name] = member(chance)
    return garbled(chance, json.dumps(members))


def test_many_messages_by_chance() -> None:
    """The same ones every time, and others behind them where there are more."""
    number = examples(3_000)
    for seed in range(number):
        if seed % 50 == 0:
            page = unhurried()
        hears_one_answer(page, message(random.Random(seed)))
