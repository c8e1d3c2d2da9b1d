"""A token that was good once is judged again: by the keys, the rules and the clock of now."""

from __future__ import annotations

import json
import math
import os
import pickle
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from kiwi_gw.api import Identity, Refusal
from kiwi_gw.testing import GatewayUnderTest, ScriptedSources, open_gateway
from kiwi_tokens import TokensPlugin, key_sources
from kiwi_tokens.jwks import KeysUnavailable
from tests.edge.wire import Over, connect
from tests.stalls import within

DAY = 86_400


def again(gate: Any, identity: Identity) -> Any:
    """An Identity or a Refusal."""
    (answer,) = gate.manager.hook.reauthenticate(identity=identity)
    assert isinstance(answer, Identity | Refusal)
    return answer


def due(gate: Any) -> bool:
    (answer,) = gate.manager.hook.reauthentication_due()
    return bool(answer)


def block(issuer: Any, **more: object) -> dict[str, object]:
    return {"issuer": issuer.name, "audience": issuer.audience, "leeway_seconds": 0, **more}


# --- what a reload changes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "code", "retry"),
    [
        ({}, "", False),
        ({"audience": ["kiwi", "more"]}, "", False),
        ({"audience": "another"}, "invalid_token", False),
        ({"issuer": "https://another.example"}, "invalid_token", False),
        ({"algorithms": ["ES256"]}, "key_withdrawn", True),
        ({"name_claim": "email"}, "invalid_token", False),
        ({"max_lifetime_seconds": 60}, "token_expired", True),
    ],
    ids=str,
)
def test_a_reload_judges_the_claims_by_the_new_rules(
    gate: Any, issuer: Any, tmp_path: Path, change: dict[str, object], code: str, retry: bool
) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(issuer.key_set())
    gate.configure(jwt=block(issuer, jwks_file=keys))
    identity = gate.bearer(issuer.token(iat=int(gate.now) - 120))
    gate.configure(jwt=block(issuer, jwks_file=keys) | change)
    answer = again(gate, identity)
    if code:
        assert (answer.code, answer.retry) == (code, retry)
    else:
        assert answer == identity


def test_roles_come_from_the_claim_that_is_named_now(gate: Any, issuer: Any, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(issuer.key_set())
    gate.configure(jwt=block(issuer, jwks_file=keys))
    identity = gate.bearer(issuer.token(groups=["b"]))
    gate.configure(jwt=block(issuer, jwks_file=keys, roles_claim="groups"))
    assert (identity.roles, again(gate, identity).roles) == ({"reader"}, {"b"})


def test_another_secret_ends_what_the_old_one_signed(gate: Any, issuer: Any) -> None:
    import jwt

    secrets = ["0123456789-0123456789-0123456789", "9876543210-9876543210-9876543210"]
    gate.configure(jwt=block(issuer, secret=secrets[0], algorithms=["HS256"]))
    identity = gate.bearer(jwt.encode(issuer.claims(), secrets[0], "HS256"))
    gate.configure(jwt=block(issuer, secret=secrets[0], algorithms=["HS256"]), anonymous={})
    assert again(gate, identity).name == "ada"
    gate.configure(jwt=block(issuer, secret=secrets[1], algorithms=["HS256"]))
    assert again(gate, identity).code == "key_withdrawn"


def test_taking_the_block_away_revokes(jwt_gate: Any, issuer: Any) -> None:
    identity = jwt_gate.bearer(issuer.token())
    jwt_gate.configure(anonymous={})
    assert again(jwt_gate, identity).code == "revoked"


def test_what_is_kept_is_no_token_and_no_key(jwt_gate: Any, issuer: Any) -> None:
    token = issuer.token()
    kept = repr(dict(jwt_gate.bearer(token).claims))
    modulus = issuer.jwk("rsa")["n"]
    assert all(part not in kept for part in (*token.split("."), modulus))


@pytest.mark.parametrize("seconds", [0, 59, 61, 3_600])
def test_static_tokens_are_judged_by_the_list_of_now(gate: Any, seconds: int) -> None:
    def entry(**more: object) -> dict[str, object]:
        return {"name": "ci", "token": "0123456789.abc.defghij", **more}

    over = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(gate.now + 60))
    gate.configure(roles={"a": {}, "b": {}}, static=[entry(roles=["a"])])
    identity = gate.bearer("0123456789.abc.defghij")
    gate.configure(roles={"a": {}, "b": {}}, static=[entry(roles=["b"], expires_at=over)])
    gate.now += seconds
    answer = again(gate, identity)
    if seconds < 60:
        assert (answer.roles, answer.expires_at) == ({"b"}, pytest.approx(gate.now - seconds + 60, abs=1))
    else:
        assert (answer.code, answer.retry) == ("token_expired", True)
    gate.configure(anonymous={})
    assert (again(gate, identity).code, again(gate, identity).retry) == ("revoked", False)


