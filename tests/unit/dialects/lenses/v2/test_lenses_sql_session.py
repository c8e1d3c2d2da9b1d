"""One statement from the message to END: timers by a fake clock, slow clients, ends of every kind."""

from __future__ import annotations

import pytest

from kiwi_gw.codes import RefusalCode
from kiwi_gw.core.notices import Offloaded, Unanswered
from kiwi_gw.dialects.lenses.v2.executions import Executions
from kiwi_gw.dialects.lenses.v2.session import LOG_IN_FIRST, ONE_ONLY
from kiwi_gw.model import (
    ANONYMOUS,
    Identity,
    OffsetRange,
    Refusal,
    Token,
)
from tests.unit.core.desk import Gateway
from tests.unit.core.fakes import Clock
from tests.unit.dialects.lenses.bench import Json
from tests.unit.dialects.lenses.v2.caller import SqlCaller, data, replayable, statement

EVERYTHING = "SELECT * FROM cars"


def opened_in_history(gateway: Gateway, caller: SqlCaller) -> None:
    """Say where the source begins and ends; nothing of it is read."""
    hub = gateway.hubs["cars"]
    (subscription,) = hub.unresolved
    hub.resolved(subscription, OffsetRange({0: 0}, {0: 100}))
    hub.effects.hand_out()
    assert caller.kinds() == ["METADATA"]


def ended(caller: SqlCaller, *kinds: str, code: int = 1000) -> list[Json]:
    """Assert that it has ended with these messages and END; return them."""
    heard = caller.heard()
    assert [message["type"] for message in heard] == [*kinds, "END"]
    assert (caller.code, caller.open) == (code, {})
    assert caller.executions.count == 0
    return heard


# --- the message -----------------------------------------------------------------------------------


def test_who_says_nothing_is_let_go() -> None:
    caller = SqlCaller(Gateway("cars", "boats"))
    caller.pass_time(4.9)
    assert caller.hung_up is None
    caller.pass_time(0.1)
    assert (caller.code, caller.heard()) == (4401, [])


def test_who_has_spoken_is_not() -> None:
    caller = SqlCaller(Gateway("cars"))
    caller.pass_time(4.9)
    caller.ask(EVERYTHING, live=True)
    caller.pass_time(0.2)
    caller.gateway.add("boats")
    assert (caller.code, caller.kinds()) == (None, ["METADATA"])


@pytest.mark.parametrize(
    "first", ["text", "binary", "while it logs in", "while it is read", "while it opens"]
)
@pytest.mark.parametrize("second", ["{}", b"{}", statement(EVERYTHING)])
def test_a_second_message_ends_it_whatever_it_is_at(first: str, second: str | bytes) -> None:
    gateway = Gateway("cars")
    gateway.add("slow", started=False)
    caller = SqlCaller(gateway)
    caller.holds_calls = first == "while it logs in"
    caller.holds_offloads = first == "while it is read"
    long = " AND ".join(["SELECT * FROM cars WHERE n = 0", *(f"n <> {n}" for n in range(200))])
    sql = {"while it is read": long, "while it opens": "SELECT * FROM slow"}.get(first, EVERYTHING)
    message: str | bytes = statement(sql, live=True)
    caller.receive(message.encode() if first == "binary" and isinstance(message, str) else message)
    if first == "binary":
        (error, _) = ended(caller, "ERROR", code=1003)
        assert error["data"] == "only text frames are understood"
        return
    assert bool(caller.offloads) == caller.holds_offloads
    assert bool(caller.calls) == caller.holds_calls
    caller.heard()
    caller.receive(second)
    (error, _) = ended(caller, "ERROR", code=1008)
    assert error["data"] == ONE_ONLY
    # What comes late changes nothing.
    caller.answer()
    caller.carry_out(caller.sql.notice(Offloaded("execution", Unanswered.TOO_LONG)))
    caller.carry_out(caller.sql.receive(statement(EVERYTHING), 0.0))
    caller.pass_time(100)
    assert caller.heard() == []
    assert caller.executions.count == 0


# --- who asks --------------------------------------------------------------------------------------

ANN = Identity("ann", authenticator="tokens")


