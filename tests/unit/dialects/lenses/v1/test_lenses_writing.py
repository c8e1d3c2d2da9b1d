"""PUBLISH and COMMIT: what becomes of keys and values, who is answered what, and when (document 000)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from kiwi_gw.core.commands import Commit, Produce
from kiwi_gw.core.notices import CommitDone, Produced, Silent
from kiwi_gw.dialect_api.limits import SessionLimits
from kiwi_gw.dialects.lenses.settings import LensesSource
from kiwi_gw.dialects.lenses.tables import Tables
from kiwi_gw.dialects.lenses.v1.messages import Request
from kiwi_gw.dialects.lenses.v1.writing import group_of
from kiwi_gw.model import EventSchema, Published, Refusal, SourceInfo, Unpublished
from tests.unit.core.desk import Gateway
from tests.unit.dialects.lenses.bench import Page

KINDS = "STRING, JSON, INT, LONG, BINARY, BYTES"


def publish(page: Page, content: Mapping[str, object], number: int = 1) -> None:
    page.ask("PUBLISH", number, {"topic": "cars", **content})


def written(page: Page) -> Produce:
    (command,) = page.writes
    assert isinstance(command, Produce)
    return command


@pytest.mark.parametrize(
    ("content", "key", "value"),
    [
        ({}, None, None),
        ({"key": None, "value": None}, None, None),
        ({"key": "k", "value": ""}, b"k", b""),
        ({"value": "null"}, None, b"null"),
        ({"value": "\u00e9\U0001f600"}, None, "\u00e9\U0001f600".encode()),
        ({"value": {"a": [1, None]}}, None, b'{"a": [1, null]}'),
        ({"value": 12, "key": True}, b"true", b"12"),
        ({"vtype": "json", "value": '{"a":1}'}, None, b'{"a":1}'),
        (
            {"vtype": "INT", "value": "-2", "ktype": "Long", "key": 5},
            b"\0\0\0\0\0\0\0\5",
            b"\xff\xff\xff\xfe",
        ),
        ({"vtype": "BINARY", "value": "AP8="}, None, b"\x00\xff"),
        ({"vtype": "INT", "value": None}, None, None),
    ],
)
def test_what_is_written(content: dict[str, object], key: bytes | None, value: bytes | None) -> None:
    page = Page(Gateway("cars"))
    publish(page, {**content, "partition": 3})
    command = written(page)
    assert (command.source_id, command.record.key, command.record.value) == ("cars", key, value)
    assert command.record.partition == 3
    assert page.heard() == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"topic": "nowhere", "vtype": "INT", "value": ""}, "value: it must be an integer of 32 bits"),
        (
            {"vtype": "AVRO", "value": "x"},
            f"value: records cannot be written as 'AVRO', but as one of {KINDS}",
        ),
        ({"ktype": "INT", "key": "x"}, "key: it must be an integer of 32 bits"),
        ({"vtype": "INT", "value": 2**31}, "value: it must be an integer of 32 bits"),
        ({"vtype": "LONG", "value": "9" * 100_000}, "value: it must be an integer of 64 bits"),
        ({"vtype": "LONG", "value": " 1_0"}, "value: it must be an integer of 64 bits"),
        ({"vtype": "JSON", "value": "{"}, "value: it must be JSON"),
        ({"vtype": "JSON", "value": "[" * 100_000}, "value: it must be JSON"),
        ({"vtype": "BINARY", "value": "%"}, "value: it must be base64"),
    ],
)
def test_what_cannot_be_written(content: dict[str, object], words: str) -> None:
    page = Page(Gateway("cars"))
    publish(page, content)
    assert page.writes == []
    assert page.heard() == [{"type": "ERROR", "correlationId": 1, "content": words}]


@pytest.mark.parametrize(
    ("result", "kind", "content"),
    [
        (Published(2, 12), "SUCCESS", '{"topic":"cars","partition":2,"offset":12}'),
        (
            Unpublished("not written: too large", retriable=False, known=True),
            "ERROR",
            "not written: too large",
        ),
        (Refusal("unknown_source", "no source has this id"), "ERROR", "no such topic: `cars`"),
        (Refusal("forbidden", "not allowed"), "ERROR", "not allowed"),
    ],
)
def test_what_is_answered(result: Published | Unpublished | Refusal, kind: str, content: str) -> None:
    page = Page(Gateway("cars"))
    publish(page, {}, 7)
    page.carry_out(page.session.notice(Silent()))
    assert page.heard() == [], "no heartbeat while something is unanswered"
    page.carry_out(page.session.notice(Produced(written(page).handle, result)))
    page.carry_out(page.session.notice(Silent()))
    assert page.heard() == [
        {"type": kind, "correlationId": 7, "content": content},
        {"type": "HEARTBEAT"},
    ]


def few(rate: float = 1) -> SessionLimits:
    return replace(SessionLimits(), commands_per_second=rate, commands_burst=2, flood_seconds=1)


def test_accepted_records_do_not_count_for_the_rate_and_refused_ones_end_it() -> None:
    page = Page(Gateway("cars"), limits=few())
    for number in range(500):
        publish(page, {}, number)
    assert len(page.writes) == 500
    assert page.hung_up is None
    for command in page.writes:
        assert isinstance(command, Produce)
        page.gateway.clock.now += 0.01
        page.carry_out(page.session.notice(Produced(command.handle, Refusal("forbidden", "not allowed"))))
    assert page.hung_up is not None
    assert page.hung_up.code == 1008


def test_records_that_are_wrong_count_too() -> None:
    page = Page(Gateway("cars"), limits=few())
    for number in range(500):
        page.gateway.clock.now += 0.01
        publish(page, {"vtype": "AVRO", "value": "x"}, number)
    assert page.hung_up is not None


def test_commits_are_one_for_each_topic_and_are_answered_together() -> None:
    page = Page(Gateway("cars", "bikes"))
    commits = [
        {"topic": "cars", "partition": 0, "offset": 3},
        {"topic": "bikes", "partition": 1, "offset": 4},
        {"topic": "cars", "partition": 0, "offset": 2},  # the last one wins
    ]
    page.ask("COMMIT", 9, {"commits": commits})
    first, second = page.writes
    assert isinstance(first, Commit)
    assert isinstance(second, Commit)
    assert (first.source_id, first.group, first.positions) == ("cars", "kiwi-gw.ann.me", {0: (3, "")})
    assert (second.source_id, second.positions) == ("bikes", {1: (5, "")})
    page.carry_out(page.session.notice(CommitDone(first.handle, None)))
    assert page.heard() == []
    page.carry_out(page.session.notice(CommitDone(second.handle, None)))
    assert page.heard() == [{"type": "SUCCESS", "correlationId": 9, "content": ""}]
    page.ask("COMMIT", 10, {"commits": commits})
    *_, third, fourth = page.writes
    page.carry_out(page.session.notice(CommitDone(third.handle, Refusal("beyond", "it ends at 2"))))
    page.carry_out(page.session.notice(CommitDone(fourth.handle, None)))
    (answer,) = page.heard()
    assert (answer["type"], answer["content"]) == ("ERROR", "cars: it ends at 2 (stored of bikes)")


def test_of_a_commit_that_is_refused_in_several_topics_the_first_refusal_is_said() -> None:
    page = Page(Gateway("cars", "bikes", "trains"))
    commits = [{"topic": name, "partition": 0, "offset": 3} for name in ("cars", "bikes", "trains")]
    page.ask("COMMIT", 9, {"commits": commits})
    results = (Refusal("forbidden", "not allowed"), None, Refusal("beyond", "it ends at 2"))
    for command, result in zip(page.writes, results, strict=True):
        page.carry_out(page.session.notice(CommitDone(command.handle, result)))
    assert page.heard() == [
        {"type": "ERROR", "correlationId": 9, "content": "cars: not allowed (stored of bikes)"}
    ]
    page.carry_out(page.session.notice(Silent()))
    assert page.heard() == [{"type": "HEARTBEAT"}], "nothing is unanswered"


def test_topics_that_are_not_there_are_asked_for_like_those_that_may_not_be_seen() -> None:
    """So that nothing tells them apart: the core refuses an id that no source has."""
    page = Page(Gateway("cars"))
    publish(page, {"topic": "nowhere"}, 1)
    page.ask("COMMIT", 2, {"commits": [{"topic": "nowhere", "partition": 0, "offset": 0}]})
    first, second = page.writes
    assert isinstance(first, Produce)
    assert isinstance(second, Commit)
    assert first.source_id == second.source_id == "\0nowhere"
    page.carry_out(page.session.notice(Produced(first.handle, Refusal("unknown_source", "no source"))))
    page.carry_out(page.session.notice(CommitDone(second.handle, Refusal("unknown_source", "no source"))))
    assert [each["content"] for each in page.heard()] == ["no such topic: `nowhere`"] * 2


def test_a_commit_is_of_some_topics_at_most() -> None:
    page = Page(Gateway("cars"))
    commits = [{"topic": f"t{n}", "partition": 0, "offset": 0} for n in range(33)]
    page.ask("COMMIT", 1, {"commits": commits})
    assert page.writes == []
    assert [each["content"] for each in page.heard()] == ["a COMMIT can be of at most 32 topics"]


def test_a_source_that_is_called_otherwise_is_written_to_by_its_new_name_only() -> None:
    tables = Tables()
    tables.add(SourceInfo("a", "fake", EventSchema(())))
    tables.add(SourceInfo("a", "fake", EventSchema(()), blocks={"lenses": LensesSource(topic="new")}))
    assert (tables.source_id("a"), tables.source_id("new")) == ("\0a", "a")
    tables.add(SourceInfo("b", "fake", EventSchema(()), blocks={"lenses": LensesSource(topic="a")}))
    assert (tables.source_id("a"), tables.source_id("new")) == ("b", "a")


def test_records_that_can_never_be_written_count_for_the_rate() -> None:
    page = Page(Gateway("cars"), limits=few())
    for number in range(500):
        publish(page, {}, number)
    for command in page.writes:
        page.gateway.clock.now += 0.01
        never = Unpublished("not written: there is no partition 999", retriable=False, known=True)
        page.carry_out(page.session.notice(Produced(command.handle, never)))
    assert page.hung_up is not None


def test_a_request_shows_no_password() -> None:
    assert "secret" not in repr(Request("LOGIN", 1, '{"password":"secret"}', "secret"))


def test_nobody_can_be_called_so_that_it_gets_the_group_of_another() -> None:
    template = "kiwi-gw.{user}.{client}"
    assert group_of(template, "ann", "page") == "kiwi-gw.ann.page"
    assert group_of(template, "a.b", "c") == "kiwi-gw.a%2Eb.c"
    assert group_of(template, "a", "b.c") == "kiwi-gw.a.b%2Ec"
    assert group_of(template, "{client}", "x") == "kiwi-gw.%7Bclient%7D.x"
    assert group_of(template, "\u00e9", "{user}") == "kiwi-gw.%C3%A9.%7Buser%7D"
    assert json.dumps(group_of("fixed", "ann", "page")) == '"fixed"'
