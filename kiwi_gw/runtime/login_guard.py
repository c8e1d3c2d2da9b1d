"""Keeps passwords from being guessed: who fails too often waits before the next one is looked at.

Counted is by address and user, so nobody locks a user out from elsewhere. The fifth failure within a minute
is followed by a pause of a second in which whatever comes is refused unseen; each further failure doubles the
pause, up to a minute. A minute without a failure behind the last pause, or the right password, and all is
forgotten. Attempts under way count as failures until they are over: many at once are no way round.

Whatever is tried, at most `MAX_ENTRIES` are kept beside those under way, and the oldest are forgotten first.
That gains nothing: to push an entry out takes as many failures, and as many checks of passwords take longer
than its minute.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

from kiwi_gw.codes import UNDECIDED, RefusalCode
from kiwi_gw.model import Identity, Password, Refusal
from kiwi_gw.runtime.client_identity import client_at

FAILURES = 5
WINDOW_SECONDS = 60.0
LONGEST_PAUSE = 60.0
MAX_ENTRIES = 16_384

Key = tuple[Hashable, bytes]


@dataclass(slots=True)
class _Attempts:
    """Of one user from one address. since: when the first failure of this minute was. until: the end of the
    pause. pauses: how many there were without a minute between. under_way: not counted as failed yet."""

    since: float
    failures: int = 0
    pauses: int = 0
    until: float = 0.0
    under_way: int = 0

    def forgotten(self, now: float) -> bool:
        """Whether what it has counted is too old to matter."""
        return now >= max(self.since, self.until) + WINDOW_SECONDS

    def wait(self, now: float) -> float:
        """Return the seconds until another attempt may begin; 0: now."""
        if now < self.until:
            return self.until - now
        most = 1 if self.pauses else FAILURES - self.failures
        return 0.0 if self.under_way < most else 1.0

    def failed(self, now: float) -> None:
        """Count a failure."""
        self.failures += 1
        if self.failures >= FAILURES:
            self.until = now + min(LONGEST_PAUSE, 2.0**self.pauses)
            self.pauses = min(self.pauses + 1, 10)  # enough for the longest pause


class LoginGuard:
    """See the top of this file. now: monotonic seconds, as `clock` gives them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, _Attempts] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    async def check(
        self,
        credential: Password,
        ask: Callable[[], Awaitable[Identity | Refusal]],
        clock: Callable[[], float],
    ) -> Identity | Refusal:
        """Ask whose password it is, unless too many were wrong."""
        if (refusal := self.begin(credential, clock())) is not None:
            return refusal
        answer: Identity | Refusal | None = None
        try:
            answer = await ask()
        finally:
            self.over(credential, answer, clock())
        return answer

    def begin(self, credential: Password, now: float) -> Refusal | None:
        """Refuse to look at this password for now; None: it may be checked, and `over` is to be called."""
        key = _key(credential)
        entry = self._kept.get(key)
        if entry is None or (entry.forgotten(now) and not entry.under_way):
            entry = self._kept[key] = _Attempts(now)
        self._kept.move_to_end(key)
        if seconds := entry.wait(now):
            words = f"too many failed logins; try again in {max(1, round(seconds))} s"
            return Refusal(RefusalCode.TOO_MANY_FAILURES, words, retry=True)
        entry.under_way += 1
        return None

    def over(self, credential: Password, answer: Identity | Refusal | None, now: float) -> None:
        """Take what came of it. None, or a refusal that says nothing about the client: nothing did."""
        key = _key(credential)
        entry = self._kept.get(key)
        if entry is None:
            return  # forgotten meanwhile
        entry.under_way = max(0, entry.under_way - 1)
        if isinstance(answer, Refusal) and answer.code not in UNDECIDED:
            entry.failed(now)
            while len(self._kept) > MAX_ENTRIES:  # only a failure takes an old one's place
                self._kept.popitem(last=False)
        elif isinstance(answer, Identity) or (not entry.failures and not entry.under_way):
            del self._kept[key]


def _key(credential: Password) -> Key:
    """Name the entry, in few bytes however long the name of the user is."""
    user = hashlib.sha256(credential.user.encode("utf-8", "surrogatepass"))
    return _address(credential.remote), user.digest()[:16]


def _address(remote: str) -> Hashable:
    host, _, port = remote.rpartition(":")
    try:
        return client_at((host.strip("[]"), port))
    except ValueError:  # a Unix socket, where nothing tells clients apart
        return remote