def known(credential: object) -> Identity | Refusal:
    good = isinstance(credential, Token) and credential.text == "good"
    return ANN if good else Refusal(RefusalCode.NO_CREDENTIALS, "who are you?")


@pytest.mark.parametrize(
    ("header", "token", "words"),
    [
        (None, "good", None),
        (None, "wrong", "who are you?"),
        (None, None, LOG_IN_FIRST),
        (None, "", LOG_IN_FIRST),
        ("good", None, None),
        ("good", "", None),
        ("good", "good", None),
        ("good", "wrong", "the token is another one than that of the header"),
    ],
)
def test_whose_statement_it_is(header: str | None, token: str | None, words: str | None) -> None:
    headers = () if header is None else (("authorization", f"beaREr  {header} "),)
    identity = ANONYMOUS if header is None else ANN
    caller = SqlCaller(Gateway("cars"), headers=headers, known=known, identity=identity)
    caller.ask(EVERYTHING, token=token)
    if words is None:
        ended(caller, "METADATA")
    else:
        assert ended(caller, "ERROR")[0]["data"] == words


def test_a_client_has_so_many_whoever_else_has_any() -> None:
    gateway, executions = Gateway("cars"), Executions(5, 2)
    mine = [SqlCaller(gateway, executions=executions, known=known) for _ in range(3)]
    for caller in mine:
        caller.ask(EVERYTHING, token="good", live=True)
    assert [caller.code for caller in mine] == [None, None, 1000]
    assert mine[2].heard()[0]["data"] == "at most 2 queries of one client are executed at a time"
    other = SqlCaller(gateway, executions=executions)
    other.ask(EVERYTHING, live=True)
    assert executions.count == 3
    for caller in (*mine, other, *mine):
        caller.end()
    assert executions.count == 0


# --- time ------------------------------------------------------------------------------------------


def test_the_longest_time_that_a_query_takes() -> None:
    caller = SqlCaller(Gateway("cars"))
    caller.ask(EVERYTHING, live=True)
    assert caller.kinds() == ["METADATA"]
    caller.pass_time(3_599.9)
    assert (caller.code, caller.heard()) == (None, [])
    caller.pass_time(0.2)
    (said,) = data(ended(caller, "SENTINEL"), "SENTINEL")
    assert said["event"] == "QUERY_TERMINATED"
    assert said["reason"] == {
        "type": "MAX_QUERY_TIME",
        "source": "cars",
        "sourceId": said["reason"]["sourceId"],
        "amount": 3_600_000,
        "timeout": 3_600_000,
    }


def test_a_source_that_does_not_say_where_it_ends() -> None:
    gateway = Gateway()
    gateway.add("cars", started=False)
    caller = SqlCaller(gateway)
    caller.ask("SET kafka.offset.timeout=3s; SELECT * FROM cars", stats=250)
    caller.pass_time(2.9)
    assert caller.heard() == []
    caller.pass_time(0.1)
    (error,) = data(ended(caller, "ERROR"), "ERROR")
    assert error == "the offsets of `cars` are not known within 3000 ms"


def test_a_source_that_gives_nothing() -> None:
    gateway = Gateway()
    replayable(gateway, {0: 100})
    caller = SqlCaller(gateway)
    caller.ask("SET max.idle.time=2s; SELECT * FROM cars")
    opened_in_history(gateway, caller)
    caller.pass_time(1.9)
    assert caller.heard() == []
    caller.pass_time(0.2)
    (said,) = data(ended(caller, "SENTINEL"), "SENTINEL")
    assert (said["reason"]["type"], said["reason"]["timeout"]) == ("MAX_IDLE_TIME", 2_000)
    assert 2_000 <= said["reason"]["amount"] <= 2_100


def test_what_goes_on_is_not_idle() -> None:
    gateway = Gateway()
    hub = replayable(gateway, {0: 100})
    caller = SqlCaller(gateway)
    caller.ask("SET max.idle.time=2s; SELECT * FROM cars", live=True)
    (subscription,) = hub.unresolved
    hub.resolved(subscription, OffsetRange({0: 100}, {0: 100}))
    hub.effects.hand_out()
    caller.pass_time(100)
    assert (caller.code, caller.kinds()) == (None, ["METADATA"])


