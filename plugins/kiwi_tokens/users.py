"""Users with passwords, and the tokens that their passwords yield.

A token of a session is `kiwi-session.CLAIMS.MAC`: who it is for, by which hash, until when, in base64url,
and an HMAC-SHA256 of that under a key that all gateways may share. It is the standard library's `hmac` and no
JWT: there is one algorithm, so none that a token could choose, and pyjwt is not needed. Nothing is kept.
What a token stands for is looked up each time: a user who is gone, or has another hash, has no tokens left.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from kiwi_gw.api import Refusal, RefusalCode
from kiwi_tokens.password_hashes import PasswordChecks, password_bytes
from kiwi_tokens.settings import UserSettings

PREFIX = "kiwi-session."
"""What a token of a session begins with."""

_WRONG = Refusal("invalid_credentials", "the user or the password is wrong")
_BUSY = Refusal(RefusalCode.BUSY, "too many passwords are being checked; try again", retry=True)


@dataclass(frozen=True, slots=True)
class StoredUser:
    """Hold a user. `fingerprint` is of name, hash and key, and says nothing of the password."""

    name: str
    roles: frozenset[str]
    fingerprint: str
    encoded: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Session:
    """Hold what a token says. expires_at: seconds since the epoch."""

    fingerprint: str
    expires_at: int


class Users:
    """key: of the sessions; whoever has it can be anyone. checks: where passwords wait for their turn."""

    def __init__(self, users: Iterable[UserSettings], key: bytes, checks: PasswordChecks) -> None:
        self._key = key
        self._checks = checks
        self._entries = tuple(self._entry(user) for user in users)
        self._by_name = {entry.name: entry for entry in self._entries}
        self._by_fingerprint = {entry.fingerprint: entry for entry in self._entries}

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, name: str, password: str) -> StoredUser | Refusal:
        """Return the user whose password it is. An unknown one takes as long as a known one, and gets the
        same words: the hash that is checked is then that of another, always of the same one."""
        data = password_bytes(password)
        if data is None:
            return _WRONG
        entry = self._by_name.get(name) or self._stand_in(name)
        right = self._checks.check(entry.encoded, data)
        if right is None:
            return _BUSY
        return entry if right and entry.name == name else _WRONG

    def by_fingerprint(self, fingerprint: str) -> StoredUser | None:
        return self._by_fingerprint.get(fingerprint)

    def issue(self, user: StoredUser, expires_at: int) -> str:
        """Make a token for this user: one line of letters, digits and `. _ -`."""
        claims = json.dumps({"user": user.name, "by": user.fingerprint, "until": expires_at})
        body = PREFIX + _base64url(claims.encode())
        return f"{body}.{self._mac(body)}"

    def read(self, token: str) -> Session | None:
        """Return what a token says that is ours; None: it is not."""
        body, _, mac = token.rpartition(".")
        if not body.startswith(PREFIX) or not hmac.compare_digest(self._mac(body).encode(), mac.encode()):
            return None
        text = body.removeprefix(PREFIX)
        claims = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return Session(claims["by"], claims["until"])

    def _entry(self, user: UserSettings) -> StoredUser:
        encoded = user.password_hash.get_secret_value()
        digest = self._digest(json.dumps([user.name, encoded])).hex()[:32]
        return StoredUser(user.name, frozenset(user.roles), f"user:{digest}", encoded.encode())

    def _stand_in(self, name: str) -> StoredUser:
        chosen = int.from_bytes(self._digest(json.dumps(name))[:8])
        return self._entries[chosen % len(self._entries)]

    def _mac(self, body: str) -> str:
        return _base64url(self._digest(body))

    def _digest(self, text: str) -> bytes:
        return hmac.digest(self._key, text.encode(), hashlib.sha256)


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
