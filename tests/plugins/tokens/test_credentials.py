"""Where a token may stand in a request, and what two of them mean."""

from __future__ import annotations

from typing import Any

import pytest

from kiwi_gw.api import HeadCredential, Refusal
from kiwi_tokens.credentials import MAX_TOKEN, token_of, well_formed

PREFIX = "kiwi-gw.bearer."


def find(head: HeadCredential) -> Any:
    return token_of(head, "access_token", PREFIX)


def code(head: HeadCredential) -> str:
    answer = find(head)
    assert isinstance(answer, Refusal)
    assert not answer.retry
    return answer.code


def test_each_place_is_found(head: Any) -> None:
    assert find(head(authorization="Bearer abc")) == "abc"
    assert find(head(authorization="bEARER   abc ")) == "abc"
    assert find(head(query="a=1&access_token=abc&b=2")) == "abc"
    assert find(head(query="access%5Ftoken=a%2Dc")) == "a-c"
    assert find(head(sec_websocket_protocol=f"kiwi-gw, {PREFIX}abc")) == "abc"
    assert (
        find(head(("sec-websocket-protocol", "kiwi-gw"), ("sec-websocket-protocol", f"{PREFIX}abc"))) == "abc"
    )


def test_no_credentials_are_none(head: Any) -> None:
    assert find(head()) is None
    assert find(head(query="token=abc", sec_websocket_protocol="chat", cookie="access_token=abc")) is None


def test_the_same_token_twice_is_one(head: Any) -> None:
    everywhere = head(
        authorization="Bearer abc", query="access_token=abc", sec_websocket_protocol=f"{PREFIX}abc"
    )
    assert find(everywhere) == "abc"


@pytest.mark.parametrize(
    ("pairs", "query"),
    [
        ([("authorization", "Bearer a"), ("authorization", "Bearer b")], ""),
        ([("authorization", "Bearer a")], "access_token=b"),
        ([("authorization", "Bearer a"), ("sec-websocket-protocol", f"{PREFIX}b")], ""),
        ([("sec-websocket-protocol", f"{PREFIX}a, {PREFIX}b")], ""),
        ([], "access_token=a&access_token=b"),
        ([], "access_token=a&access_token="),
    ],
)
def test_two_different_tokens_are_refused(head: Any, pairs: list[tuple[str, str]], query: str) -> None:
    assert code(head(*pairs, query=query)) == "invalid_token"


def test_credentials_of_another_kind_do_not_count_as_none(head: Any) -> None:
    assert code(head(authorization="Basic YTpi")) == "invalid_token"
    assert code(head(authorization="")) == "invalid_token"
    assert find(head(authorization="Basic YTpi", query="access_token=abc")) == "abc"  # a proxy's own


@pytest.mark.parametrize("query", ["access_token=%ff%fe", "&".join(f"a{i}=" for i in range(200))])
def test_an_unreadable_query_is_refused(head: Any, query: str) -> None:
    assert code(head(query=query)) == "invalid_token"


def test_places_can_be_switched_off(head: Any) -> None:
    request = head(query="access_token=abc", sec_websocket_protocol=f"{PREFIX}abc")
    assert token_of(request, None, None) is None


@pytest.mark.parametrize(
    "token", ["", " ", "a b", "a\n", "é", "a,b", "=a", "a" * (MAX_TOKEN + 1), "a\0", "\udcff"]
)
def test_what_cannot_be_a_token_is_not_looked_at(token: str) -> None:
    assert not well_formed(token)


def test_what_can_be_a_token() -> None:
    assert well_formed("aZ09-._~+/==")
    assert well_formed("a" * MAX_TOKEN)
