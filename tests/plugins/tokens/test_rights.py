"""Patterns of source ids."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from kiwi_gw.api import Action
from kiwi_tokens.rights import RolePermissions
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
    rights = RolePermissions({"r": RoleSettings(sources=(pattern,))})
    assert rights.allow(["r"], Action.SUBSCRIBE, source) is fits


def test_rights_are_of_one_role_not_mixed_from_two() -> None:
    rights = RolePermissions(
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


@pytest.mark.parametrize("pattern", ["?*", "[!x]*", "[*]", "flights", "*-flights", "***x"])
def test_of_all_patterns_only_the_star_stands_for_the_gateway_as_a_whole(pattern: str) -> None:
    # What the settings refuse is not there, but `RolePermissions` need not rely on that.
    settings = RoleSettings.model_construct(sources=(pattern,), actions=(Action.ADMIN,))
    assert not RolePermissions({"r": settings}).allow(["r"], Action.ADMIN, None)
    with_star = RoleSettings.model_construct(sources=(pattern, "*"), actions=(Action.ADMIN,))
    assert RolePermissions({"r": with_star}).allow(["r"], Action.ADMIN, None)


@pytest.mark.parametrize("pattern", ["", "**", "***", "a.**", " "])
def test_a_pattern_that_means_nothing_is_an_error_and_matches_nothing(pattern: str) -> None:
    with pytest.raises(ValidationError):
        RoleSettings(sources=(pattern,))
    settings = RoleSettings.model_construct(sources=(pattern,), actions=(Action.ADMIN,))
    assert not RolePermissions({"r": settings}).allow(["r"], Action.ADMIN, None)


def test_the_star_without_the_action_admin_opens_no_gateway() -> None:
    assert not RolePermissions({"r": RoleSettings(sources=("*",))}).allow(["r"], Action.ADMIN, None)
