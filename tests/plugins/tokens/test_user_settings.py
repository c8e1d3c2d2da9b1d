"""What the configuration may say of users and sessions, and making a hash."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from click import ClickException
from click.testing import CliRunner
from pydantic import ValidationError

from kiwi_gw.api import PluginContext, PluginError
from kiwi_tokens import TokensSettings
from kiwi_tokens.__main__ import hash_command, main
from kiwi_tokens.password_hashes import matches
from tests.plugins.tokens.test_users import HASHES, KEY, section

# --- the configuration -------------------------------------------------------------------------


def mistake(**changes: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        TokensSettings.model_validate(section(**changes))
    return str(caught.value)


def with_hash(text: str) -> list[dict[str, Any]]:
    return [{"name": "ann", "password_hash": text}]


GOOD = HASHES["right"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("argon2id", "argon2i", "must be an argon2id hash"),
        ("v=19", "v=16", "must be an argon2id hash"),
        (GOOD, "right", "must be an argon2id hash"),
        (GOOD, GOOD + "\n", "must be an argon2id hash"),
        (GOOD, GOOD[:-30], "must be an argon2id hash"),
        (GOOD, GOOD[:-1] + "B", "must be an argon2id hash"),
        ("m=8", "m=7", "has at least m=8"),
        ("m=8,t=1,p=1", "m=4000,t=1,p=200", "p=200 is more than 16 threads"),
        ("m=8", "m=262145", "m=262145 is more than 256 MiB"),
        ("m=8,t=1", "m=65536,t=17", "m=65536,t=17 would take more than a second"),
        ("t=1", "t=1000000", "would take more than a second"),
        ("t=1", "t=" + "9" * 5_000, "must be an argon2id hash"),
    ],
)
def test_a_hash_that_cannot_or_must_not_be_checked(old: str, new: str, words: str) -> None:
    text = GOOD.replace(old, new)
    assert text != GOOD
    said = mistake(users=with_hash(text))
    assert words in said
    assert text not in said


@pytest.mark.parametrize("parameters", [(3, 65_536, 1), (3, 65_536, 4), (4, 262_144, 2), (1, 8, 1)])
def test_hashes_as_they_are_made_elsewhere(parameters: tuple[int, int, int]) -> None:
    passes, memory, lanes = parameters
    text = HASHES["right"].replace("m=8,t=1,p=1", f"m={memory},t={passes},p={lanes}")
    TokensSettings.model_validate(section(users=with_hash(text)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sessions": {"key": "short"}}, "a key has at least 32 bytes"),
        ({"sessions": {"ttl": "59s"}}, "greater than or equal to 60000"),
        ({"sessions": {"ttl": "721h"}}, "less than or equal to"),
        ({"users": with_hash(GOOD) * 2}, "another user is called 'ann', too"),
        ({"users": [{"name": "anonymous", "password_hash": GOOD}]}, "a client without credentials is called"),
        ({"static": [{"name": "ann", "token": "0123456789abcdef"}]}, "a token is called 'ann', too"),
        ({"users": [{**with_hash(GOOD)[0], "roles": ["raeder"]}]}, "did you mean 'reader'?"),
    ],
)
def test_what_cannot_be(changes: dict[str, Any], words: str) -> None:
    assert words in mistake(**changes)


def test_what_users_need_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "argon2", None)
    assert "users with passwords need: pip install 'kiwi-gw[password]'" in mistake()
    TokensSettings.model_validate({"anonymous": {}})


async def test_several_workers_need_a_key(gate: Any) -> None:
    for key, workers, wrong in ((None, 2, True), (KEY, 2, False), (None, 1, False)):
        settings = TokensSettings.model_validate(section(key))
        context = PluginContext({"tokens": settings}, workers=workers)
        found = gate.manager.hook.check(context=context, sources=[])
        if not wrong:
            assert found == []
            gate.manager.hook.configure(context=context)
            continue
        (diagnostic,) = await found[0]()
        assert (diagnostic.level, diagnostic.where) == ("error", ("tokens",))
        with pytest.raises(
            PluginError, match=r"tokens\.sessions\.key: server\.workers is 2: they need one key"
        ):
            gate.manager.hook.configure(context=context)


def test_secrets_are_not_shown() -> None:
    shown = repr(TokensSettings.model_validate(section()))
    assert KEY not in shown
    assert GOOD not in shown


# --- making a hash -----------------------------------------------------------------------------


def test_a_hash_is_made_of_the_first_line() -> None:
    done = CliRunner().invoke(main, ["hash"], input="gr\u00fc\u00df dich\r\nmore\n")
    assert done.exit_code == 0
    text = done.stdout.rstrip("\n")
    TokensSettings.model_validate(section(users=with_hash(text)))
    assert matches(text.encode(), "gr\u00fc\u00df dich".encode())


@pytest.mark.parametrize(
    ("given", "words"),
    [(b"", "empty"), (b"\nx", "empty"), (b"x" * 1_025, "at most 1024 bytes"), (b"\xff\n", "not UTF-8")],
)
def test_what_is_no_password(given: bytes, words: str) -> None:
    done = CliRunner().invoke(main, ["hash"], input=given)
    assert done.exit_code == 1
    assert words in done.output


def test_a_password_is_never_an_argument() -> None:
    assert CliRunner().invoke(main, ["hash", "secret"], input="secret\n").exit_code == 2


def test_at_a_terminal_it_is_asked_for_twice_without_echo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def type_in(*answers: str) -> None:
        given = iter(answers)
        monkeypatch.setattr("getpass.getpass", lambda *_: next(given))
        assert hash_command.callback is not None
        hash_command.callback()

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    type_in("s3cret", "s3cret")
    assert matches(capsys.readouterr().out.strip().encode(), b"s3cret")
    with pytest.raises(ClickException, match="they differ"):
        type_in("s3cret", "other")
