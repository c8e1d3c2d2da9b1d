"""JWTs that are good, and what becomes of their claims."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jwt
import pytest

from kiwi_gw.api import Action, EventSchema, Permit, Refusal, SourceInfo

FLIGHTS = SourceInfo("flights", "kafka", EventSchema(()))


def configure(gate: Any, issuer: Any, keys: bytes, tmp_path: Path, **changes: object) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(keys)
    block = {"issuer": issuer.name, "audience": issuer.audience, "jwks_file": file, "leeway_seconds": 30}
    gate.configure(roles={"reader": {"sources": ["*"]}}, jwt=block | changes)


@pytest.mark.parametrize("kid", ["rsa", "ec", "ed"])
def test_a_good_token_of_each_kind_is_somebody(jwt_gate: Any, issuer: Any, kid: str) -> None:
    exp = int(time.time()) + 600
    identity = jwt_gate.bearer(issuer.token(kid, exp=exp, team="tower"))
    assert identity.name == "ada"
    assert identity.roles == {"reader"}
    assert identity.claims["team"] == "tower"
    assert identity.expires_at == exp + 30
    answers = jwt_gate.manager.hook.authorize(identity=identity, action=Action.SUBSCRIBE, source=FLIGHTS)
    assert answers == [Permit()]


@pytest.mark.parametrize("kind", ["JWT", "jwt", "at+jwt", "application/at+jwt", None])
def test_types_of_access_tokens_are_accepted(jwt_gate: Any, issuer: Any, kind: str | None) -> None:
    token = issuer.sign("rsa", {"alg": "RS256", "kid": "rsa", "typ": kind}, issuer.claims())
    assert jwt_gate.bearer(token).name == "ada"


def test_time_has_a_leeway(jwt_gate: Any, issuer: Any) -> None:
    now = int(time.time())
    assert jwt_gate.bearer(issuer.token(exp=now - 20)).name == "ada"
    assert jwt_gate.bearer(issuer.token(nbf=now + 20, iat=now + 20)).name == "ada"
    late = jwt_gate.bearer(issuer.token(exp=now - 40))
    assert (late.code, late.retry) == ("token_expired", True)
    assert jwt_gate.bearer(issuer.token(nbf=now + 60)).code == "invalid_token"


def test_true_is_not_a_time(jwt_gate: Any, issuer: Any) -> None:
    token = issuer.sign("rsa", {"alg": "RS256", "kid": "rsa"}, issuer.claims(exp=True))
    assert isinstance(jwt_gate.bearer(token), Refusal)


def test_an_accepted_token_is_not_over_at_once(jwt_gate: Any, issuer: Any) -> None:
    identity = jwt_gate.bearer(issuer.token(exp=int(time.time()) - 20))
    assert identity.expires_at > time.time()


def test_a_connection_ends_when_its_token_does(jwt_gate: Any, issuer: Any) -> None:
    identity = jwt_gate.bearer(issuer.token())
    jwt_gate.now = identity.expires_at + 1
    (answer,) = jwt_gate.manager.hook.authorize(identity=identity, action=Action.SUBSCRIBE, source=FLIGHTS)
    assert (answer.code, answer.retry) == ("token_expired", True)


def test_the_order_of_the_audiences_does_not_matter(gate: Any, issuer: Any, tmp_path: Path) -> None:
    configure(gate, issuer, issuer.key_set(), tmp_path, audience=["kiwi-eu", "kiwi"])
    assert gate.bearer(issuer.token(aud=["other", "kiwi"])).name == "ada"
    assert gate.bearer(issuer.token(aud="kiwi-eu")).name == "ada"
    assert gate.bearer(issuer.token(aud="kiwi-us")).code == "invalid_token"


@pytest.mark.parametrize(
    ("claim", "changes", "roles"),
    [
        ("roles", {"roles": ["a", "b"]}, {"a", "b"}),
        ("scope", {"scope": "a b  c"}, {"a", "b", "c"}),
        ("realm_access.roles", {"realm_access": {"roles": ["a"]}}, {"a"}),
        ("https://x.example/roles", {"https://x.example/roles": ["a"]}, {"a"}),
        ("roles", {"roles": None}, set()),
        ("roles", {"roles": 7}, set()),
        ("roles", {"roles": {"a": 1}}, set()),
        ("roles", {"roles": ["a", 7, ["b"]]}, {"a"}),
        ("a.b.c", {"a": {"b": "text"}}, set()),
    ],
)
def test_roles_come_from_their_claim(
    gate: Any, issuer: Any, tmp_path: Path, claim: str, changes: dict[str, Any], roles: set[str]
) -> None:
    configure(gate, issuer, issuer.key_set(), tmp_path, roles_claim=claim)
    assert gate.bearer(issuer.token(**changes)).roles == roles


def test_the_name_comes_from_its_claim(gate: Any, issuer: Any, tmp_path: Path) -> None:
    configure(gate, issuer, issuer.key_set(), tmp_path, name_claim="email")
    assert gate.bearer(issuer.token(email="ada@x.example")).name == "ada@x.example"
    assert gate.bearer(issuer.token()).code == "invalid_token"


def test_nobody_is_called_like_those_without_a_name(jwt_gate: Any, issuer: Any) -> None:
    assert jwt_gate.bearer(issuer.token(sub="anonymous")).code == "invalid_token"


def test_without_a_kid_the_only_fitting_key_is_meant(gate: Any, issuer: Any, tmp_path: Path) -> None:
    nameless = issuer.sign("rsa", {"alg": "RS256"}, issuer.claims())
    configure(gate, issuer, issuer.key_set("rsa", "ec"), tmp_path)
    assert gate.bearer(nameless).name == "ada"
    configure(gate, issuer, issuer.key_set("rsa", "stranger"), tmp_path, leeway_seconds=1)
    assert gate.bearer(nameless).code == "invalid_token"


def test_a_key_without_alg_has_the_first_algorithm_that_fits(gate: Any, issuer: Any, tmp_path: Path) -> None:
    key = issuer.jwk("rsa")
    del key["alg"]
    keys = json.dumps({"keys": [key]}).encode()
    configure(gate, issuer, keys, tmp_path, algorithms=["PS256", "RS256"])
    pss = jwt.encode(issuer.claims(), issuer.private("rsa"), "PS256", {"kid": "rsa"})
    assert gate.bearer(pss).name == "ada"
    assert gate.bearer(issuer.token("rsa")).code == "invalid_token"  # one key, one algorithm


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_secret_works_for_its_one_algorithm(gate: Any, issuer: Any, algorithm: str) -> None:
    secret = "k" * 64
    block = {"issuer": issuer.name, "audience": issuer.audience, "secret": secret, "algorithms": [algorithm]}
    gate.configure(jwt=block)
    assert gate.bearer(jwt.encode(issuer.claims(), secret, algorithm)).name == "ada"
    for other in {"HS256", "HS384", "HS512"} - {algorithm}:
        assert gate.bearer(jwt.encode(issuer.claims(), secret, other)).code == "invalid_token"
    assert gate.bearer(jwt.encode(issuer.claims(), "x" * 64, algorithm)).code == "invalid_token"
    assert gate.bearer(issuer.token("rsa")).code == "invalid_token"


def test_static_tokens_and_jwts_live_side_by_side(gate: Any, issuer: Any, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(issuer.key_set())
    gate.configure(
        static=[{"name": "ci", "token": "0123456789.abc.defghij"}],
        jwt={"issuer": issuer.name, "audience": issuer.audience, "jwks_file": keys},
    )
    assert gate.bearer("0123456789.abc.defghij").name == "ci"
    assert gate.bearer(issuer.token()).name == "ada"


def test_taking_the_jwt_block_away_ends_its_identities(jwt_gate: Any, issuer: Any) -> None:
    identity = jwt_gate.bearer(issuer.token())
    jwt_gate.configure(anonymous={})
    (answer,) = jwt_gate.manager.hook.authorize(identity=identity, action=Action.SUBSCRIBE, source=FLIGHTS)
    assert isinstance(answer, Refusal)
    assert answer.code == "revoked"


def test_static_tokens_work_where_pyjwt_is_not_installed() -> None:
    program = """
import sys
sys.modules["jwt"] = sys.modules["cryptography"] = None
from kiwi_tokens import TokensSettings, plugin
from kiwi_gw.api import PluginContext, Token
settings = TokensSettings.model_validate({"static": [{"name": "ci", "token": "0123456789-abcdefghij"}]})
plugin.configure(PluginContext({"tokens": settings}))
print(plugin.authenticate(Token("0123456789-abcdefghij")).name)
try:
    TokensSettings.model_validate({"jwt": {"issuer": "i", "audience": "a", "secret": "x" * 40}})
except ValueError as error:
    print("kiwi-gw[jwt]" in str(error))
"""
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=Path.cwd(),
    )
    assert result.stdout.split() == ["ci", "True"]
