"""What a source says to single protocols."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kiwi_gw.config import LoadedConfig
from kiwi_gw.dialects.zetta.settings import ZettaSettings, ZettaSource


def test_what_it_says_and_what_it_does_not(load_text: Callable[..., LoadedConfig]) -> None:
    text = """
zetta: {name: hub}
sources:
  - {type: tick, id: a, zetta: {topic: "h/{value.x[0].y}/{key}", data: value}}
  - {type: tick, id: b}
"""
    settings = load_text(text, {}).settings
    assert settings.dialects["zetta"] == ZettaSettings(name="hub")
    a, b = settings.sources["a"].blocks["zetta"], settings.sources["b"].blocks["zetta"]
    assert a == ZettaSource(topic="h/{value.x[0].y}/{key}", data="value")
    assert b == ZettaSource()


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        ("{topic: 'a//b'}", "2: sources[0].zetta.topic: has an empty level: 'a//b'"),
        (
            "{topic: a}",
            "2: sources[0].zetta.topic: has one level only, and nobody could subscribe to it: 'a'",
        ),
        (
            "{topic: 'a/*/{key}'}",
            "2: sources[0].zetta.topic: is that of an event; *, ? and [ are for subscriptions: 'a/*/{key}'",
        ),
        (
            "{topic: 'a/{b}'}",
            "2: sources[0].zetta.topic: PATH 'b'",
        ),
        ("{topic: 'a/{key'}", "2: sources[0].zetta.topic: has a brace without its other one: 'a/{key'"),
        (
            "{topic: 'a/{}'}",
            "2: sources[0].zetta.topic: PATH ''",
        ),
        (
            "{data: 'value.'}",
            "2: sources[0].zetta.data: PATH 'value.'",
        ),
        ("{tpoic: x}", "2: sources[0].zetta.tpoic: unknown key; did you mean 'topic'?"),
        ("5", "2: sources[0].zetta: must be a mapping, not the number 5"),
    ],
)
def test_what_is_wrong_with_it(block: str, complaint: str, complaints: Callable[..., list[str]]) -> None:
    found = complaints(f"sources:\n  - {{type: tick, id: a, zetta: {block}}}\n")
    roots = "key, value, partition, offset, timestamp, headers"
    assert found == [complaint.replace("PATH", f"must be a path like value.celsius, from {roots}, not")]
