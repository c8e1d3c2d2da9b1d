"""What `kiwi-gw check` says of who may write."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kiwi_gw.api import Section
from kiwi_tokens.settings import TokensSettings
from kiwi_tokens.writers import writers


def said(sources: dict[str, bool], **more: Any) -> list[tuple[str, str, str]]:
    roles = {"w": {"sources": ["orders*"], "actions": ["subscribe", "publish"]}, "r": {"sources": ["*"]}}
    static = [
        {"name": name, "token": f"a-token-of-{name:0>12}", "roles": [role]}
        for name, role in (("machine", "w"), ("ear", "r"))
    ]
    settings = TokensSettings.model_validate({"roles": roles, "static": static, **more})
    written = {name: cast(Section, SimpleNamespace(publish=publish)) for name, publish in sources.items()}
    return [(each.level, each.subject, each.message) for each in writers(settings, written)]


def test_who_has_the_right_is_named_and_where_nobody_has_it_that_is_a_warning() -> None:
    assert said({"orders": True, "prices": True, "orders.old": False}) == [
        ("ok", "source orders", "may be written to by w: machine"),
        (
            "warning",
            "source prices",
            "clients may write to it, but no role has the right to: `actions: [publish]`",
        ),
    ]


@pytest.mark.parametrize("count", [10, 12])
def test_of_many_some_are_named(count: int) -> None:
    static = [
        {"name": f"m{n:02}", "token": f"a-token-of-machine-{n:04}", "roles": ["w"]} for n in range(count)
    ]
    ((_, _, message),) = said({"orders": True}, static=static)
    assert message.endswith("m09" if count == 10 else "m09 and 2 more")


def test_a_source_that_cannot_be_written_to_needs_no_words() -> None:
    assert said({"orders": False}) == []


def test_who_needs_no_credentials_and_a_role_that_nobody_has() -> None:
    anonymous = said({"orders": True}, anonymous={"roles": ["w"]})
    assert anonymous == [
        ("ok", "source orders", "may be written to by w: anyone without credentials, machine")
    ]
    ear = [{"name": "ear", "token": "a-token-of-the-ear", "roles": ["r"]}]
    assert said({"orders": True}, static=ear) == [
        ("warning", "source orders", "clients may write to it, but nobody has the role w")
    ]
