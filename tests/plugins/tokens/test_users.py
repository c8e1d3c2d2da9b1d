"""Users with passwords, and the tokens that their passwords yield."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import argon2
import pytest

from kiwi_gw.api import (
    Identity,
    Password,
    PluginContext,
    Refusal,
    Token,
)
from kiwi_gw.codes import NOTHING_SHOWN, UNDECIDED
from kiwi_gw.testing import open_gateway
from kiwi_tokens import TokensPlugin, TokensSettings, password_hashes
from kiwi_tokens.password_hashes import AT_ONCE, MOST_PASSWORD_BYTES, WAITING, PasswordChecks, matches
from tests.edge.admin import ask as ask_admin
from tests.edge.wire import Over, connect
from tests.plugins.line_protocol import kiwi_lines
from tests.plugins.line_protocol.test_line_protocol import hear, say
from tests.plugins.line_protocol.test_logging_in import ask, post
from tests.stalls import within

HASHER = argon2.PasswordHasher(1, 8, 1)
HASHES = {word: HASHER.hash(word, salt=b"of 16 bytes here") for word in ("right", "other", "b")}
KEY = "k" * 32
ROLES = {"reader": {"sources": ["*"]}, "writer": {"sources": ["*"], "actions": ["publish"]}}
Change = Callable[[dict[str, Any]], object]


def section(key: str | None = KEY, **changes: Any) -> dict[str, Any]:
    users = [
        {"name": "ann", "password_hash": HASHES["right"], "roles": ["reader"]},
        {"name": "bob", "password_hash": HASHES["b"], "roles": ["reader", "writer"]},
    ]
    return {"roles": ROLES, "users": users, "sessions": {"key": key}} | changes


def issued(gate: Any) -> tuple[Identity, str]:
    answer = gate.ask(Password("ann", "right"))
    assert isinstance(answer, Identity), answer
    assert answer.issued_token is not None
    return answer, answer.issued_token


def again(gate: Any, identity: Identity) -> Identity | Refusal:
    (answer,) = gate.manager.hook.reauthenticate(identity=identity)
    assert isinstance(answer, Identity | Refusal)
    return answer


# --- passwords ---------------------------------------------------------------------------------


def test_a_right_password_yields_a_token_of_one_header_safe_line_which_is_the_same_client(gate: Any) -> None:
    gate.configure(**section())
    identity, token = issued(gate)
    assert (identity.name, identity.roles) == ("ann", frozenset({"reader"}))
    assert identity.expires_at == int(gate.now) + 12 * 3_600
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")
    for answer in (gate.ask(Token(token)), gate.bearer(token)):
        assert answer == identity
        assert answer.issued_token is None
    assert "right" not in repr(identity)
    assert token not in repr(identity)


WRONG = [
    Password("ann", "wrong"),
    Password("ann", "b"),
    Password("nobody", "right"),
    Password("nobody", "b"),
    Password("ann\0", "right"),
    Password("ann", "right\0"),
    Password("ann", ""),
    Password("", "right"),
    Password("ann", "\ud800"),
    Password("\ud800", "right"),
    Password("ann", "x" * 1_048_576),
    Password("x" * 1_048_576, "right"),
    Password("ann", "é" * MOST_PASSWORD_BYTES),
]


@pytest.mark.parametrize("credential", WRONG, ids=lambda credential: repr(credential)[:40])
def test_all_that_is_wrong_gets_the_same_words(gate: Any, credential: Password) -> None:
    gate.configure(**section())
    answer = gate.ask(credential)
    assert answer == Refusal("invalid_credentials", "the user or the password is wrong")
    assert answer.code not in NOTHING_SHOWN | UNDECIDED


def test_an_unknown_user_costs_a_hash_like_a_known_one(gate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.configure(**section())
    checked: list[bytes] = []

    def spy(encoded: bytes, password: bytes) -> bool:
        checked.append(encoded)
        return matches(encoded, password)

    monkeypatch.setattr(password_hashes, "matches", spy)
    for name in ("ann", "bob", *map(str, range(40))):
        gate.ask(Password(name, "wrong"))
    assert len(checked) == 42
    assert set(checked[2:]) == {HASHES["right"].encode(), HASHES["b"].encode()}, "as long as any of them"
    gate.ask(Password("7", "wrong"))
    assert checked[-1] == checked[9], "always as long"


def test_a_password_too_long_to_be_one_is_not_hashed(gate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.configure(**section())
    monkeypatch.setattr(password_hashes, "matches", None)
    for name in ("ann", "nobody"):
        assert gate.ask(Password(name, "x" * (MOST_PASSWORD_BYTES + 1))).code == "invalid_credentials"
        assert gate.ask(Password(name, "\udcff")).code == "invalid_credentials"


def test_the_longest_password_there_may_be(gate: Any) -> None:
    text = "é" * (MOST_PASSWORD_BYTES // 2)
    gate.configure(**section(users=[{"name": "ann", "password_hash": HASHER.hash(text)}]))
    assert gate.ask(Password("ann", text)).name == "ann"


def test_two_are_checked_at_a_time_sixteen_wait_and_more_are_sent_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go, inside, most = threading.Event(), threading.Semaphore(0), 0
    lock, there = threading.Lock(), 0

    def slow(encoded: bytes, password: bytes) -> bool:
        nonlocal most, there
        with lock:
            there += 1
            most = max(most, there)
        inside.release()
        assert go.wait(20)
        with lock:
            there -= 1
        return True

    monkeypatch.setattr(password_hashes, "matches", slow)
    checks = PasswordChecks()
    answers: list[bool | None] = []
    threads = [
        threading.Thread(target=lambda: answers.append(checks.check(b"", b"")))
        for _ in range(AT_ONCE + WAITING)
    ]
    for thread in threads:
        thread.start()
    for _ in range(AT_ONCE):
        assert inside.acquire(timeout=20)
    deadline = time.monotonic() + 20
    while checks._there < AT_ONCE + WAITING:
        assert time.monotonic() < deadline
    assert checks.check(b"", b"") is None
    go.set()
    for thread in threads:
        thread.join()
    assert answers == [True] * (AT_ONCE + WAITING)
    assert most == AT_ONCE
    assert checks.check(b"", b"") is True, "there is room again"


def test_who_is_sent_away_may_come_again(gate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.configure(**section())
    monkeypatch.setattr(PasswordChecks, "check", lambda *_: None)
    answer = gate.ask(Password("ann", "right"))
    assert (answer.code, answer.retry) == ("busy", True)
    assert answer.code in UNDECIDED, "it counts as no failure"


# --- tokens ------------------------------------------------------------------------------------


def test_a_token_ends_with_its_session(gate: Any) -> None:
    gate.configure(**section(sessions={"key": KEY, "ttl": "5m"}))
    _, token = issued(gate)
    gate.now += 299
    assert gate.ask(Token(token)).name == "ann"
    gate.now += 1
    assert (gate.ask(Token(token)).code, gate.ask(Token(token)).retry) == ("token_expired", True)


def test_no_other_token_is_one(gate: Any) -> None:
    gate.configure(**section())
    _, token = issued(gate)
    prefix, claims, mac = token.split(".")[0] + ".", "", token.rpartition(".")[2]
    said = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    forged = base64.urlsafe_b64encode(json.dumps(said | {"until": 2**40}).encode()).decode().rstrip("=")
    for text in (
        f"{prefix}{forged}.{mac}",
        f"{prefix}{claims}.{mac}",
        token[:-1] + ("A" if token[-1] != "A" else "B"),
        token + "=",
        token[:-1],
        token + "A",
        token.rpartition(".")[0],
        "kiwi-session.",
        "kiwi-session..",
        "kiwi-session." + "A" * 8_000,
        token.replace("kiwi-session.", "kiwi-session.."),
    ):
        assert gate.ask(Token(text)).code == "invalid_token", text


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda tokens: tokens["users"].pop(0), "revoked"),
        (lambda tokens: tokens["users"][0].update(password_hash=HASHES["other"]), "revoked"),
        (lambda tokens: tokens["users"][0].update(name="anna"), "revoked"),
        (lambda tokens: tokens["sessions"].update(key="another key of 32 bytes or more!"), "invalid_token"),
        (lambda tokens: tokens["users"][0].update(roles=["writer"]), None),
    ],
)
def test_a_reload_acts_on_tokens_and_on_who_is_in(gate: Any, change: Change, code: str | None) -> None:
    gate.configure(**section())
    identity, token = issued(gate)
    gate.configure(**section())
    assert again(gate, identity) == identity == gate.ask(Token(token)), "nothing has changed"
    changed = section()
    change(changed)
    gate.configure(**changed)
    new, now = gate.ask(Token(token)), again(gate, identity)
    if code is not None:
        assert new.code == code
        assert isinstance(now, Refusal)
        assert now.code == "revoked"
    else:
        assert new.roles == {"writer"}
        assert (now, new.expires_at) == (new, identity.expires_at)


def test_gateways_with_one_key_take_each_others_tokens_and_no_others() -> None:
    def plugin(key: str | None) -> TokensPlugin:
        made = TokensPlugin()
        made.configure(PluginContext({"tokens": TokensSettings.model_validate(section(key))}))
        return made

    one, other, different, alone = plugin(KEY), plugin(KEY), plugin("x" * 32), plugin(None)
    answer = one.authenticate(Password("ann", "right"))
    assert isinstance(answer, Identity)
    assert answer.issued_token is not None
    assert other.authenticate(Token(answer.issued_token)) == answer
    for stranger in (different, alone):
        assert isinstance(stranger.authenticate(Token(answer.issued_token)), Refusal)
    own = alone.authenticate(Password("ann", "right"))
    assert isinstance(own, Identity)
    assert own.issued_token is not None
    alone.configure(PluginContext({"tokens": TokensSettings.model_validate(section(None))}))
    assert alone.authenticate(Token(own.issued_token)) == own, "a reload ends no session"


def test_a_token_of_a_user_is_no_jwt_and_a_static_one_may_look_like_it(gate: Any) -> None:
    static = [{"name": "ci", "token": "kiwi-session.0123456789", "roles": []}]
    gate.configure(**section(static=static))
    assert gate.ask(Token("kiwi-session.0123456789")).name == "ci"
    assert gate.ask(Token("kiwi-session.0123456788")).code == "invalid_token"


# --- on a gateway that runs --------------------------------------------------------------------


def config(**changes: Any) -> str:
    sources = [{"type": "counter", "id": "ticks", "min": 0, "interval_ms": 60_000}]
    return json.dumps({"plugins": ["lines"], "sources": sources, "tokens": section(**changes)})


async def test_a_login_end_to_end_and_what_shows_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    roles = {"reader": {"sources": ["*"], "actions": ["subscribe", "admin"]}, "writer": {}}
    text = config(roles=roles)
    async with open_gateway(text, plugins={"lines": kiwi_lines}, admin="127.0.0.1:0") as gateway:
        status, _, body = await post(gateway, {"user": "ann", "password": "right"})
        assert status == 200
        token = body.decode()
        assert (await ask(gateway, "GET", "/lines/auth", [("X-Lines-Token", token)]))[0] == 200
        assert (await post(gateway, {"user": "ann", "password": "wrong-pass"}))[::2] == (401, b"unauthorized")
        async with (
            connect(gateway, "/lines/x/ws") as by_password,
            connect(gateway, "/lines/x/ws") as by_message,
            connect(gateway, "/lines/x/ws", headers=[("Authorization", f"Bearer {token}")]) as by_head,
        ):
            await say(by_password, "LOGIN ann right", "SUB ticks")
            assert (await hear(by_password)).startswith("+LOGIN ann@x kiwi-session.")
            await say(by_message, f"TOKEN {token}", "SUB ticks")
            assert await hear(by_message) == "+LOGIN ann@x"
            await say(by_head, "SUB ticks")
            for client in (by_password, by_message, by_head):
                assert await hear(client) == "+SUB ticks"
            shown = repr([each.identity for each in gateway.gateway.connections])
            for path in ("/connections", "/metrics", "/sources"):
                headers = {"Authorization": f"Bearer {token}"}
                status, _, page = await ask_admin(gateway.admin_address, path, headers=headers)
                assert status == 200
                shown += page.decode()
            assert shown.count("ann") > 3
    out, err = capfd.readouterr()
    for secret in (token, token.split(".")[1], token.split(".")[2], "wrong-pass"):
        assert secret not in shown + out + err


@pytest.mark.parametrize(
    ("change", "heard"),
    [
        (lambda tokens: tokens["users"].pop(0), None),
        (lambda tokens: tokens["users"][0].update(password_hash=HASHES["other"]), None),
        (lambda tokens: tokens["users"][0].update(roles=["writer"]), "!END ticks unauthorized"),
    ],
)
async def test_a_reload_acts_within_a_second(change: Change, heard: str | None) -> None:
    async with (
        open_gateway(config(), plugins={"lines": kiwi_lines}) as gateway,
        connect(gateway, "/lines/x/ws") as client,
    ):
        await say(client, "LOGIN ann right", "SUB ticks")
        assert (await hear(client)).startswith("+LOGIN ann")
        assert await hear(client) == "+SUB ticks"
        changed = json.loads(config())
        change(changed["tokens"])
        gateway.file.write_text(json.dumps(changed))
        assert await gateway.reloader.reload()
        with within(1):
            if heard is not None:
                assert await hear(client) == heard
            else:
                with pytest.raises(Over) as over:
                    await hear(client)
                assert (over.value.code, over.value.reason) == (4503, "revoked")
