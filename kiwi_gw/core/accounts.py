"""What a client may use of the processor's time: an account that is overdrawn first and waits then."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

SAVED_SECONDS: Final = 1.0
"""What flows in within this time may be used at once."""

COMPILING_SAVED_SECONDS: Final = 2.0
"""The same, for reading queries: a client asks for all that it wants when it comes."""

MOST_KEPT: Final = 4_096
"""Accounts of those who are gone, of each kind."""


class Account:
    """So many seconds a second flow in, up to what flows in within some seconds.

    Work is done as long as something is left, whatever it takes in the end; the wait is in proportion to what
    was used last, or what is saved at most: who is charged again while it waits does not wait for all of
    that together. rate: from 0 to 1; 0 is no limit. used: seconds in all.
    """

    __slots__ = ("_at", "_left", "_most", "_rate", "used")

    def __init__(self, rate: float, saved_seconds: float = SAVED_SECONDS) -> None:
        self._rate = rate or math.inf
        self._most = self._left = rate * saved_seconds or math.inf
        self.used = 0.0
        self._at = -math.inf

    def charge(self, seconds: float, now: float) -> None:
        """Take off what was used."""
        self.used += seconds
        left = self.left(now)
        self._left = max(left - seconds, min(left, -max(seconds, self._most)))
        self._at = max(self._at, now)

    def left(self, now: float) -> float:
        """Return the seconds that may be used; less than 0 if it is overdrawn."""
        if now > self._at and self._left < self._most:
            self._left = min(self._most, self._left + (now - self._at) * self._rate)
            self._at = now
        return self._left

    def full(self, now: float) -> bool:
        """Say whether it is as good as a new one."""
        return self.left(now) >= self._most

    def wait_seconds(self, now: float) -> float:
        """Return the seconds until something may be used again, 0 if it may now."""
        left = self.left(now)
        return 0.0 if left > 0 else -left / self._rate


class ClientAccount:
    """What one client may use; `light_user` as long as it uses less than a tenth of that.

    Those are not made to wait for others, who have used up what all may use together (see `SharedAccount`).
    """

    __slots__ = ("_account", "_tenth")

    def __init__(self, rate: float, saved_seconds: float = SAVED_SECONDS) -> None:
        self._account = Account(rate, saved_seconds)
        self._tenth = Account(rate / 10, saved_seconds * 5)

    def charge(self, seconds: float, now: float) -> None:
        """Take off what was used."""
        self._account.charge(seconds, now)
        self._tenth.charge(seconds, now)

    def wait_seconds(self, now: float) -> float:
        """Return the seconds until something may be used again, 0 if it may now."""
        return self._account.wait_seconds(now)

    def full(self, now: float) -> bool:
        """Say whether it is as good as a new one."""
        return self._account.full(now) and self._tenth.full(now)

    def light_user(self, now: float) -> bool:
        """Say whether it has used little lately."""
        return self._tenth.wait_seconds(now) == 0

    @property
    def used(self) -> float:
        """Seconds in all."""
        return self._account.used


class SharedAccount:
    """What all may use together, two fifths of it for those who use little. refused: how often a client was,
    kept up by who asks."""

    __slots__ = ("_light_user", "_open", "refused")

    def __init__(self, rate: float, saved_seconds: float = SAVED_SECONDS) -> None:
        self._open = Account(rate * 0.6, saved_seconds)
        self._light_user = Account(rate * 0.4, saved_seconds)
        self.refused = 0

    def charge(self, seconds: float, now: float, *, light_user: bool = False) -> None:
        """Take off what was used. light_user: by one that used little before."""
        (self._light_user if light_user and self._open.left(now) <= 0 else self._open).charge(seconds, now)

    def wait_seconds(self, now: float, *, light_user: bool = False) -> float:
        """Return the seconds until something may be used again, 0 if it may now.

        light_user: by one that uses little.
        """
        wait_seconds = self._open.wait_seconds(now)
        return min(wait_seconds, self._light_user.wait_seconds(now)) if light_user else wait_seconds

    @property
    def used(self) -> float:
        """Seconds in all."""
        return self._open.used + self._light_user.used


@dataclass(frozen=True, slots=True)
class Payer:
    """Who is charged for a subscription: the account of its connection, whose that is, and which."""

    account: ClientAccount
    identity: Hashable
    connection: Hashable = field(default_factory=object)


_A = TypeVar("_A", Account, ClientAccount)


class AccountCache(Generic[_A]):
    """Accounts of those who are gone, until they are full again: who comes back has what it left behind.

    At most so many; those go first whose owner left last for the longest time.
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._of: OrderedDict[Hashable, list[_A]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def take(self, who: Hashable, now: float) -> _A | None:
        """Take out one that is not full, the newest; None if there is none."""
        accounts = self._of.get(who, [])
        while accounts:
            account = accounts.pop()
            self._size -= 1
            if not accounts:
                del self._of[who]
            if not account.full(now):
                return account
        return None

    def keep(self, who: Hashable, account: _A, now: float) -> None:
        """Put in the account of one who is gone. A full one is not kept."""
        if not account.full(now):
            self._of.setdefault(who, []).append(account)
            self._of.move_to_end(who)
            self._size += 1
        while self._size > self._most:
            oldest = next(iter(self._of))
            del self._of[oldest][0]
            self._size -= 1
            if not self._of[oldest]:
                del self._of[oldest]