def test_identities_of_other_plugins_are_theirs_to_judge(jwt_gate: Any) -> None:
    assert jwt_gate.manager.hook.reauthenticate(identity=Identity("x", claims={"iss": "y"})) == []


# --- how long a token lasts ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "exp",
    [
        "1e308",
        "1e400",
        "NaN",
        "Infinity",
        "-Infinity",
        "true",
        '"9999999999"',
        "null",
        "[1]",
        "1" + "0" * 400,
    ],
)
@pytest.mark.parametrize("name", ["exp", "iat", "nbf"])
def test_a_time_is_a_finite_number_and_never_endless(jwt_gate: Any, issuer: Any, name: str, exp: str) -> None:
    claims = json.dumps(issuer.claims(iat=None) | {name: "?"}).replace('"?"', exp).encode()
    answer = jwt_gate.bearer(issuer.sign("rsa", {"alg": "RS256", "kid": "rsa"}, claims))
    if name == "exp" and exp == "1e308":  # finite, so it is cut
        assert answer.expires_at == pytest.approx(jwt_gate.now + DAY + 30)
    else:
        assert isinstance(answer, Refusal)
        long_ago = name == "exp" and exp == "true"  # which Python takes for 1
        assert answer.code == ("token_expired" if long_ago else "invalid_token")


