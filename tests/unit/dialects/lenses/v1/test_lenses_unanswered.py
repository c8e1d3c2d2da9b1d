"""A SUBSCRIBE that is not answered yet: what it waits for, and what may come in between (document 000)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from kiwi_gw.core.accounts import COMPILING_SAVED_SECONDS, ClientAccount
from kiwi_gw.core.hub_limits import HubLimits
from kiwi_gw.core.notices import (
    Ended,
    Inspected,
    Lagged,
    Notice,
    Offloaded,
    Opened,
    OpenFailed,
    Unanswered,
)
from kiwi_gw.core.source_hub import SourceHub
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialects.lenses.settings import LensesSource
from kiwi_gw.dialects.lenses.v1.session import LEAST_WRITE_SECONDS, TOO_LATE
from kiwi_gw.dialects.lenses.v1.topics import GIVE_UP_SECONDS
from kiwi_gw.model import CloseReason, EventSchema, OverflowPolicy, SourceInfo
from kiwi_gw.query.worker_messages import answer
from tests.unit.core.desk import Gateway
from tests.unit.dialects.lenses.bench import Json, Page
from tests.unit.dialects.lenses.v1.test_lenses_topics import records, subscribe, types

LARGE = f"cars WHERE n IN ({', '.join(map(str, range(250)))}) OR TRUE"
"""Read by a process beside the event loop."""


def said(heard: Iterable[Json]) -> list[tuple[object, str, object]]:
    """Return whom, what kind and what of messages that are no records."""
    return [(each.get("correlationId"), each["type"], each.get("content")) for each in heard]


def waiting(gateway: Gateway) -> tuple[Page, SourceHub]:
    """A page whose SUBSCRIBE of `cars`, which is there, and `slow`, which is not yet, waits."""
    slow = gateway.add("slow", started=False)
    page = Page(gateway)
    subscribe(page, 1, "cars", "slow")
    assert page.heard() == []
    return page, slow


@pytest.mark.parametrize("name", ["cars", "slow"])
def test_an_unsubscribe_makes_it_fail_as_a_whole(name: str) -> None:
    gateway = Gateway("cars")
    page, slow = waiting(gateway)
    page.ask("UNSUBSCRIBE", 2, {"topics": [name]})
    assert said(page.heard()) == [
        (1, "ERROR", f"`{name}` was unsubscribed before it was open"),
        (2, "SUCCESS", ""),
    ]
    assert [hub.subscribers for hub in gateway.hubs.values()] == [0, 0]
    slow.started({0: 0})
    gateway.publish("cars", b"a")
    assert page.heard() == []


def test_an_unsubscribe_of_another_topic_leaves_it() -> None:
    gateway = Gateway("cars", "bikes")
    page, slow = waiting(gateway)
    page.ask("UNSUBSCRIBE", 2, {"topics": ["bikes"]})
    slow.started({0: 0})
    assert said(page.heard()) == [(2, "SUCCESS", ""), (1, "SUCCESS", "cars,slow")]


def test_the_next_subscribe_of_one_of_its_topics_makes_it_fail() -> None:
    gateway = Gateway("cars")
    page, slow = waiting(gateway)
    subscribe(page, 2, "slow")
    slow.started({0: 0})
    assert said(page.heard()) == [
        (1, "ERROR", "`slow` was subscribed to again before it was open"),
        (2, "SUCCESS", "slow"),
    ]
    gateway.publish("slow", b"a")
    assert records(page.heard()) == [("slow", 0, 2)]
    assert gateway.hubs["cars"].subscribers == 0


def test_a_topic_that_ends_makes_it_fail() -> None:
    gateway = Gateway("cars")
    page, slow = waiting(gateway)
    gateway.hubs["cars"].failed("its topic is gone")
    assert said(page.heard()) == [(1, "ERROR", "sqls[0]: its topic is gone")]
    assert slow.subscribers == 0
    slow.started({0: 0})
    assert page.heard() == []


def test_what_is_lost_meanwhile_is_said_behind_its_answer() -> None:
    gateway = Gateway("cars", limits=HubLimits(window_events=5))
    page, slow = waiting(gateway)
    for value in range(12):
        gateway.publish("cars", b"%d" % value)
    assert page.heard() == []
    slow.started({0: 0})
    heard = page.heard()
    assert types(heard)[:3] == ["SUCCESS", "HEARTBEAT", "KAFKAMSG"]
    first = records(heard)[0][1]
    assert heard[1]["dropped"] == first
    assert records(heard) == [("cars", n, 1) for n in range(first, 12)]


def test_a_loss_that_is_told_before_its_answer_waits_for_that() -> None:
    page, slow = waiting(Gateway("cars"))
    info = page.gateway.hubs["cars"].info
    (handle, _) = page.open
    page.carry_out(page.session.notice(Lagged(handle, info, 0, 3, 3, {0: (0, 2)}, {})))
    assert page.heard() == []
    slow.started({0: 0})
    assert types(page.heard()) == ["SUCCESS", "HEARTBEAT"]


INFO = SourceInfo("cars", "fake", EventSchema(()))


@pytest.mark.parametrize(
    "notice",
    [
        Opened(99, INFO, {}, OverflowPolicy.REPLAY, 1),
        OpenFailed(99, "refused", "no"),
        Lagged(99, INFO, 0, 3, 3, {}, {}),
        Inspected(99, INFO, 0, ()),
        Ended(99, INFO, CloseReason.REMOVED, "it is gone", {}, 3),
    ],
    ids=lambda notice: type(notice).__name__,
)
def test_nothing_is_said_of_a_topic_that_is_not_subscribed_to(notice: Notice) -> None:
    gateway = Gateway("cars")
    page = Page(gateway)
    subscribe(page, 1, "cars")
    page.carry_out(page.session.notice(notice))
    gateway.publish("cars", b"a")
    assert types(page.heard()) == ["SUCCESS", "KAFKAMSG"]


def test_a_failure_behind_the_answer_changes_nothing() -> None:
    gateway = Gateway("cars")
    page = Page(gateway)
    subscribe(page, 1, "cars")
    (handle,) = page.open
    page.carry_out(page.session.notice(OpenFailed(handle, "refused", "no")))
    gateway.publish("cars", b"a")
    assert types(page.heard()) == ["SUCCESS", "KAFKAMSG"]


def test_a_name_that_its_source_has_no_more_is_no_topic() -> None:
    """The session has not heard of the new name yet."""
    gateway = Gateway("cars")
    page = Page(gateway)
    desks, gateway.desks = gateway.desks, []
    hub = gateway.add("cars")
    hub.info = replace(hub.info, blocks={"lenses": LensesSource(topic="autos")})
    gateway.desks = desks
    subscribe(page, 1, "cars")
    assert said(page.heard()) == [(1, "ERROR", "sqls[0]: no such topic: `cars` (at character 15)")]
    assert hub.subscribers == 0


# --- samples -----------------------------------------------------------------------------------


def test_a_sample_that_has_used_nothing_of_its_window_gets_no_more_in_the_next() -> None:
    gateway = Gateway("cars")
    page = Page(gateway)
    subscribe(page, 1, "cars WHERE _sample = 3 AND _sampleWindow = 1000")
    page.pass_time(1.0)
    page.pass_time(1.0)
    for value in range(20):
        gateway.publish("cars", b"%d" % value)
    assert [offset for _, offset, _ in records(page.heard())] == [0, 1, 2]


def test_samples_have_windows_of_their_own() -> None:
    gateway = Gateway("cars", "bikes")
    page = Page(gateway)
    subscribe(page, 1, "cars WHERE _sample = 1 AND _sampleWindow = 1000")
    subscribe(page, 2, "bikes WHERE _sample = 1 AND _sampleWindow = 3000")
    found = []
    for _ in range(4):
        for name in ("cars", "bikes"):
            gateway.publish(name, b"a", b"b")
        found.append(sorted(topic for topic, _, _ in records(page.heard())))
        page.pass_time(1.0)
    assert found == [["bikes", "cars"], ["cars"], ["cars"], ["bikes", "cars"]]


# --- reading its SQL ---------------------------------------------------------------------------


def test_sql_that_takes_too_long_is_given_up_and_a_late_answer_says_nothing() -> None:
    gateway = Gateway("cars")
    page = Page(gateway)
    page.holds_offloads = True
    subscribe(page, 1, LARGE)
    page.pass_time(4.2)
    assert page.heard() == []
    page.pass_time(0.1)
    assert said(page.heard()) == [(1, "ERROR", "its SQL takes too long to be read; try again")]
    (question,) = page.offloads
    assert page.given_up == [question.handle]
    page.carry_out(page.session.notice(Offloaded(question.handle, answer(question.question))))
    page.carry_out(page.session.notice(Offloaded(None, Unanswered.BUSY, 0.1)))
    gateway.publish("cars", b'{"n":1}')
    assert page.heard() == []
    assert gateway.hubs["cars"].subscribers == 0


def test_the_time_of_one_subscribe_is_not_that_of_another() -> None:
    gateway = Gateway("cars")
    gateway.add("slow", started=False)
    page = Page(gateway)
    subscribe(page, 1, "slow")
    page.pass_time(2.0)
    page.holds_offloads = True
    subscribe(page, 2, LARGE)
    page.pass_time(2.3)
    assert [number for number, *_ in said(page.heard())] == [1]
    (question,) = page.offloads
    page.carry_out(page.session.notice(Offloaded(question.handle, answer(question.question))))
    assert said(page.heard()) == [(2, "SUCCESS", "cars")]


def test_who_has_used_its_time_for_reading_sql_is_told_to_wait() -> None:
    gateway = Gateway("cars")
    own = ClientAccount(0.1, COMPILING_SAVED_SECONDS)
    page = Page(gateway, limits=SessionLimits(compiling_own=own))
    own.charge(COMPILING_SAVED_SECONDS + 1, gateway.clock())
    subscribe(page, 1, "cars")
    ((number, kind, words),) = said(page.heard())
    assert (number, kind) == (1, "ERROR")
    assert str(words).startswith("sqls[0]: Queries take too much time just now: try again in ")
    gateway.clock.now += 1_000
    subscribe(page, 2, "cars")
    assert said(page.heard()) == [(2, "SUCCESS", "cars")]


# --- how many ----------------------------------------------------------------------------------


def test_a_connection_has_so_many_topics_and_those_that_it_replaces_do_not_count() -> None:
    page = Page(Gateway("cars", "bikes", "trains"), limits=SessionLimits(subscriptions=2))
    subscribe(page, 1, "cars", "bikes", "trains")
    subscribe(page, 2, "cars", "bikes")
    subscribe(page, 3, "trains")
    subscribe(page, 4, "bikes", "cars")
    page.ask("UNSUBSCRIBE", 5, {"topics": ["cars"]})
    subscribe(page, 6, "trains")
    words = "a connection can have at most 2 subscriptions (at character 15)"
    assert said(page.heard()) == [
        (1, "ERROR", f"sqls[2]: {words}"),
        (2, "SUCCESS", "cars,bikes"),
        (3, "ERROR", f"sqls[0]: {words}"),
        (4, "SUCCESS", "bikes,cars"),
        (5, "SUCCESS", "cars"),
        (6, "SUCCESS", "trains"),
    ]


def test_a_connection_has_so_many_different_queries_and_equal_ones_are_one() -> None:
    page = Page(Gateway("cars", "bikes", "trains"), limits=SessionLimits(queries=1))
    subscribe(page, 1, "cars WHERE n = 1", "bikes WHERE n = 2")
    subscribe(page, 2, "cars WHERE n = 1", "bikes WHERE n = 1", "trains")
    subscribe(page, 3, "trains WHERE n = 2")
    assert said(page.heard()) == [
        (1, "ERROR", "sqls[1]: a connection can have at most 1 different queries"),
        (2, "SUCCESS", "cars,bikes,trains"),
        (3, "ERROR", "sqls[0]: a connection can have at most 1 different queries"),
    ]


@pytest.mark.parametrize("kind", ["LOGIN", "SUBSCRIBE"])
def test_who_a_client_is_must_be_known_in_time_for_an_answer(kind: str) -> None:
    page = Page(Gateway("cars"), identified=False)
    page.holds_calls = True
    content = {"user": "ann", "password": "right"} if kind == "LOGIN" else {"sqls": ["SELECT * FROM cars"]}
    page.ask(kind, 1, content, "a token")
    (call,) = page.calls
    assert 4 <= call.request.within == GIVE_UP_SECONDS


def test_so_has_who_writes() -> None:
    page = Page(Gateway("cars"))
    page.holds_calls = True
    commits = {"commits": [{"topic": "cars", "partition": 0, "offset": 1}]}
    for token in ("a token", None):
        page.ask("PUBLISH", 1, {"topic": "cars", "value": "v"}, token)
        page.pass_time(GIVE_UP_SECONDS - LEAST_WRITE_SECONDS)
        page.answer()
        page.ask("COMMIT", 2, commits, token)
    assert [write.within for write in page.writes] == [LEAST_WRITE_SECONDS, *[GIVE_UP_SECONDS] * 3]
    page.ask("PUBLISH", 3, {"topic": "cars", "value": "v"}, "another")
    page.ask("COMMIT", 4, commits, "a third")
    page.pass_time(GIVE_UP_SECONDS - LEAST_WRITE_SECONDS + 0.1)
    page.answer()
    assert len(page.writes) == 4
    assert said(page.heard()) == [(3, "ERROR", f"not written: {TOO_LATE}"), (4, "ERROR", TOO_LATE)]


def test_a_source_has_what_the_check_of_a_token_has_left_of_the_time_for_an_answer() -> None:
    gateway = Gateway()
    gateway.add("slow", started=False)
    page = Page(gateway)
    page.holds_calls = True
    page.ask("SUBSCRIBE", 1, {"sqls": ["SELECT * FROM slow"]}, "a token")
    page.pass_time(3.0)
    page.answer()
    page.pass_time(1.2)
    assert page.heard() == []
    page.pass_time(0.1)
    assert said(page.heard()) == [(1, "ERROR", "the source does not answer in time; try again")]
