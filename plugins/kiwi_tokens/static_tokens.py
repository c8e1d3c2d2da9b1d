"""Tokens that are written down in the configuration."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field

from kiwi_tokens.settings import StaticToken


@dataclass(frozen=True, slots=True)
class StoredToken:
    """Hold a static token without the token. `expires_at`: seconds since the epoch.

    `fingerprint` tells this token from every other, over reloads too; the token cannot be found from it.
    """

    name: str
    roles: frozenset[str]
    expires_at: float | None
    fingerprint: str
    digest: bytes = field(repr=False)


class StaticTokens:
    """Look tokens up by their SHA-256, in a time that does not tell which one it is, or whether it is
    known."""

    def __init__(self, tokens: Iterable[StaticToken]) -> None:
        self._entries = tuple(_entry(token) for token in tokens)
        self._by_fingerprint = {entry.fingerprint: entry for entry in self._entries}

    def find(self, token: str) -> StoredToken | None:
        digest = hashlib.sha256(token.encode()).digest()
        found = None
        for entry in self._entries:
            if hmac.compare_digest(entry.digest, digest):
                found = entry  # no break: the time would tell the place in the list
        return found

    def by_fingerprint(self, fingerprint: str) -> StoredToken | None:
        return self._by_fingerprint.get(fingerprint)


def _entry(token: StaticToken) -> StoredToken:
    digest = hashlib.sha256(token.token.get_secret_value().encode()).digest()
    return StoredToken(
        name=token.name,
        roles=frozenset(token.roles),
        expires_at=None if token.expires_at is None else token.expires_at.timestamp(),
        fingerprint=f"static:{digest.hex()[:16]}",
        digest=digest,
    )
