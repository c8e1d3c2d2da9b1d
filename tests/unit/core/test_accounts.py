"""Accounts of the processor's time: what may be used, and how long a client waits that has used more."""

from __future__ import annotations

import pytest

from kiwi_gw.core.accounts import Account, AccountCache, ClientAccount, SharedAccount


def test_the_rest_is_in_proportion_to_what_was_used() -> None:
    for used in (0.06, 0.1, 1.6):
        account = Account(0.05)
        assert account.wait_seconds(0.0) == 0
        account.charge(used, 0.0)
        assert account.wait_seconds(0.0) == pytest.approx((used - 0.05) / 0.05)
        assert account.wait_seconds((used - 0.05) / 0.05 + 0.001) == 0


def test_no_more_is_saved_than_a_second_brings() -> None:
    account = Account(0.25)
    account.charge(0.1, 0.0)
    assert account.left(1_000.0) == pytest.approx(0.25)
    account.charge(0.2, 1_000.0)
    assert account.used == pytest.approx(0.3)


def test_no_share_is_no_bound() -> None:
    account = Account(0)
    account.charge(1e9, 0.0)
    assert account.wait_seconds(0.0) == 0


def test_time_that_goes_back_brings_nothing() -> None:
    account = Account(0.5)
    account.charge(1.5, 10.0)
    assert account.left(5.0) == account.left(10.0) == pytest.approx(-1.0)


def test_a_charge_with_an_old_date_brings_nothing_back() -> None:
    account = Account(0.1, 2.0)
    account.charge(5.0, 100.0)
    account.charge(0.001, 40.0)
    assert account.wait_seconds(100.0) == pytest.approx(48.0)


def test_who_is_charged_while_it_waits_does_not_wait_for_all_of_that_together() -> None:
    account = Account(0.05)
    for _ in range(10_000):
        account.charge(0.01, 0.0)
    assert account.wait_seconds(0.0) == pytest.approx(1.0)
    account.charge(0.2, 0.0)
    assert account.wait_seconds(0.0) == pytest.approx(4.0), "what one of them took"
    account.charge(0.001, 0.0)
    assert account.wait_seconds(0.0) == pytest.approx(4.0)


def test_a_part_of_what_all_may_use_is_for_those_who_use_little() -> None:
    pool, much, little = SharedAccount(0.25), ClientAccount(0.1), ClientAccount(0.1)
    much.charge(0.15, 0.0)
    pool.charge(0.16, 0.0)
    assert (much.light_user(0.0), little.light_user(0.0)) == (False, True)
    assert pool.wait_seconds(0.0) == pytest.approx(0.01 / 0.15)
    assert pool.wait_seconds(0.0, light_user=True) == 0
    pool.charge(0.11, 0.0, light_user=True)
    assert pool.wait_seconds(0.0, light_user=True) == pytest.approx(min(0.01 / 0.15, 0.01 / 0.1))
    assert pool.used == pytest.approx(0.27)
    assert much.used == 0.15


def test_what_is_for_those_who_use_little_is_not_used_by_others() -> None:
    pool = SharedAccount(0.25)
    for _ in range(100):
        pool.charge(0.1, 0.0)
    assert pool.wait_seconds(0.0) > 0
    assert pool.wait_seconds(0.0, light_user=True) == 0


def test_who_comes_back_has_the_account_it_left_behind_until_that_is_full() -> None:
    kept: AccountCache[ClientAccount] = AccountCache(3)
    used, unused = ClientAccount(0.1), ClientAccount(0.1)
    used.charge(0.5, 0.0)
    kept.keep("ann", unused, 0.0)
    assert len(kept) == 0, "as good as a new one"
    kept.keep("ann", used, 0.0)
    assert kept.take("bob", 1.0) is None
    assert kept.take("ann", 1.0) is used
    assert kept.take("ann", 1.0) is None, "two connections at once have two"
    kept.keep("ann", used, 1.0)
    assert kept.take("ann", 100.0) is None, "full by now"
    assert len(kept) == 0


def test_accounts_that_were_left_behind_are_bounded() -> None:
    kept: AccountCache[Account] = AccountCache(3)
    for who in "abcdaa":
        account = Account(0.1)
        account.charge(5.0, 0.0)
        kept.keep(who, account, 0.0)
    assert len(kept) == 3
    assert [kept.take(who, 0.0) is not None for who in "abcdaa"] == [True, False, False, True, True, False]
    assert (len(kept), len(kept._of)) == (0, 0)
