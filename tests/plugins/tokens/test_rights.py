"""Patterns of source ids."""

from __future__ import annotations

import pytest

from kiwi_gw.api import Action
from kiwi_tokens.rights import Rights
from kiwi_tokens.settings import RoleSettings


@pytest.mark.parametrize(
    ("pattern", "source", "fits"),
    [
        ("flights", "flights", True),
        ("flights", "flights2", False),
        ("flights", "Flights", False),
        ("flights", "xflights", False),
        ("counter-*", "counter-", True),
        ("counter-*", "counter-a.b/c", True),
        ("counter-*", "acounter-1", False),
        ("counter-?", "counter-12", False),
        ("[ab]-*", "b-1", True),
        ("[!ab]-*", "b-1", False),
        ("a.b", "axb", False),
        ("*", "anything\nat all", True),
        ("flights", "flights\n", False),
        ("(a+)+$", "aaaa", False),
    ],
)
def test_a_pattern_is_a_shell_pattern_of_the_whole_id(pattern: str, source: str, fits: bool) -> None:
    rights = Rights({"r": RoleSettings(sources=(pattern,))})
    assert rights.allow(["r"], Action.SUBSCRIBE, source) is fits


def test_rights_are_of_one_role_not_mixed_from_two() -> None:
    rights = Rights(
        {
            "a": RoleSettings(sources=("x",), actions=(Action.SUBSCRIBE,)),
            "b": RoleSettings(sources=("y",), actions=(Action.PUBLISH,)),
        }
    )
    assert rights.allow(["a", "b"], Action.SUBSCRIBE, "x")
    assert rights.allow(["a", "b"], Action.PUBLISH, "y")
    assert not rights.allow(["a", "b"], Action.PUBLISH, "x")
    assert not rights.allow(["a", "b"], Action.SUBSCRIBE, "y")
    assert not rights.allow([], Action.SUBSCRIBE, "x")
