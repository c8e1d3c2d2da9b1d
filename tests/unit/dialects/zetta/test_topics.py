"""Topics of subscriptions: what they consist of and what they mean."""

from __future__ import annotations

import fnmatch
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.dialects.zetta import levels, topics
from kiwi_gw.dialects.zetta.topics import MAX_LEVELS, MAX_PATTERN, TopicError, parse
from tests.effort import examples
from tests.unit.dialects.zetta.slow_matcher import slowly


@pytest.mark.parametrize(
    ("pattern", "concrete", "means"),
    [
        ("hub/thermostat/1/temperature", "hub/thermostat/1/temperature", True),
        ("hub/thermostat/1/temperature", "hub/thermostat/1/Temperature", False),
        ("hub/thermostat/1", "hub/thermostat/1/temperature", False),
        ("hub/thermostat/*/temperature", "hub/thermostat/a5cb1a72/temperature", True),
        ("hub/*/temperature", "hub/thermostat/1/temperature", False),
        ("hub/thermostat/*", "hub/thermostat", False),
        ("hub/dev-*/state", "hub/dev-17/state", True),
        ("hub/dev-*/state", "hub/dev-/state", True),
        ("hub/dev-*/state", "hub/device/state", False),
        ("hub/*-*-x/state", "hub/a-b-c-x/state", True),
        ("hub/[12]/state", "hub/1/state", True),
        ("hub/[12]/state", "hub/3/state", False),
        ("hub/[12]/state", "hub/12/state", False),
        ("hub/[!12]/state", "hub/3/state", True),
        ("hub/[a-c]x/state", "hub/bx/state", True),
        ("hub/[c-a]x/state", "hub/bx/state", False),
        ("hub/[!c-a]x/state", "hub/bx/state", True),
        ("hub/a[/state", "hub/a[/state", True),
        ("hub/[*]/state", "hub/*/state", True),
        ("hub/[*]/state", "hub/x/state", False),
        ("hub/a**b/state", "hub/axxb/state", True),
        ("hub/a**b/state", "hub/a/b/state", False),
        ("Detroit/**/temperature", "Detroit/thermostat/1/temperature", True),
        ("Detroit/**/temperature", "Detroit/temperature", True),
        ("Detroit/**/temperature", "Chicago/thermostat/1/temperature", False),
        ("**/temperature", "temperature", True),
        ("**/temperature", "Detroit/thermostat/1/temperature", True),
        ("hub/**", "hub", False),
        ("hub/**", "hub/thermostat", True),
        ("hub/**", "hub/thermostat/1/temperature", True),
        ("hub/**/**", "hub", False),
        ("hub/**/**", "hub/thermostat", True),
        ("**", "hub/thermostat/1/temperature", True),
        ("**", "hub", True),
        ("**/x/**", "x/y", True),
        ("**/x/**", "y/x", False),
        ("{^Det.+$}/thermostat/1/t", "Detroit/thermostat/1/t", True),
        ("{^Det.+$}/thermostat/1/t", "Chicago/thermostat/1/t", False),
        ("{^Det}/thermostat", "Detroit/thermostat", True),
        ("{^Det}/thermostat", "New-Detroit/thermostat", False),
        ("{troi}/thermostat", "Detroit/thermostat", True),
        ("{troi}/thermostat", "x/troi", False),
        ("{roit$}/thermostat", "Detroit/thermostat", True),
        ("{troi$}/thermostat", "Detroit/thermostat", False),
        ("{^Det$|x}/thermostat", "Detroit/thermostat", False),
        ("{(?i)^DET}/thermostat", "Detroit/thermostat", True),
        ("Det*/thermostat", "Detroit/thermostat", True),
        ("tro*/thermostat", "Detroit/thermostat", False),
        ("[D]/thermostat", "Detroit/thermostat", False),
        ("hub/{}/t", "hub/anything/t", True),
        ("hub/{.*}/t", "hub/a/b/t", False),
        ("hub/{a{2,3}}/t", "hub/aaa/t", True),
        ("hub/{a{2,3}}/t", "hub/a/t", False),
        ("hub/{a,b}/t", "hub/a,b/t", True),
        ("hub/{a,b}/t", "hub/a/t", False),
        (r"hub/{a\}b}/t", "hub/a}b/t", True),
        ("hub/{[}/]x}/t", "hub/}x/t", True),
        ("hub/{a|b}/t", "hub/b/t", True),
        ("hub/{(?i)ab}/t", "hub/AB/t", True),
        ("hub/é*/t", "hub/éa/t", True),
        ("hub/*x/t", "hub/a\nx/t", True),
        ("hub/[🥝-🥦]/t", "hub/🥝/t", True),
    ],
)
def test_what_is_meant(pattern: str, concrete: str, means: bool) -> None:
    assert parse(pattern).pattern.matches(concrete) is means
    assert parse(pattern).pattern.matches(concrete) is means  # out of the table


