"""Guessing passwords: how often, from where, for whom, and in how little memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kiwi_gw.api import Credential, Identity, Password, Refusal, RefusalCode, hookimpl
from kiwi_gw.runtime.login_guard import FAILURES, MAX_ENTRIES, LoginGuard
from tests.unit.runtime.fakes import Sources, config, running

WRONG = Refusal("invalid_credentials", "no")
HERE, THERE = "192.0.2.1:50000", "192.0.2.2:50000"


def tries(guard: LoginGuard, now: float, user: str = "ann", remote: str = HERE) -> bool:
    """Whether a wrong password was looked at."""
    credential = Password(user, "wrong", remote)
    refusal = guard.begin(credential, now)
    if refusal is not None:
        assert (refusal.code, refusal.retry) == (RefusalCode.TOO_MANY_FAILURES, True)
        return False
    guard.over(credential, WRONG, now)
    return True


def blocked(now: float = 0.0) -> LoginGuard:
    guard = LoginGuard()
    assert [tries(guard, now) for _ in range(FAILURES + 2)] == [True] * FAILURES + [False] * 2
    return guard


def test_the_sixth_within_a_minute_is_not_looked_at_and_the_pause_doubles_up_to_a_minute() -> None:
    guard, now = blocked(), 0.0
    for pause in (1, 2, 4, 8, 16, 32, 60, 60, 60):
        assert not tries(guard, now + pause - 0.01)
        now += pause
        assert tries(guard, now)


def test_a_slow_guesser_has_five_a_minute_and_no_pause() -> None:
    guard = LoginGuard()
    assert all(tries(guard, 15.0 * n) for n in range(100))


def test_another_address_and_another_user_are_not_concerned() -> None:
    guard = blocked()
    assert tries(guard, 0, remote=THERE)
    assert tries(guard, 0, user="bob")
    assert not tries(guard, 0, remote="192.0.2.1:50001"), "another connection is no other address"


@pytest.mark.parametrize(
    ("remote", "same"),
    [
        ("[2001:db8::1]:7", "[2001:db8::2]:9"),
        ("unix:/x:y", "unix:/x:y"),
        ("unix", "unix"),
        ("[::ffff:192.0.2.1]:1", HERE),
        ("", ""),
    ],
)
def test_what_is_one_address(remote: str, same: str) -> None:
    guard = LoginGuard()
    assert all(tries(guard, 0, remote=remote) for _ in range(FAILURES))
    assert not tries(guard, 0, remote=same)


def test_the_right_password_or_a_quiet_minute_make_it_forget() -> None:
    guard = blocked()
    ann = Password("ann", "right", HERE)
    assert guard.begin(ann, 1) is None
    guard.over(ann, Identity("ann"), 1)
    assert len(guard) == 0
    guard = blocked()
    assert [tries(guard, 61) for _ in range(6)] == [True] * 5 + [False]


def test_what_says_nothing_about_the_client_does_not_count() -> None:
    guard, ann = LoginGuard(), Password("ann", "wrong", HERE)
    for answer in (None, Refusal(RefusalCode.BUSY, "later"), Refusal(RefusalCode.AUTH_TIMEOUT, "late")) * 5:
        assert guard.begin(ann, 0) is None
        guard.over(ann, answer, 0)
    assert len(guard) == 0


def test_many_at_once_are_no_way_round() -> None:
    guard, ann = LoginGuard(), Password("ann", "wrong", HERE)
    admitted = [guard.begin(ann, 0) is None for _ in range(17)]
    assert admitted == [True] * FAILURES + [False] * (17 - FAILURES)
    for _ in range(FAILURES):
        guard.over(ann, WRONG, 0)
    assert not tries(guard, 0.99)
    assert [guard.begin(ann, 1) is None for _ in range(3)] == [True, False, False], (
        "one at a time from now on"
    )


def test_whatever_is_tried_little_is_kept_and_nobody_is_pushed_out_at_once() -> None:
    guard = blocked()
    for n in range(MAX_ENTRIES - 1):
        tries(guard, 0.5, user=str(n))
    assert not tries(guard, 0.5)
    for n in range(100_000):
        tries(guard, 0.5, user=f"{n}" * 50)
        assert len(guard) <= MAX_ENTRIES
    assert sys.getsizeof(next(iter(guard._kept))[1]) < 64, "however long a name is"


def test_what_is_refused_for_other_reasons_pushes_nobody_out() -> None:
    guard = blocked()
    for n in range(MAX_ENTRIES - 1):
        tries(guard, 0.5, user=str(n))
    for n in range(MAX_ENTRIES * 2):
        credential = Password(f"busy {n}", "", HERE)
        assert guard.begin(credential, 0.5) is None
        guard.over(credential, Refusal(RefusalCode.BUSY, "later"), 0.5)
    assert not tries(guard, 0.5)


def test_an_attempt_whose_entry_was_forgotten_meanwhile_changes_nothing() -> None:
    """Its password is looked at for so long that as many others have failed."""
    guard, ann = LoginGuard(), Password("ann", "right", HERE)
    assert guard.begin(ann, 0) is None
    for n in range(MAX_ENTRIES):
        tries(guard, 0.5, user=str(n))
    for answer in (Identity("ann"), WRONG, None):
        guard.over(ann, answer, 1)
        assert len(guard) == MAX_ENTRIES
    assert [tries(guard, 1) for _ in range(FAILURES + 1)] == [True] * FAILURES + [False]


@pytest.mark.parametrize("answer", [None, Refusal(RefusalCode.BUSY, "later")])
def test_what_says_nothing_about_the_client_takes_back_no_failure(answer: Refusal | None) -> None:
    guard, ann = LoginGuard(), Password("ann", "wrong", HERE)
    assert [tries(guard, 0) for _ in range(FAILURES - 1)] == [True] * (FAILURES - 1)
    for _ in range(3):
        assert guard.begin(ann, 0) is None
        guard.over(ann, answer, 0)
    assert [tries(guard, 0) for _ in range(2)] == [True, False]


class Known:
    """Knows ann by her password. looked_at: the passwords that it was shown."""

    def __init__(self) -> None:
        self.looked_at: list[str] = []

    @hookimpl
    def authenticate(self, credential: Credential) -> Identity | Refusal:
        assert isinstance(credential, Password)
        self.looked_at.append(credential.password)
        return Identity("ann") if credential.password == "right" else WRONG


async def test_a_gateway_shows_a_plugin_no_more_passwords_than_that(tmp_path: Path) -> None:
    known = Known()
    text = config("a", plugins=("fake", "known"))
    async with running(tmp_path, text, fake=Sources(), known=known) as bench:
        for number in range(FAILURES):
            answer = await bench.gateway.authenticate(Password("ann", f"wrong {number}", HERE))
            assert answer == WRONG
        answer = await bench.gateway.authenticate(Password("ann", "right", HERE))
        assert isinstance(answer, Refusal)
        assert (answer.code, answer.retry) == (RefusalCode.TOO_MANY_FAILURES, True)
        assert known.looked_at == [f"wrong {number}" for number in range(FAILURES)]
        answer = await bench.gateway.authenticate(Password("ann", "right", THERE))
        assert isinstance(answer, Identity)


@pytest.mark.parametrize("user", ["", "\0", "\ud800", "x" * 1_048_576])
def test_any_text_is_a_user(user: str) -> None:
    assert [tries(LoginGuard(), 0, user=user) for _ in range(1)] == [True]
