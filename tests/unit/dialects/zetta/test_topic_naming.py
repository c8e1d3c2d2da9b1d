"""The topics of events, as a source's configuration says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kiwi_gw.dialects.zetta.settings import ZettaSource
from kiwi_gw.dialects.zetta.topic_naming import MAX_TOPIC, TopicNaming, at
from kiwi_gw.dialects.zetta.topics import MAX_LEVELS, parse
from kiwi_gw.query.values import MISSING, UNDECODABLE, Value
from tests.effort import examples


class Rows:
    """Events as a view shows them."""

    def __init__(self, **columns: Sequence[Value]) -> None:
        self._columns: Mapping[str, Sequence[Value]] = columns

    def column(self, root: str) -> Sequence[Value]:
        return self._columns[root]


def topics(template: str, **columns: Sequence[Value]) -> list[str | None]:
    return list(TopicNaming(template).topics(Rows(**columns)))


def test_fields_of_the_event_become_levels() -> None:
    keys = ["a", "b", "a"]
    assert topics("hub/thermostat/{key}/temperature", key=keys) == [
        f"hub/thermostat/{key}/temperature" for key in keys
    ]


def test_the_whole_topic_may_be_in_the_event() -> None:
    values = [{"t": "hub/lamp/1/state"}, {"t": "hub"}, {}, {"t": 5}, None]
    assert topics("{value.t}", value=values) == ["hub/lamp/1/state", None, None, None, None]


def test_fields_of_key_value_and_metadata() -> None:
    found = topics(
        "hub/{value.kind}-{partition}/{key.ids[1]}/{headers.room}",
        key=[{"ids": [1, "x"]}, {"ids": [1]}],
        value=[{"kind": "lamp"}] * 2,
        partition=[3, 4],
        headers=[{"room": "attic"}] * 2,
    )
    assert found == ["hub/lamp-3/x/attic", None]


@pytest.mark.parametrize(
    ("value", "level"),
    [
        ("a", "a"),
        ("é🥝", "é🥝"),
        ("a?b*", "a?b*"),
        ("a/b", "a/b"),
        (5, "5"),
        (-0.5, "-0.5"),
        (True, "true"),
        (1, "1"),
        (None, None),
        (MISSING, None),
        (UNDECODABLE, None),
        ([1], None),
        ({}, None),
        ("", None),
        ("/a", None),
        ("a//b", None),
        ("a/", None),
        ("x" * MAX_TOPIC, None),
        ("é" * (MAX_TOPIC // 2), None),
        ("x/" * MAX_LEVELS + "x", None),
        ("\ud800", None),
    ],
)
def test_what_a_field_may_be(value: Value, level: str | None) -> None:
    expected = None if level is None else f"hub/t/{level}/s"
    assert topics("hub/t/{key}/s", key=[value, "other", value]) == [expected, "hub/t/other/s", expected]


def test_numbers_and_booleans_that_are_equal_have_topics_of_their_own() -> None:
    assert topics("hub/{key}", key=[1, True, 1.0, "1"]) == ["hub/1", "hub/true", "hub/1.0", "hub/1"]


def test_a_topic_without_fields_is_told_once() -> None:
    naming = TopicNaming("kiwi-gw/kafka/flights/events")
    assert naming.static == "kiwi-gw/kafka/flights/events"
    assert TopicNaming("hub/{key}").static is None


@pytest.mark.parametrize(
    "template",
    ["", "/", "hub//x", "hub/", "/hub", "hub/{key", "hub/key}", "hub/{}", "hub/{foo}", "hub/{value.}"],
)
def test_what_is_no_template(template: str) -> None:
    with pytest.raises(ValueError, match=r"has an empty level|has a brace|must be a path"):
        TopicNaming(template)


def test_values_at_a_path() -> None:
    rows = Rows(value=[{"a": [{"b": 1}]}, {"a": [{"b": None}]}, {"a": []}, {"a": {"0": 1}}, 5, UNDECODABLE])
    assert list(at(rows, "value.a[0].b")) == [1, None, MISSING, MISSING, MISSING, UNDECODABLE]


@pytest.mark.parametrize(
    ("template", "pattern", "may"),
    [
        ("hub/t/{key}/s", "hub/t/*/s", True),
        ("hub/t/{key}/s", "hub/*/*/s", True),
        ("hub/t/{key}/s", "hub/**", True),
        ("hub/t/{key}/s", "**/s", True),
        ("hub/t/{key}/s", "**/r", False),
        ("hub/t/{key}/s", "hub/lamp/*/s", False),
        ("hub/t/{key}/s", "hub/t/s", False),
        ("hub/t/{key}/s", "hub/t/a/b/s", True),
        ("hub/t/{key}/s", "{h.b}/t/{[0-9]+}/s", True),
        ("{value.t}", "anything/at/all", True),
        ("hub/t", "hub/*", True),
        ("hub/t", "hub/x", False),
    ],
)
def test_whether_a_source_is_worth_reading(template: str, pattern: str, may: bool) -> None:
    assert TopicNaming(template).may_match(parse(pattern).pattern) is may


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "{key}", "x{key}"]), min_size=2, max_size=4).map("/".join),
    st.lists(st.sampled_from(["a", "b", "*", "**", "xa", "{[ab]+}", "a*"]), min_size=2, max_size=5).map(
        "/".join
    ),
    st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=3).map("/".join),
)
def test_a_topic_that_is_meant_was_possible(template: str, pattern: str, key: str) -> None:
    naming, meant = TopicNaming(template), parse(pattern).pattern
    (topic,) = naming.topics(Rows(key=[key], offset=[0]))
    assert topic is not None
    if meant.matches(topic):
        assert naming.may_match(meant)


_template_pieces = [
    "{",
    "}",
    "{key}",
    "{value",
    "value",
    ".",
    ".a",
    "[0]",
    "[99999999999]",
    "/",
    "b",
    "*",
    "\0",
    "é",
]


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(st.sampled_from(_template_pieces), min_size=1, max_size=7).map("".join))
def test_what_the_configuration_accepts_is_a_template(text: str) -> None:
    try:
        block = ZettaSource(topic=text)
    except ValidationError:
        return
    assert block.topic == text
    naming = TopicNaming(text)
    if naming.static is not None:
        assert parse(naming.static).pattern.concrete


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(st.sampled_from(_template_pieces), min_size=1, max_size=7).map("".join))
def test_what_the_configuration_accepts_is_a_path(text: str) -> None:
    try:
        ZettaSource(data=text)
    except ValidationError:
        return
    assert list(at(Rows(value=[5], key=["a"]), text)) in ([5], ["a"], [MISSING])
