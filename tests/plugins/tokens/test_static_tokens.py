"""Static tokens, anonymous clients, and what a reload does to both."""

from __future__ import annotations

import hmac
from datetime import UTC, datetime
from typing import Any

import pytest

from kiwi_gw.api import (
    Action,
    EventSchema,
    Identity,
    Password,
    Permit,
    PluginContext,
    Refusal,
    SourceInfo,
    Token,
)
from kiwi_tokens import TokensPlugin

TOKEN = "0123456789-abcdefghij"
OTHER = "zyxwvutsrq.9876543210"
FLIGHTS = SourceInfo("flights", "kafka", EventSchema(()))
ROLES = {"reader": {"sources": ["flights"]}, "writer": {"sources": ["*"], "actions": ["publish"]}}


def allowed(gate: Any, identity: Identity, action: Action = Action.SUBSCRIBE) -> bool:
    answers = gate.manager.hook.authorize(identity=identity, action=action, source=FLIGHTS)
    return bool(answers == [Permit()])


def refusal(gate: Any, identity: Identity) -> Refusal:
    (answer,) = gate.manager.hook.authorize(identity=identity, action=Action.SUBSCRIBE, source=FLIGHTS)
    assert isinstance(answer, Refusal)
    return answer


def configure(gate: Any, **changes: Any) -> None:
    tokens = [
        {"name": "ci", "token": TOKEN, "roles": ["reader"]},
        {"name": "job", "token": OTHER, "roles": ["reader", "writer"]},
    ]
    gate.configure(**({"roles": ROLES, "static": tokens} | changes))


def test_a_known_token_is_somebody(gate: Any) -> None:
    configure(gate)
    for credential in (gate.bearer(TOKEN), gate.ask(Token(TOKEN))):
        assert credential == Identity("ci", frozenset({"reader"}), credential.claims)
    assert gate.bearer(OTHER).name == "job"


@pytest.mark.parametrize(
    "token", [TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "x" * 9000, "é" * 20, TOKEN + "\0"]
)
def test_any_other_is_nobody(gate: Any, token: str) -> None:
    configure(gate)
    for answer in (gate.bearer(token), gate.ask(Token(token))):
        assert isinstance(answer, Refusal)
        assert (answer.code, answer.retry) == ("invalid_token", False)


def test_without_credentials_there_is_no_entry(gate: Any, head: Any) -> None:
    configure(gate)
    assert gate.ask(head()).code == "no_token"
    assert gate.ask(Token("")).code == "no_token"
    assert gate.bearer("").code == "invalid_token"
    assert gate.ask(Password("ci", TOKEN)).code == "no_token"


def test_every_token_is_compared_whichever_it_is(gate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(gate)
    real, seen = hmac.compare_digest, []

    def counting(first: bytes, second: bytes) -> bool:
        seen.append((len(first), len(second)))
        return real(first, second)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    for token in (TOKEN, OTHER, "x", "unknown-unknown-unknown"):
        seen.clear()
        gate.bearer(token)
        assert seen == [(32, 32), (32, 32)]


def test_a_token_expires(gate: Any) -> None:
    ends = datetime.fromtimestamp(gate.now + 100, UTC)
    configure(gate, static=[{"name": "ci", "token": TOKEN, "roles": ["reader"], "expires_at": ends}])
    identity = gate.bearer(TOKEN)
    assert identity.expires_at == pytest.approx(gate.now + 100)
    assert allowed(gate, identity)
    gate.now += 101
    for answer in (gate.bearer(TOKEN), refusal(gate, identity)):
        assert (answer.code, answer.retry) == ("token_expired", True)


def test_anonymous_clients_get_their_roles(gate: Any, head: Any) -> None:
    configure(gate, anonymous={"roles": ["reader"]})
    identity = gate.ask(head())
    assert (identity.name, identity.roles, identity.expires_at) == ("anonymous", {"reader"}, None)
    assert allowed(gate, identity)
    # A wrong token does not make anybody anonymous.
    assert gate.bearer("x" * 20).code == "invalid_token"
    assert gate.ask(head(authorization="Basic abc")).code == "invalid_token"
    assert gate.ask(head(query="access_token=")).code == "invalid_token"


def test_what_no_role_allows_is_refused(gate: Any) -> None:
    configure(gate, roles=ROLES | {"empty": {}}, anonymous={})
    reader, job = gate.bearer(TOKEN), gate.bearer(OTHER)
    assert allowed(gate, reader)
    assert allowed(gate, reader, Action.REPLAY)
    for action in (Action.PUBLISH, Action.COMMIT, Action.ADMIN):
        assert not allowed(gate, reader, action)
    assert allowed(gate, job, Action.PUBLISH)
    for roles in ((), ("unknown",), ("empty",)):
        answer = refusal(gate, Identity("of another plugin", frozenset(roles)))
        assert (answer.code, answer.retry) == ("forbidden", False)
        assert "flights" not in answer.message
    assert allowed(gate, Identity("of another plugin", frozenset({"reader"})))


def test_a_reload_counts_for_those_who_are_connected(gate: Any, head: Any) -> None:
    configure(gate, anonymous={"roles": ["reader"]})
    ci, job, anonymous = gate.bearer(TOKEN), gate.bearer(OTHER), gate.ask(head())
    configure(gate, static=[{"name": "ci", "token": TOKEN, "roles": ["writer"]}])
    assert refusal(gate, ci).code == "forbidden"
    assert allowed(gate, ci, Action.PUBLISH)
    assert refusal(gate, job).code == "revoked"
    assert (refusal(gate, anonymous).code, refusal(gate, anonymous).retry) == ("no_token", True)
    # The name alone is nothing: the token behind it was replaced.
    configure(gate, static=[{"name": "job", "token": TOKEN, "roles": ["reader"]}])
    assert refusal(gate, job).code == "revoked"


def test_an_origin_cannot_be_forged_by_a_claim(gate: Any) -> None:
    configure(gate)
    mark = str(gate.bearer(TOKEN).claims["kiwi_tokens"])
    forged = Identity("eve", frozenset(), {"kiwi_tokens": mark})
    assert refusal(gate, forged).code == "forbidden"


def test_before_it_is_configured_it_refuses(gate: Any, head: Any) -> None:
    assert gate.ask(head()).code == "not_configured"
    assert refusal(gate, Identity("x", frozenset({"reader"}))).code == "not_configured"


def test_a_reload_that_fails_changes_nothing(gate: Any) -> None:
    configure(gate)
    with pytest.raises(KeyError):
        gate.manager.hook.configure(context=PluginContext({}))
    with pytest.raises(TypeError, match="the section tokens is a"):
        gate.manager.hook.configure(context=PluginContext({"tokens": object()}))  # type: ignore[dict-item]
    assert gate.bearer(TOKEN).name == "ci"


def test_other_plugins_are_asked_first(gate: Any, head: Any) -> None:
    from kiwi_gw.api import hookimpl

    class Passwords:
        @hookimpl
        def authenticate(self, credential: object) -> Identity | None:
            return Identity("by password") if isinstance(credential, Password) else None

    configure(gate)
    gate.manager.register(Passwords(), "passwords")
    gate.manager.register(TokensPlugin(), "tokens registered later")
    assert gate.ask(Password("u", "p")) == Identity("by password")


def test_the_entry_point_is_an_instance_and_its_section_is_required() -> None:
    from kiwi_gw.plugin_manager import PluginManager

    manager = PluginManager()
    manager.load("kiwi_tokens:plugin")
    assert manager.config_sections()["tokens"].required