@pytest.mark.parametrize(
    ("topic", "pattern", "query"),
    [
        ("hub/t/*/x?select * where data > 85", "hub/t/*/x", "select * where data > 85"),
        ("hub/t?", "hub/t", None),
        ("hub/t?  ", "hub/t", None),
        ("hub/t", "hub/t", None),
        ("**?where data > 1", "**", "where data > 1"),
        ("hub/{ab?c}/x?where data > 1", "hub/{ab?c}/x", "where data > 1"),
        ('hub/t?where data = "a?b"', "hub/t", 'where data = "a?b"'),
        ('hub/"why?"/x?where data > 1', 'hub/"why?"/x', "where data > 1"),
        ('hub/5"/x?where data > 1', 'hub/5"/x', "where data > 1"),
        ("hub/t?where data.a/b", "hub/t", "where data.a/b"),
        ("hub/t?a?b", "hub/t", "a?b"),
        ("hub/query", "hub/query", None),
        ("hub/[q]uery/x", "hub/[q]uery/x", None),
        ("hub/t/query/x", "hub/t/query/x", None),
        ("**/query/x", "**/query/x", None),
    ],
)
def test_pattern_and_query_are_split(topic: str, pattern: str, query: str | None) -> None:
    found = parse(topic)
    assert (found.text, found.pattern.text, found.query, found.of_devices) == (topic, pattern, query, False)
    assert found.server == pattern.split("/")[0]


@pytest.mark.parametrize(
    ("topic", "server", "query"),
    [
        ('hub/query/where type = "a/b?c"', "hub", 'where type = "a/b?c"'),
        ("hub/query/", "hub", None),
        ("*/query/where id = 1", "*", "where id = 1"),
        ('{h.b}/query/where state like "{2}"', "{h.b}", 'where state like "{2}"'),
        ("hub/query/temperature", "hub", "temperature"),
    ],
)
def test_device_queries(topic: str, server: str, query: str | None) -> None:
    found = parse(topic)
    assert (found.server, found.query, found.of_devices) == (server, query, True)
    assert found.pattern.matches("hub")


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        ("", "empty"),
        ("hub", "two levels"),
        ("*", "two levels"),
        ("{hub}", "two levels"),
        ("hub?where data > 1", "two levels"),
        ("?where data > 1", "level of the topic is empty"),
        ("/", "level of the topic is empty"),
        ("hub/", "level of the topic is empty"),
        ("/hub/x", "level of the topic is empty"),
        ("hub//x", "level of the topic is empty"),
        ("/query/where id = 1", "level of the topic is empty"),
        ("hub/{(}/x", "no regular expression.*missing )"),
        ("hub/{a(?=b)}/x", "no regular expression"),
        (r"hub/{(a)\1}/x", "no regular expression"),
        ("hub/{a", "never closed"),
        ("hub/{[a}/x", "never closed"),
        ("hub/{a{1}/x", "never closed"),
        ("hub/x{1}/y", "whole level"),
        ("hub/{1}x/y", "whole level"),
        ("hub/\ud800", "surrogate"),
        ("hub/x?where data = \udfff", "surrogate"),
        ("hub/{(x{1000}){1000}}", "no regular expression"),
        ("hub/{x{999}}/{x{999}}/{x{999}}", "steps together"),
        ("a/" * MAX_LEVELS + "b", "levels"),
        ("hub/" + "x" * MAX_PATTERN, "bytes"),
        ("hub/" + "é" * (MAX_PATTERN // 2), "bytes"),
        ("hub/x?" + " " * 10_000, "characters"),
    ],
)
def test_what_is_refused(topic: str, says: str) -> None:
    with pytest.raises(TopicError, match=says.replace(")", r"\)")):
        parse(topic)


_names = st.text("ab1-", min_size=1, max_size=3)
_concretes = st.lists(_names, min_size=1, max_size=6).map("/".join)
_regexes = st.recursive(
    st.sampled_from(["a", "b", "1", "-", ".", "[ab]", "[^a]", "^", "$", ""]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}", "{2}"])).map(
            lambda two: f"({two[0]}){two[1]}"
        ),
    ),
    max_leaves=5,
)
_globs = st.lists(
    st.sampled_from(
        ["*", "**", "a", "b", "1", "-", "[ab]", "[!a]", "[a-b]", "[1-", "]", "[!]", "[]a]", "[b-a]"]
    ),
    min_size=1,
    max_size=4,
).map("".join)
_levels = st.one_of(
    _names, st.just("*"), st.just("**"), st.just("**"), _globs, _regexes.map(lambda r: f"{{{r}}}")
)
_patterns = st.lists(_levels, min_size=2, max_size=6).map("/".join)


