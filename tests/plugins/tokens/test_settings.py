"""Every mistake in the `tokens:` section that can be seen is seen, in words, and quotes no secret."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pydantic import ValidationError

from kiwi_tokens import TokensSettings

TOKEN = "0123456789-abcdefghij"
OTHER = "zyxwvutsrq.9876543210"
JWT = {"issuer": "https://i.example", "audience": "kiwi", "jwks_url": "https://i.example/keys"}
SECRET = "s" * 64


def section(**changes: Any) -> TokensSettings:
    return TokensSettings.model_validate({"anonymous": {}} | changes)


def jwt_section(**changes: Any) -> TokensSettings:
    return section(jwt={key: value for key, value in (JWT | changes).items() if value is not None})


def test_what_is_not_given_has_a_safe_default() -> None:
    settings = TokensSettings.model_validate({"static": [{"name": "ci", "token": TOKEN}]})
    assert settings.anonymous is None
    assert settings.static[0].roles == ()
    assert settings.static[0].expires_at is None
    assert settings.query_parameter == "access_token"
    assert settings.subprotocol_prefix == "kiwi-gw.bearer."
    jwt = jwt_section().jwt
    assert jwt is not None
    assert jwt.allowed_algorithms == ("RS256", "ES256", "EdDSA")
    assert jwt.leeway_seconds <= 60
    role = section(roles={"reader": {}}).roles["reader"]
    assert role.sources == ()
    assert {action.value for action in role.actions} == {"subscribe", "replay"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"static": [{"name": "a", "token": "short"}]}, "16 to 4096 characters; make one with"),
        ({"static": [{"name": "a", "token": "x" * 4097}]}, "16 to 4096 characters"),
        ({"static": [{"name": "a", "token": TOKEN + "/+="}]}, "only letters, digits and . _ ~ -"),
        ({"static": [{"name": "a", "token": TOKEN + "\n"}]}, "only letters, digits and . _ ~ -"),
        ({"static": [{"name": "a"}]}, "static.0.token"),
        ({"static": [{"name": "", "token": TOKEN}]}, "static.0.name"),
        ({"static": [{"name": "anonymous", "token": TOKEN}]}, "no token can be called 'anonymous'"),
        (
            {"static": [{"name": "a", "token": TOKEN}, {"name": "a", "token": OTHER}]},
            "2 tokens are called 'a'",
        ),
        (
            {"static": [{"name": "a", "token": TOKEN}, {"name": "b", "token": TOKEN}]},
            "'a' and 'b' have the same token",
        ),
        (
            {"roles": {"reader": {}}, "static": [{"name": "a", "token": TOKEN, "roles": ["raeder"]}]},
            "the token 'a' has the role 'raeder', which is not in roles, did you mean 'reader'?",
        ),
        ({"anonymous": {"roles": ["x"]}}, "anonymous has the role 'x', which is not in roles (a role that"),
        ({"static": [{"name": "a", "token": TOKEN, "expires_at": "2030-01-01"}]}, "static.0.expires_at"),
        ({"static": [{"name": "a", "token": TOKEN, "tokne": 1}]}, "static.0.tokne"),
        ({"roles": {"r": {"actions": ["read"]}}}, "'subscribe', 'replay', 'publish', 'commit' or 'admin'"),
        ({"roles": {"r": {"sources": "flights"}}}, "roles.r.sources"),
        ({"subprotocol_prefix": "kiwi gw/"}, "must be the beginning of a subprotocol's name"),
        ({"anonymous": None}, "nobody could connect"),
        ({"statics": []}, "statics"),
    ],
)
def test_mistakes_are_errors(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        section(**changes)
    text = str(caught.value)
    assert words in text
    assert TOKEN not in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"issuer": None}, "jwt.issuer"),
        ({"audience": None}, "jwt.audience"),
        ({"audience": []}, "jwt.audience"),
        ({"jwks_url": None}, "exactly one of jwks_url, jwks_file and secret (has none)"),
        ({"jwks_file": "k.json"}, "(has jwks_url and jwks_file)"),
        ({"algorithms": ["none"]}, "jwt.algorithms"),
        ({"algorithms": []}, "jwt.algorithms"),
        ({"algorithms": ["RS256", "HS256"]}, "HS256 needs a secret, not a key set of public keys"),
        (
            {"jwks_url": None, "secret": SECRET, "algorithms": ["RS256"]},
            "a secret is for exactly one of HS256",
        ),
        ({"jwks_url": None, "secret": SECRET, "algorithms": ["HS256", "HS512"]}, "exactly one of HS256"),
        ({"jwks_url": None, "secret": SECRET, "algorithms": ["HS256", "ES256"]}, "exactly one of HS256"),
        ({"jwks_url": None, "secret": "s" * 31}, "a secret for HS256 has at least 32 bytes"),
        ({"jwks_url": None, "secret": "s" * 63, "algorithms": ["HS512"]}, "HS512 has at least 64 bytes"),
        ({"jwks_url": None, "secret": "-----BEGIN PUBLIC KEY-----" + SECRET}, "secret is a PEM file"),
        ({"leeway_seconds": 61}, "jwt.leeway_seconds"),
        ({"leeway_seconds": -1}, "jwt.leeway_seconds"),
        ({"jwks_url": "http://i.example/keys"}, "must be an https:// address (http:// only on loopback)"),
        ({"jwks_url": "http://localhost.evil.example/keys"}, "must be an https:// address"),
        ({"jwks_url": "http://127.0.0.1.evil.example/"}, "must be an https:// address"),
        ({"jwks_url": "file:///etc/passwd"}, "must be an https:// address"),
        ({"jwks_url": "https:///keys"}, "must be an https:// address"),
        ({"jwks_url": "https://user:pass@i.example/"}, "must hold no user or password"),
        ({"jwks_ttl_seconds": 1}, "jwt.jwks_ttl_seconds"),
    ],
)
def test_mistakes_in_the_jwt_block_are_errors(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        jwt_section(**changes)
    assert words in str(caught.value)
    assert "sss" not in str(caught.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_http_is_allowed_on_loopback(host: str) -> None:
    assert jwt_section(jwks_url=f"http://{host}:8080/keys").jwt is not None


def test_a_jwt_block_without_the_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(ValidationError, match=r"JWTs need: pip install 'kiwi-gw\[jwt\]'"):
        jwt_section()


def test_secrets_have_no_repr() -> None:
    settings = section(static=[{"name": "a", "token": TOKEN}], jwt=JWT | {"jwks_url": None, "secret": SECRET})
    for text in (repr(settings), str(settings), settings.model_dump_json()):
        assert TOKEN not in text
        assert SECRET not in text


def test_the_section_has_a_json_schema() -> None:
    schema = TokensSettings.model_json_schema()
    assert schema["$defs"]["StaticToken"]["properties"]["token"]["writeOnly"]
