"""Whatever a client of SQL v2 sends: nothing raises, and every first message gets one end, or a stream.

A million messages: `pytest -k by_chance --hypothesis-profile million --timeout 7200` on this file.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.core.notices import Silent
from kiwi_gw.dialects.lenses.v2.executions import Executions
from tests.effort import examples
from tests.unit.core.desk import Gateway
from tests.unit.dialects.frames import anything, frames
from tests.unit.dialects.lenses.bench import Json
from tests.unit.dialects.lenses.v2.caller import SqlCaller

STATEMENTS: Final = [
    "SELECT * FROM cars",
    "SELECT a.b[0] AS n, _key FROM `cars` WHERE a > 1 AND _vtype='JSON' LIMIT 3;",
    "SET max.size=10; SET show.bad.records=false; SELECT _value.*, _meta.* FROM cars",
    "SELECT n, count(*) AS m FROM cars WHERE _offset >= 1 GROUP BY n HAVING m > 2 ORDER BY m DESC LIMIT 2",
    "SELECT a.n FROM cars a JOIN boats b ON a.n = b.n",
    "SET max.query.time=1s; SELECT DISTINCT upper(n) FROM boats WHERE n LIKE 'a%' OR n IN (1, 2.5, 'x')",
    "SELECT * FROM cars WHERE _offset > 5 AND _offset < 3",
    "SELECT n FROM nowhere WHERE _partition = 3 AND _ts > 100",
    "INSERT INTO cars SELECT reflect('java.lang.Runtime') FROM `/etc/passwd`",
]
VALUES: Final = [b"1", b"{", None, b'{"n":1,"a":{"b":[2]}}', b"\xff", b'"a"', b"[" * 2_000]
KINDS: Final = {"METADATA", "RECORD", "BADRECORD", "STATS", "SENTINEL", "HEARTBEAT", "ERROR", "END"}


def gateway() -> Gateway:
    made = Gateway("cars", "boats")
    for name in ("cars", "boats"):
        made.publish(name, *VALUES)
    return made


class Judge:
    """Sends messages, each by a client of its own, and looks at what they hear."""

    def __init__(self) -> None:
        self.gateway = gateway()
        self.executions = Executions(64, 8)
        self.ends = 0

    def try_one(self, message: str | bytes, *more: str | bytes) -> None:
        """Send a first message, and others behind it. Assert that it gets one end, or a stream that goes on
        until it is cancelled."""
        caller = SqlCaller(self.gateway, executions=self.executions)
        self.gateway.desks.remove(caller)
        caller.receive(message)
        heard = caller.heard()
        if caller.hung_up is None:
            assert list(caller.open) == ["execution"], message
            assert self.executions.count == 1, message
            assert {each["type"] for each in heard} <= KINDS - {"ERROR", "END"}, message
            caller.pass_time(0.3)
            caller.carry_out(caller.session.notice(Silent()))
            for each in more or (message,):
                caller.receive(each)
            heard += caller.heard()
            assert caller.code == 1008 or not more or heard[-1] == {"type": "END"}, message
        _check(heard, message)
        self.ends += 1
        assert caller.code in (1000, 1003, 1008), message
        assert (caller.open, self.executions.count) == ({}, 0), message
        caller.receive(message)
        assert caller.heard() == []


def _check(heard: list[Json], message: str | bytes) -> None:
    kinds = [each["type"] for each in heard]
    assert set(kinds) <= KINDS, message
    assert kinds.index("END") == len(kinds) - 1, (message, heard)
    assert "ERROR" not in kinds[:-2], (message, heard)
    assert kinds.count("METADATA") == (kinds[0] == "METADATA"), (message, heard)
    assert all(set(each) <= {"type", "data"} or each["type"] == "RECORD" for each in heard), message


# --- by strategies ---------------------------------------------------------------------------------

MESSAGES = st.fixed_dictionaries(
    {"sql": st.sampled_from(STATEMENTS) | st.text() | anything()},
    optional={
        "token": st.sampled_from(["", "t"]) | anything(),
        "live": st.booleans() | anything(),
        "stats": st.integers(-1, 2**64) | anything(),
        "more": anything(),
    },
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(frames(MESSAGES.map(json.dumps), anything("sql", "token")), min_size=1, max_size=4))
def test_every_first_message_gets_one_end(messages: list[str | bytes]) -> None:
    Judge().try_one(*messages)


# --- many, by chance -------------------------------------------------------------------------------

SIGNS: Final = "(|)|,|'|\"|`|;|--|/*|*/|\\|\0|\u2028|é|NULL|NaN|-|1e999|LIMIT|NOT|BETWEEN|((((((((|USING"
WORDS: Final = [
    *sorted({word for text in STATEMENTS for word in text.split()}),
    *SIGNS.split("|"),
    *("CASE WHEN", "9" * 40, "LIMIT 0", "java_method("),
]
PIECES: Final = [
    *('"', "\\", "\\ud800", "\\u0000", "{", "}", "[", "]", ":", ",", "null", "NaN", "1e400", "-", "0x1"),
    *('"live":true,', '"stats":250,', '"token":"t",', '"sql":"SELECT 1",', "[" * 3_000, '{"a":' * 2_000),
]


def statement(chance: random.Random) -> str:
    """A statement with some words left out, doubled, or from others."""
    words = chance.choice(STATEMENTS).split()
    for _ in range(chance.choice((0, 0, 1, 1, 2, 4))):
        place = chance.randrange(len(words) + 1)
        words[place : place + chance.randrange(3)] = chance.choices(WORDS, k=chance.randrange(3))
    return " ".join(words)


def member(chance: random.Random) -> object:
    return chance.choice((None, True, False, 0, 1, 250, 2**53, 2**64, -1, 1.5, "", "t", [], {}, "\ud800"))


def message(chance: random.Random) -> str | bytes:
    """A message, mostly as it should be; its text may be cut, or have something put into it."""
    members: Json = {"sql": statement(chance) if chance.random() < 0.97 else member(chance)}
    for name in ("live", "stats", "token", "more"):
        if chance.random() < 0.25:
            members[name] = member(chance)
    return garbled(chance, json.dumps(members))


def garbled(chance: random.Random, text: str) -> str | bytes:
    """The text, which may be cut, have something put into it, or be no text any more."""
    for _ in range(chance.choice((0, 0, 0, 0, 1, 2))):
        place = chance.randrange(len(text) + 1)
        text = text[:place] + chance.choice(("", chance.choice(PIECES))) + text[place + chance.randrange(4) :]
    return text.encode() if chance.random() < 0.01 else text


def _each(number: int, one: Callable[[random.Random], None]) -> None:
    for seed in range(number):
        one(random.Random(seed))


def test_many_messages_by_chance() -> None:
    """The same ones every time, and others behind them where there are more."""
    judge, number = Judge(), examples(3_000)
    _each(number, lambda chance: judge.try_one(message(chance), *[message(chance)] * chance.randrange(2)))
    assert judge.ends == number