@settings(max_examples=examples(600), deadline=None)
@given(_patterns, st.lists(_concretes, min_size=1, max_size=8))
def test_the_matcher_is_the_slow_one(pattern: str, concretes: list[str]) -> None:
    found = parse(pattern).pattern
    for concrete in concretes:
        assert found.matches(concrete) is slowly(pattern, concrete), (pattern, concrete)


@settings(max_examples=examples(300), deadline=None)
@given(_concretes.filter(lambda text: "/" in text), st.data())
def test_patterns_made_of_the_topic_they_mean(concrete: str, data: st.DataObject) -> None:
    """Patterns that have to fit, and nearly do if a level is left out of the topic."""
    parts: list[str] = []
    for name in concrete.split("/"):
        kinds = [
            [name],
            ["*"],
            [name[:1] + "*"],
            [f"{{{'.' * len(name)}}}"],
            ["**", name],
            ["**"],
            [name, "**"],
        ]
        parts.extend(data.draw(st.sampled_from(kinds)))
    pattern = "/".join(parts)
    found = parse(pattern).pattern if len(parts) > 1 else parse("**").pattern
    names = concrete.split("/")
    left_out = data.draw(st.integers(0, len(names) - 1))
    shorter = "/".join(names[:left_out] + names[left_out + 1 :])
    for topic in (concrete, shorter, f"{concrete}/{names[0]}"):
        assert found.matches(topic) is slowly(found.text, topic), (pattern, topic)


@settings(max_examples=examples(400), deadline=None)
@given(st.text("ab]![-^\\.*&~|", min_size=1, max_size=8), st.text("ab]![-^\\.*&~|", min_size=1, max_size=3))
def test_a_level_is_what_fnmatch_says(pattern: str, name: str) -> None:
    found = levels.level(pattern)
    if isinstance(found, levels.AnyLevel):
        return
    here = found == name if isinstance(found, str) else found.means(name)
    assert here is fnmatch.fnmatchcase(name, pattern)


@settings(max_examples=examples(500), deadline=None)
@given(st.one_of(st.text(max_size=40), st.text('ab/{}[]*?"\\!-^,query', max_size=40)))
def test_any_text_is_a_topic_or_a_topic_error(text: str) -> None:
    try:
        found = parse(text)
    except TopicError:
        return
    found.pattern.matches("ab/a/b")
    assert found.text == text


@pytest.mark.parametrize(
    "pattern",
    [
        "/".join(["**", "a*"] * 31 + ["b"]),
        "/".join(["**"] * 63 + ["b"]),
        "/".join(["**", "*"] * 31 + ["b"]),
        "/".join(["**", "{(a*)*}"] * 31 + ["b"]),
        "hub/{(a+)+$}",
        "hub/" + "*a" * 90 + "c",
    ],
)
def test_hostile_patterns_cost_little(pattern: str) -> None:
    found = parse(pattern).pattern
    concretes = ["/".join(["a" * 60] * 63), "hub/" + "a" * 3000 + "b"]
    before = time.process_time()
    assert not any(found.decide(concrete) for concrete in concretes)
    # A matcher that tries every choice takes longer than the universe has been there; this one some ms.
    assert time.process_time() - before < 0.5


def test_answers_are_kept_in_a_bounded_table(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = parse("hub/*/kept").pattern
    for index in range(100):
        pattern.matches(f"hub/{index}/kept")
    before = len(topics._matches)
    monkeypatch.setattr(topics.TopicPattern, "decide", lambda self, concrete: pytest.fail("asked again"))
    for index in range(100):
        assert pattern.matches(f"hub/{index}/kept")
    assert len(topics._matches) == before


@pytest.mark.parametrize(("name", "most"), [("MOST_ANSWERS", 10), ("MOST_CHARACTERS", 200)])
def test_answers_that_are_too_many_are_forgotten(
    name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = topics._MatchCache()
    monkeypatch.setattr(topics, name, most)
    for index in range(100):
        assert answers.keep(b"hub/*/kept", f"hub/{index}/kept", answer=True)
        assert 0 < len(answers) <= 11
    assert answers[b"hub/*/kept", "hub/99/kept"]
