"""What clients may use of the processor to have queries read: by both protocols that take them."""

from __future__ import annotations

import json

import pytest

from kiwi_gw.core.accounts import SharedAccount
from kiwi_gw.core.commands import Open, Reply, Session
from kiwi_gw.core.notices import Offloaded
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialects.compiling import CompilingBudget, RefusedQueries
from kiwi_gw.dialects.kiwi.dialect import KiwiDialect
from kiwi_gw.dialects.zetta import topic_filters
from kiwi_gw.dialects.zetta.dialect import ZettaDialect
from kiwi_gw.model import ANONYMOUS
from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.sql import read
from tests.heads import HEAD


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def use(compiling: CompilingBudget, processor: Clock, seconds: float) -> None:
    with compiling.charged():
        processor.now += seconds


def test_what_is_charged_inside_of_what_is_charged_is_charged_once() -> None:
    clock, processor = Clock(), Clock()
    pool = SharedAccount(0.5)
    one = CompilingBudget(SessionLimits(compiling_share=0.05, compiling=pool), clock, processor)
    with one.charged():
        use(one, processor, 0.25)
        processor.now += 0.5
    assert pool.used == 0.75
    use(one, processor, 1.0)
    assert pool.used == 1.75


def test_the_wait_is_in_proportion_to_what_was_used() -> None:
    clock, processor = Clock(), Clock()
    one = CompilingBudget(SessionLimits(compiling_share=0.05), clock, processor)
    assert one.wait() == 0
    use(one, processor, 0.6)
    assert one.wait() == pytest.approx((0.6 - 0.1) / 0.05)
    clock.now = 10.1
    assert one.wait() == 0


@pytest.mark.parametrize("offloaded", [False, True])
def test_what_is_compiled_long_after_it_was_asked_for_is_charged_when_it_is(offloaded: bool) -> None:
    clock, processor, everybody = Clock(), Clock(), SharedAccount(0.1, 2.0)
    one = CompilingBudget(SessionLimits(compiling_share=0.05, compiling=everybody), clock, processor)
    assert one.wait() == 0
    clock.now = 60.0  # its source was starting, or its text was read elsewhere
    if offloaded:
        one.charge_offloaded(0.6)
    else:
        use(one, processor, 0.6)
        assert everybody.wait_seconds(clock.now) == pytest.approx((0.6 - 0.6 * 0.2) / 0.06)
    assert one.wait() == pytest.approx((0.6 - 0.1) / 0.05)


def test_who_has_used_little_does_not_wait_for_who_has_used_much() -> None:
    clock, processor, everybody = Clock(), Clock(), SharedAccount(0.1, 2.0)
    limits = SessionLimits(compiling_share=0.05, compiling=everybody)
    floods = [CompilingBudget(limits, clock, processor) for _ in range(10)]
    used = 0.0
    while clock.now < 60:
        for one in floods:
            if not one.wait():
                use(one, processor, 0.02)
                used += 0.02
        clock.now += 0.01
    assert used <= (60 + 2) * 0.1 + 2 * 0.02
    good = CompilingBudget(limits, clock, processor)
    while not everybody.wait_seconds(clock.now):
        everybody.charge(0.01, clock.now)
    assert good.wait() == 0


def subscribe(where: str) -> str:
    return json.dumps({"type": "SUBSCRIBE", "sourceId": "s", "where": where})


def kiwi(limits: SessionLimits) -> Session:
    return KiwiDialect().open_session(HEAD, {}, ANONYMOUS, limits)


def zetta(limits: SessionLimits) -> Session:
    return ZettaDialect().open_session(HEAD, {}, ANONYMOUS, limits)


def test_a_query_that_comes_too_early_is_refused_and_a_plain_subscription_is_not() -> None:
    limits = SessionLimits(compiling_share=1e-6)
    session = kiwi(limits)
    (first,) = session.receive(subscribe("value.n1 > 17"), 0.0)
    assert isinstance(first, Open)
    other = json.dumps({"type": "SUBSCRIBE", "sourceId": "t", "where": "value.n2 > 17"})
    (second,) = session.receive(other, 0.0)
    assert isinstance(second, Reply)
    assert b"Queries take too much time just now: try again in " in second.frame
    (third,) = session.receive(json.dumps({"type": "SUBSCRIBE", "sourceId": "t"}), 0.0)
    assert isinstance(third, Open)


def test_what_was_read_beside_the_loop_is_charged_though_nobody_wants_it_any_more() -> None:
    session = kiwi(SessionLimits(compiling_share=0.05))
    assert list(session.notice(Offloaded(None, b"", 0.6))) == []
    (reply,) = session.receive(subscribe("value.n3 > 17"), 0.0)
    assert isinstance(reply, Reply)
    assert b"Queries take too much time just now: try again in " in reply.frame


def test_a_topic_that_comes_too_early_is_refused() -> None:
    session = zetta(SessionLimits(compiling_share=1e-6))
    topics = [json.dumps({"type": "subscribe", "topic": f"hub/**?where data.a{n} > 17"}) for n in range(2)]
    replies = [b"".join(c.frame for c in session.receive(t, 0.0) if isinstance(c, Reply)) for t in topics]
    assert b"subscribe-ack" in replies[0]
    assert b"Queries take too much time just now" in replies[1]


def test_equal_texts_are_refused_without_being_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = "value.a rlike '(never closed'"
    first = list(kiwi(SessionLimits()).receive(subscribe(wrong), 0.0))
    monkeypatch.setattr("kiwi_gw.query.sql_compiler.compile_sql", lambda *_: pytest.fail("compiled again"))
    monkeypatch.setattr("kiwi_gw.query.sql.read", lambda *_: pytest.fail("read again"))
    assert list(kiwi(SessionLimits()).receive(subscribe(wrong), 0.0)) == first
    message = json.dumps({"type": "subscribe", "topic": "hub/{(never closed}"})
    session = zetta(SessionLimits())
    found = [command.frame for command in session.receive(message, 0.0) if isinstance(command, Reply)]
    monkeypatch.setattr(topic_filters, "parse", lambda _: pytest.fail("read again"))
    again = [command.frame for command in session.receive(message, 0.0) if isinstance(command, Reply)]
    assert [b"error" in frame for frame in found + again] == [True, True]


def test_a_query_has_the_length_that_the_configuration_says() -> None:
    limits = SessionLimits(query_bytes=40)
    (fits,) = kiwi(limits).receive(subscribe("value.aaaaaaaaaaaaaaaaaaaaaaaaaaaaa > 1"), 0.0)
    assert isinstance(fits, Open)
    (long,) = kiwi(limits).receive(subscribe("value.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa > 1"), 0.0)
    assert isinstance(long, Reply)
    assert b"the query is longer than 40 bytes" in long.frame
    message = json.dumps({"type": "subscribe", "topic": "hub/**?where data.a > 1" + "0" * 40})
    found = [command.frame for command in zetta(limits).receive(message, 0.0) if isinstance(command, Reply)]
    assert b"the query is longer than 40 bytes" in found[0]


def test_a_refusal_is_remembered_as_it_was_said_first() -> None:
    refused = RefusedQueries()
    refused.check("x")
    with pytest.raises(QueryError) as first:
        read("value.a >", None)
    said = refused.remember("x", 1, first.value)
    refused.remember("x", 1, QueryError("another"))
    with pytest.raises(QueryError) as again:
        refused.check("x")
    assert str(said) == str(again.value) == str(first.value)
    assert said.__traceback__ is None  # nothing of what led to it is kept
    refused.check("y")