def test_who_takes_nothing_is_not_idle() -> None:
    gateway = Gateway()
    replayable(gateway, {0: 100})
    caller = SqlCaller(gateway)
    caller.ask("SET max.idle.time=2s; SELECT * FROM cars", stats=250)
    opened_in_history(gateway, caller)
    caller.pass_time(1.0)
    assert set(caller.kinds()) == {"STATS"}
    caller.writer.take = lambda size: 0
    caller.pass_time(60)
    assert len(caller.timers) <= 3
    assert caller.heard() == []
    caller.writer.take = lambda size: size
    caller.writer.drain()
    caller.pass_time(1.9)
    heard = caller.kinds()
    assert set(heard) == {"STATS"}
    assert len(heard) <= 9, "those that it did not take have not piled up"
    caller.pass_time(0.6)
    assert caller.kinds()[-2:] == ["SENTINEL", "END"]


@pytest.mark.parametrize("live", [True, False])
def test_who_takes_nothing_keeps_its_place_no_longer_than_others(live: bool) -> None:
    gateway = Gateway("cars")
    gateway.publish("cars", b"1")
    caller = SqlCaller(gateway)
    caller.writer.take = lambda size: 0
    caller.ask("SET max.query.time=90s; SELECT * FROM cars", live=live, stats=250)
    caller.pass_time(89.9)
    assert (caller.hung_up, caller.executions.count) == (None, 1)
    caller.pass_time(0.2)
    assert (caller.code, caller.executions.count) == (1000, 0)
    caller.writer.take = lambda size: size
    caller.writer.drain()
    assert caller.kinds() == ["METADATA", "STATS", "SENTINEL", "END"]


@pytest.mark.parametrize(("asked", "seconds"), [(1, 0.25), (250, 0.25), (1_000, 1.0), (2**53 - 1, 4_000.0)])
def test_stats_come_as_often_as_was_asked(asked: int, seconds: float) -> None:
    caller = SqlCaller(Gateway("cars"))
    caller.ask(EVERYTHING, live=True, stats=asked)
    assert caller.kinds() == ["METADATA"]
    caller.pass_time(20.01)
    heard = data(caller.heard(), "STATS")
    assert len(heard) == int(20 / seconds)
    assert [each["duration"] for each in heard] == sorted(each["duration"] for each in heard)
    assert len({each["id"] for each in heard}) <= 1


@pytest.mark.parametrize("stats", [0, None])
def test_who_does_not_ask_for_stats_pays_nothing(stats: int | None) -> None:
    gateway = Gateway("cars")
    gateway.publish("cars", b"1")
    caller = SqlCaller(gateway)
    caller.ask(EVERYTHING, stats=stats)
    ended(caller, "METADATA", "RECORD")


class SlowClock(Clock):
    """Goes on by 10 ms whenever it is looked at."""

    def __call__(self) -> float:
        self.now += 0.01
        return self.now


def test_stats_that_are_dear_come_seldom() -> None:
    gateway = Gateway("cars")
    gateway.clock = SlowClock()
    caller = SqlCaller(gateway)
    caller.ask(EVERYTHING, live=True, stats=250)
    caller.pass_time(20)
    assert 5 <= len(data(caller.heard(), "STATS")) <= 10


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("stats", [0, 250])
def test_timers_do_not_pile_up(live: bool, stats: int) -> None:
    """Nor are they set for so long that they outlive many clients."""
    gateway = Gateway()
    replayable(gateway, {0: 100})
    gateway.add("others")
    caller = SqlCaller(gateway)
    caller.ask(EVERYTHING, live=live, stats=stats)
    opened_in_history(gateway, caller)
    for _ in range(60):
        caller.pass_time(0.3)
        assert len(caller.timers) <= 4
        assert len(caller.deadlines) == 1
        assert max(caller.deadlines) <= gateway.clock() + 10.1
        assert max(caller.timers) <= gateway.clock() + 10.1
    assert len(caller.timers) == 1
    assert caller.code is None
