"""The identity of a client, and the credentials that it shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Identity:
    """Say who a client is. `expires_at`: seconds since the epoch, wall clock; None: never.

    anonymous: it has shown no credentials, so its address tells it from others; the name says nothing.
    authenticator: the plugin that let it in, empty if none was asked. The gateway writes it, over whatever a
    plugin says.
    issued_token: what this client may show from now on in place of what it has shown. Only the protocol that
    asked sees it, in the answer to that question: nobody keeps it.
    """

    name: str
    roles: frozenset[str] = frozenset()
    claims: Mapping[str, object] = field(default_factory=dict, repr=False)
    expires_at: float | None = None
    anonymous: bool = False
    authenticator: str | None = field(default=None, compare=False, repr=False)
    issued_token: str | None = field(default=None, compare=False, repr=False)


ANONYMOUS = Identity("anonymous", anonymous=True)


@dataclass(frozen=True, slots=True)
class HeadCredential:
    """Hold an HTTP request head as a credential. Header names are lower case; `query` still has tokens."""

    method: str
    path: str
    query: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    remote: str = ""
    secure: bool = False

    def header(self, name: str) -> str | None:
        """Return the first header of that (lower-case) name."""
        return next((value for key, value in self.headers if key == name), None)


@dataclass(frozen=True, slots=True)
class Password:
    """Hold a user and a password, as a login message carries them.

    remote: where they come from, as `HeadCredential` has it. The gateway writes it where it is empty.
    """

    user: str
    password: str = field(repr=False)
    remote: str = ""


@dataclass(frozen=True, slots=True)
class Token:
    """Hold a bearer token, as a message carries it; empty where it has none."""

    text: str = field(repr=False)


Credential = HeadCredential | Password | Token