def test_the_ceiling_counts_from_when_the_token_was_made(gate: Any, issuer: Any, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(issuer.key_set())
    gate.configure(jwt=block(issuer, jwks_file=keys, max_lifetime_seconds=3_600))
    now = int(gate.now)
    far = now + 100 * DAY
    assert gate.bearer(issuer.token(exp=far, iat=now - 600)).expires_at == now + 3_000
    assert gate.bearer(issuer.token(exp=now + 60, iat=now - 600)).expires_at == now + 60
    old = gate.bearer(issuer.token(exp=far, iat=now - 3_601))
    assert (old.code, old.retry) == ("token_expired", True)


def test_without_iat_it_counts_from_the_connection_and_is_never_put_off(jwt_gate: Any, issuer: Any) -> None:
    identity = jwt_gate.bearer(issuer.token(exp=int(jwt_gate.now) + 100 * DAY, iat=None))
    assert identity.expires_at == pytest.approx(jwt_gate.now + DAY + 30)
    for _ in range(3):
        jwt_gate.now += 1_000
        assert again(jwt_gate, identity).expires_at == identity.expires_at


def test_a_clock_that_is_slow_or_fast_moves_nothing_beyond_the_leeway(jwt_gate: Any, issuer: Any) -> None:
    now = int(jwt_gate.now)
    identity = jwt_gate.bearer(issuer.token(iat=now + 20, nbf=now + 20, exp=now + 10 * DAY))
    assert identity.expires_at == pytest.approx(jwt_gate.now + DAY + 30), "an iat to come adds nothing"
    jwt_gate.now -= 60
    assert again(jwt_gate, identity).code == "invalid_token", "our clock was put back: it is not valid yet"
    jwt_gate.now += 60 + DAY + 31
    assert again(jwt_gate, identity).code == "token_expired"


# --- keys that go --------------------------------------------------------------------------------------


def test_a_key_that_a_fetched_set_no_longer_has_is_withdrawn(gate: Any, issuer: Any, key_server: Any) -> None:
    gate.configure(jwt=block(issuer, jwks_url=key_server.url))
    old, other = gate.bearer(issuer.token("rsa")), gate.bearer(issuer.token("ec"))
    assert due(gate)
    assert not due(gate)
    key_server.document = issuer.key_set("ec", "stranger")
    assert again(gate, old).name == "ada", "nobody knows yet"
    assert gate.bearer(issuer.token("stranger")).name == "ada"  # fetched, since nobody knew this key
    assert due(gate)
    assert not due(gate)
    assert (again(gate, old).code, again(gate, old).retry) == ("key_withdrawn", True)
    assert again(gate, other).name == "ada"


def test_the_same_name_for_another_key_is_another_key(gate: Any, issuer: Any, key_server: Any) -> None:
    gate.configure(jwt=block(issuer, jwks_url=key_server.url))
    old = gate.bearer(issuer.token("rsa"))
    key_server.document = json.dumps(
        {"keys": [issuer.jwk("stranger", kid="rsa"), issuer.jwk("ed", kid="new")]}
    ).encode()
    header = {"alg": "EdDSA", "kid": "new"}
    assert gate.bearer(issuer.sign("ed", header, issuer.claims())).name == "ada"
    assert again(gate, old).code == "key_withdrawn"


@pytest.mark.parametrize("harm", [{"status": 500}, {"document": b"{}"}])
def test_a_fetch_that_fails_withdraws_nothing(
    gate: Any, issuer: Any, key_server: Any, harm: dict[str, object]
) -> None:
    gate.configure(jwt=block(issuer, jwks_url=key_server.url))
    identity = gate.bearer(issuer.token())
    assert due(gate)
    for name, value in harm.items():
        setattr(key_server, name, value)
    assert isinstance(gate.bearer(issuer.token("stranger")), Refusal)
    assert key_server.requests == 2
    assert not due(gate)
    assert again(gate, identity).name == "ada"


def test_an_issuer_withdraws_all_keys_by_an_empty_set(
    gate: Any, issuer: Any, key_server: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate.configure(jwt=block(issuer, jwks_url=key_server.url))
    identity = gate.bearer(issuer.token())
    assert due(gate)
    key_server.document = b'{"keys": []}'
    assert gate.bearer(issuer.token("stranger")).code == "invalid_token"
    assert due(gate)
    assert again(gate, identity).code == "key_withdrawn"
    assert isinstance(gate.bearer(issuer.token()), Refusal)
    assert "no JWT is accepted" in caplog.text
    path = tmp_path / "keys.json"
    path.write_bytes(issuer.key_set("ec"))
    keys = key_sources.FileKeys(path, ("RS256", "ES256"))
    assert keys.find("ec", "ES256") is not None
    path.write_bytes(json.dumps({"keys": [issuer.jwk("rsa", use="enc")]}).encode())
    assert keys.find("ec", "ES256") is None


def test_where_keys_come_from_another_place_nobody_is_ended_before_they_are_there(
    gate: Any, issuer: Any, key_server: Any, closed_port: int
) -> None:
    gate.configure(jwt=block(issuer, jwks_url=key_server.url))
    identity = gate.bearer(issuer.token())
    gate.configure(jwt=block(issuer, jwks_url=f"http://127.0.0.1:{closed_port}/keys"))
    assert again(gate, identity).name == "ada"
    assert gate.bearer(issuer.token()).code == "keys_unavailable", "but nobody new is let in"


def test_a_key_file_that_is_replaced_is_noticed_by_itself(gate: Any, issuer: Any, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(issuer.key_set())
    keys = key_sources.FileKeys(path, ("RS256", "ES256"))
    assert keys.find("rsa", "RS256") is not None
    assert keys.changed()
    new = tmp_path / "new.json"
    new.write_bytes(issuer.key_set("ec"))
    os.replace(new, path)
    deadline = time.monotonic() + 10
    while not keys.changed():
        assert time.monotonic() < deadline
    path.unlink()
    for _ in range(100):
        assert not keys.changed()
    with pytest.raises(KeysUnavailable):
        key_sources.FileKeys(path, ("RS256",)).find("rsa", "RS256")


def test_an_identity_of_another_worker_is_judged_alike(jwt_gate: Any, issuer: Any) -> None:
    """A ticket may be used with a worker that has not seen the token."""
    identity = pickle.loads(pickle.dumps(jwt_gate.bearer(issuer.token())))  # noqa: S301
    assert again(jwt_gate, identity) == identity
    program = (
        "import sys; from pathlib import Path; from kiwi_tokens.jwks import parse_key_set, thumbprints;"
        "print(*thumbprints(parse_key_set(Path(sys.argv[1]).read_bytes(), ['RS256'])))"
    )
    keys = str(jwt_gate.plugin._state.settings.jwt.jwks_file)
    found = subprocess.run([sys.executable, "-c", program, keys], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == identity.claims["kiwi_tokens"].signed.key


# --- on a gateway that runs ------------------------------------------------------------------------------


@asynccontextmanager
async def gateway(**tokens: object) -> AsyncIterator[tuple[GatewayUnderTest, ScriptedSources]]:
    scripted = ScriptedSources()
    async with open_gateway(
        text(**tokens), plugins={"scripted": scripted, "tokens": TokensPlugin()}
    ) as running:
        with trio.fail_after(20):
            yield running, scripted


def text(**tokens: object) -> str:
    roles = {"reader": {"sources": ["*"]}}
    sources = [{"type": "scripted", "id": "news"}]
    config = {"plugins": ["scripted"], "sources": sources, "tokens": {"roles": roles, **tokens}}
    return json.dumps(config, default=str)


def bearer(token: str) -> dict[str, Any]:
    return {"headers": [("Authorization", f"Bearer {token}")]}


async def over_within_a_second(client: Any) -> tuple[int | None, str]:
    with within(1), pytest.raises(Over) as ended:
        await client.message()
    return ended.value.code, ended.value.reason


async def test_a_rotated_key_ends_its_connections_within_a_second_of_the_fetch(
    issuer: Any, key_server: Any
) -> None:
    async with (
        gateway(jwt=block(issuer, jwks_url=key_server.url)) as (running, scripted),
        connect(running, **bearer(issuer.token("rsa"))) as old,
        connect(running, **bearer(issuer.token("ec"))) as other,
    ):
        for client in (old, other):
            await client.subscribe("news")
        key_server.document = issuer.key_set("ec", "stranger")
        async with connect(running, **bearer(issuer.token("stranger"))) as new:  # its key must be fetched
            assert await over_within_a_second(old) == (4402, "key_withdrawn")
            await new.subscribe("news")
            await scripted["news"].publish([b"x"])
            for client in (other, new):
                assert (await client.message())["data"]["value"] == "x"


async def test_old_keys_are_fetched_anew_though_nobody_comes(
    issuer: Any, key_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        gateway(jwt=block(issuer, jwks_url=key_server.url)) as (running, _),
        connect(running, **bearer(issuer.token("rsa"))) as client,
    ):
        await client.subscribe("news")
        key_server.document = issuer.key_set("ec")
        plugin = running.gateway.loaded.plugins.find("tokens")
        assert isinstance(plugin, TokensPlugin)
        keys = plugin._state.jwt._keys  # type: ignore[union-attr]
        monkeypatch.setattr(keys, "_ttl", -math.inf)
        monkeypatch.setattr(key_sources, "UNKNOWN_KEY_PAUSE", 0)
        assert (await client.over()).reason == "key_withdrawn"


@pytest.mark.parametrize(
    ("change", "expected"),
    [({"audience": "another"}, (4503, "revoked")), ({"max_lifetime_seconds": 60}, (4402, "token_expired"))],
    ids=str,
)
async def test_a_reload_ends_whom_it_lets_in_no_longer(
    issuer: Any, tmp_path: Path, change: dict[str, object], expected: tuple[int, str]
) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(issuer.key_set())
    jwt_block = block(issuer, jwks_file=keys)
    static = [{"name": "ci", "token": "0123456789.abc.defghij", "roles": ["reader"]}]
    token = issuer.token(iat=int(time.time()) - 120)
    async with (
        gateway(jwt=jwt_block, static=static) as (running, scripted),
        connect(running, **bearer(token)) as ada,
        connect(running, **bearer("0123456789.abc.defghij")) as ci,
    ):
        for client in (ada, ci):
            await client.subscribe("news")
        running.file.write_text(text(jwt=jwt_block | change, static=static))
        assert await running.reloader.reload()
        assert await over_within_a_second(ada) == expected
        await scripted["news"].publish([b"x"])
        assert (await ci.message())["data"]["value"] == "x"
        running.file.write_text(text(jwt=jwt_block))
        assert await running.reloader.reload()
        assert await over_within_a_second(ci) == (4503, "revoked")


async def test_a_reload_that_changes_nothing_ends_nobody(issuer: Any, key_server: Any) -> None:
    async with (
        gateway(jwt=block(issuer, jwks_url=key_server.url), anonymous={"roles": ["reader"]}) as (
            running,
            news,
        ),
        connect(running, **bearer(issuer.token())) as ada,
        connect(running) as anonymous,
    ):
        for client in (ada, anonymous):
            await client.subscribe("news")
        assert await running.reloader.reload()
        await news["news"].publish([b"x"])
        for client in (ada, anonymous):
            assert (await client.message())["data"]["value"] == "x"
