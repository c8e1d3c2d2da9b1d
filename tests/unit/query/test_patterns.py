"""LIKE and regular expressions."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiwi_gw.query import like_patterns, patterns
from kiwi_gw.query.functions import regular_expressions
from kiwi_gw.query.limits import MAX_TEXT
from kiwi_gw.query.values import RecordError
from tests.effort import examples
from tests.unit.query.trying import at, call, kept, result


def plainly(text: str, pattern: str) -> bool:
    """LIKE, sign by sign."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(plainly(text[cut:], pattern[1:]) for cut in range(len(text) + 1))
    if pattern[0] == "\\":
        return text[:1] == pattern[1] and plainly(text[1:], pattern[2:])
    return bool(text) and pattern[0] in ("_", text[0]) and plainly(text[1:], pattern[1:])


parts = st.sampled_from(("a", "b", "%", "_", "\\%", "\\_", "\\\\", "é", "."))


@settings(max_examples=examples(500), deadline=None)
@given(st.text("ab%_\\é.\n", max_size=6), st.lists(parts, max_size=6).map("".join))
def test_like_is_what_it_is_sign_by_sign(text: str, pattern: str) -> None:
    assert like_patterns.liker(pattern)(text) == plainly(text, pattern)


@settings(max_examples=examples(200), deadline=None)
@given(st.text("ab,;", max_size=12), st.sampled_from((",", "[,;]", ",+", "a*", "b?,")), st.integers(-1, 4))
def test_split_as_java_does(text: str, pattern: str, limit: int) -> None:
    pieces: list[object] = []
    place = 0
    for match in re.finditer(pattern, text):
        if 0 < limit <= len(pieces) + 1:
            break
        if match.end() > 0:
            pieces.append(text[place : match.start()])
            place = match.end()
    assert regular_expressions.split(text, pattern, limit) == [*pieces, text[place:]]


@pytest.mark.parametrize("pattern", ["a%b", "%a%", "_a", "a"])
def test_a_pattern_of_a_record_is_no_longer_than_one_of_a_query(pattern: str) -> None:
    long = pattern * 1_000_000
    for name in ("like", "ilike", "rlike", "regexp_like", "split"):
        assert result(call(name, at("s"), at("p")), {"s": "x", "p": long}) == "bad"
    assert result(call("regexp_replace", at("s"), "x", at("p")), {"s": "x", "p": long}) == "bad"
    with pytest.raises(patterns.PatternError):
        like_patterns.liker("a" * (MAX_TEXT + 1))


def test_what_would_hang_elsewhere_is_quick() -> None:
    text = "a" * 60_000 + "b"
    assert kept(call("rlike", at("s"), "(a|aa)+$"), [{"s": text}]) == []
    assert kept(call("like", at("s"), "%a%a%a%a%a%a%_c"), [{"s": text}]) == []
    assert kept(call("rlike", at("s"), "(a*)*c"), [{"s": text}]) == []


def test_looking_for_every_match_has_an_end() -> None:
    with pytest.raises(RecordError, match="too many"):
        list(regular_expressions.spans("a.*b|a", "a" * 60_000))
    assert len(list(regular_expressions.spans("a.*b|a", "a" * 4_000))) == 4_000


def test_a_pattern_of_a_record_that_cannot_be_used_makes_it_bad() -> None:
    for name in ("rlike", "like"):
        assert (
            result(call(name, at("s"), at("p")), {"s": "x", "p": "(" if name == "rlike" else "\\"}) == "bad"
        )
    assert kept(call("rlike", at("s"), at("p")), [{"s": "x", "p": "X"}, {"s": "x", "p": "(?i)X"}]) == [1]
