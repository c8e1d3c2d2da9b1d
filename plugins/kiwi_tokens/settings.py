"""What the `tokens:` section may say. Secrets are `SecretStr`: no `repr` and no message shows them."""

from __future__ import annotations

import difflib
import importlib
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AwareDatetime,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from kiwi_gw.api import ANONYMOUS, Action, Milliseconds, Section, is_loopback
from kiwi_tokens.password_hashes import what_is_wrong

_HS_KEY_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}  # RFC 7518, 3.2
AsymmetricAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]
Algorithm = Literal[AsymmetricAlgorithm, "HS256", "HS384", "HS512"]

_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]+")
_PROTOCOL_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, token
MAX_LIFETIME_SECONDS = 86_400
"""Of a token, if the configuration does not say otherwise."""

SESSION_SECONDS = 43_200
"""Of a session, if the configuration does not say otherwise."""

EVERYTHING = "*"
"""The pattern that stands for all sources, and for the gateway as a whole."""

_SHORTEST_TOKEN = 16
_LONGEST_TOKEN = 4096
_KEY_BYTES = 32

Text = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class _SecretSection(Section):
    """Keep validation errors from quoting what they were given: it may be a secret."""

    model_config = ConfigDict(hide_input_in_errors=True)


class RoleSettings(_SecretSection):
    """What a role may do: `actions` on every source whose id matches one of `sources` (shell patterns).

    With the action `admin`, `sources: ["*"]` opens all of the admin address; any other pattern, whatever it
    matches, what concerns these sources.
    """

    sources: tuple[Text, ...] = ()
    """Shell patterns of ids. Only the pattern `*`, as it stands, also means the gateway as a whole."""
    actions: tuple[Action, ...] = (Action.SUBSCRIBE, Action.REPLAY)
    """`replay` is to begin in the past (any `from` but `latest`); who began later catches up without it.
    `admin` is to see (with the source `*`: everything, and to close connections) on the admin address.
    `publish` is to write records, to a source that allows it; `commit` to store how far one has come."""

    @field_validator("sources")
    @classmethod
    def _are_patterns_of_ids(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            if not pattern.strip():
                raise ValueError("a pattern without a character matches no source")
            if "**" in pattern:
                raise ValueError("'**' means nothing else than '*': ids of sources have no levels")
        return patterns


class StaticToken(_SecretSection):
    """One token that is written down in the configuration (or, as `token_file`, beside it).

    Only characters that fit a header, a URL and a WebSocket subprotocol alike, 16 to 4,096 of them.
    """

    name: Text
    """What this client is called in logs and on the admin address. No two tokens have one name."""
    token: SecretStr
    """The token: 16 to 4,096 letters, digits and `. _ ~ -`, so that it fits a header, a URL and a
    subprotocol."""
    roles: tuple[Text, ...] = ()
    """What it may do: names of `tokens.roles`."""
    expires_at: AwareDatetime | None = None
    """When it ends, with a time zone (`2026-12-31T00:00:00Z`); null: never. Its client is told a minute
    before."""

    @field_validator("token")
    @classmethod
    def _fits_everywhere(cls, value: SecretStr) -> SecretStr:
        text = value.get_secret_value()
        if not _SHORTEST_TOKEN <= len(text) <= _LONGEST_TOKEN:
            raise ValueError(
                f"a token has {_SHORTEST_TOKEN} to {_LONGEST_TOKEN} characters; make one with: "
                'python -c "import secrets; print(secrets.token_urlsafe(32))"'
            )
        if not _UNRESERVED.fullmatch(text):
            raise ValueError(
                "a token holds only letters, digits and . _ ~ - (it must fit a header, a URL and a "
                "WebSocket subprotocol)"
            )
        return value


class UserSettings(_SecretSection):
    """One user who logs in with a password, where a protocol has a login. Needs `kiwi-gw[password]`."""

    name: Text
    """What the user logs in as, and is called in logs and on the admin address. No user or token has the same
    name."""
    password_hash: SecretStr
    """The argon2id hash of the password, as `python -m kiwi_tokens hash` makes it: of at most 256 MiB, and
    memory times passes of at most 1 GiB."""
    roles: tuple[Text, ...] = ()
    """What the user may do: names of `tokens.roles`."""

    @model_validator(mode="before")
    @classmethod
    def _has_its_extra(cls, data: object) -> object:
        _need_extra("users with passwords need", "password", "argon2")
        return data

    @field_validator("password_hash")
    @classmethod
    def _can_be_checked(cls, value: SecretStr) -> SecretStr:
        if wrong := what_is_wrong(value.get_secret_value()):
            raise ValueError(wrong)
        return value


class SessionSettings(_SecretSection):
    """The tokens that the passwords of users yield. They are good on every connection."""

    key: SecretStr | None = None
    """What they are signed with, 32 bytes or more; gateways with the same one take each other's. Another key
    ends all sessions. null: a random one, until the gateway restarts; several workers need one. Who has it
    can be any user."""
    ttl: Annotated[Milliseconds, Field(ge=60_000, le=30 * 86_400_000)] = SESSION_SECONDS * 1000
    """How long a token is good, and a connection that has logged in by a password: 1 minute to 30 days."""

    @field_validator("key")
    @classmethod
    def _cannot_be_guessed(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value().encode()) < _KEY_BYTES:
            raise ValueError(
                f"a key has at least {_KEY_BYTES} bytes; make one with: "
                'python -c "import secrets; print(secrets.token_urlsafe(32))"'
            )
        return value


class JwtSettings(_SecretSection):
    """Tokens that an issuer has signed (RFC 7519). Exactly one of `jwks_url`, `jwks_file` and `secret`.

    What is told of a token that is not accepted never holds any of it.
    """

    issuer: Text
    """Who must have signed it: the token's `iss`, to the letter."""
    audience: Text | Annotated[tuple[Text, ...], Field(min_length=1)]
    """Whom it must be for: one of these must be in the token's `aud`."""
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)] | None = None
    """The only algorithms that are accepted; null: RS256, ES256 and EdDSA, or HS256 with `secret`. A key of a
    key set without an `alg` of its own is used with the first of these that fits it."""
    jwks_url: Text | None = None
    """Where the issuer's public keys are, as a JSON Web Key Set (`https://`; `http://` only on loopback)."""
    jwks_file: Path | None = None
    """A file with them instead; it is read again when it changes."""
    secret: SecretStr | None = None
    """A secret that issuer and gateway share, for HS256, HS384 or HS512, instead of public keys."""
    leeway_seconds: int = Field(default=30, ge=0, le=60)
    """How far the clocks of issuer and gateway may differ."""
    roles_claim: Text = "roles"
    """Which claim has the roles: its name, or a path of names with dots (`realm_access.roles`). It is a list
    of texts, or one text with blanks between the roles. Roles that `tokens.roles` does not have count for
    nothing."""
    name_claim: Text = "sub"
    """Which claim is the client's name in logs and on the admin address."""
    jwks_ttl_seconds: int = Field(default=300, ge=30, le=86_400)
    """How long fetched keys are used before they are fetched again. Who was let in by a key that is then no
    longer among them is let go (4402)."""
    max_lifetime_seconds: int = Field(default=MAX_LIFETIME_SECONDS, ge=60, le=366 * 86_400)
    """How long a token is good at most, whatever its `exp` says: from its `iat` on, or where it has none from
    when its client connected."""

    @property
    def allowed_algorithms(self) -> tuple[str, ...]:
        """Return the algorithms in order of preference."""
        if self.algorithms is not None:
            return self.algorithms
        return ("HS256",) if self.secret is not None else ("RS256", "ES256", "EdDSA")

    @property
    def keys_come_from(self) -> tuple[object, ...]:
        """Return what decides which keys there are."""
        return self.jwks_url, self.jwks_file, self.secret, self.jwks_ttl_seconds, self.allowed_algorithms

    @property
    def audiences(self) -> tuple[str, ...]:
        return (self.audience,) if isinstance(self.audience, str) else self.audience

    @model_validator(mode="before")
    @classmethod
    def _has_its_extra(cls, data: object) -> object:
        _need_extra("JWTs need", "jwt", "jwt", "cryptography")
        return data

    @field_validator("jwks_url")
    @classmethod
    def _is_safe_to_trust(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:
            raise ValueError("a key set is public: the address must hold no user or password")
        if parts.scheme == "https" and parts.hostname:
            return url
        if parts.scheme == "http" and is_loopback(parts.hostname):
            return url
        raise ValueError("must be an https:// address (http:// only on loopback)")

    @model_validator(mode="after")
    def _has_one_kind_of_key(self) -> Self:
        given = [name for name in ("jwks_url", "jwks_file", "secret") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"needs exactly one of jwks_url, jwks_file and secret (has {' and '.join(given) or 'none'})"
            )
        allowed = self.allowed_algorithms
        symmetric = [name for name in allowed if name in _HS_KEY_BYTES]
        if self.secret is None:
            if symmetric:
                raise ValueError(f"{symmetric[0]} needs a secret, not a key set of public keys")
            return self
        if len(allowed) != 1 or not symmetric:
            raise ValueError(
                f"a secret is for exactly one of {', '.join(_HS_KEY_BYTES)}, which algorithms must name"
            )
        secret = self.secret.get_secret_value()
        if len(secret.encode()) < _HS_KEY_BYTES[symmetric[0]]:
            raise ValueError(f"a secret for {symmetric[0]} has at least {_HS_KEY_BYTES[symmetric[0]]} bytes")
        if "-----BEGIN" in secret:
            raise ValueError("secret is a PEM file; give public keys as jwks_file or jwks_url")
        return self


class AnonymousSettings(_SecretSection):
    """What a client without credentials may do."""

    roles: tuple[Text, ...] = ()
    """What it may do: names of `tokens.roles`."""


class TokensSettings(_SecretSection):
    """The `tokens:` section. Whatever no role allows is refused."""

    roles: dict[Text, RoleSettings] = Field(default_factory=dict)
    """What may be done, by names that tokens refer to. A role with nothing in it (`name: {}`) grants
    nothing."""
    static: tuple[StaticToken, ...] = ()
    """Tokens that are written down here, or in files beside it."""
    users: tuple[UserSettings, ...] = ()
    """Users who log in with a password. Needs `kiwi-gw[password]`."""
    sessions: SessionSettings = SessionSettings()
    """The tokens that passwords of users yield."""
    jwt: JwtSettings | None = None
    """Tokens that an issuer has signed (RFC 7519), checked without asking it. Needs `kiwi-gw[jwt]`."""
    anonymous: AnonymousSettings | None = None
    """What clients without credentials may do; null: they are refused."""
    query_parameter: Text | None = "access_token"
    """The parameter of the address in which a browser may bring a token; null: none. Addresses end up in the
    logs of proxies: prefer the subprotocol, or a ticket."""
    subprotocol_prefix: Text | None = "kiwi-gw.bearer."
    """What stands before the token in a WebSocket subprotocol, where browsers can put one; null: none."""

    @field_validator("static")
    @classmethod
    def _are_distinct(cls, tokens: tuple[StaticToken, ...], info: ValidationInfo) -> tuple[StaticToken, ...]:
        if any(token.name == ANONYMOUS.name for token in tokens):
            raise ValueError(f"no token can be called {ANONYMOUS.name!r}: so are clients without one")
        for name, count in Counter(token.name for token in tokens).items():
            if count > 1:
                raise ValueError(f"{count} tokens are called {name!r}")
        owners: dict[str, str] = {}
        for token in tokens:
            owner = owners.setdefault(token.token.get_secret_value(), token.name)
            if owner != token.name:
                raise ValueError(f"{owner!r} and {token.name!r} have the same token")
            _check_roles(f"the token {token.name!r}", token.roles, info)
        return tokens

    @field_validator("users")
    @classmethod
    def _are_others(cls, users: tuple[UserSettings, ...], info: ValidationInfo) -> tuple[UserSettings, ...]:
        taken = {token.name: "a token" for token in info.data.get("static", ())}
        taken[ANONYMOUS.name] = "a client without credentials"
        for user in users:
            if user.name in taken:
                raise ValueError(f"{taken[user.name]} is called {user.name!r}, too")
            taken[user.name] = "another user"
            _check_roles(f"the user {user.name!r}", user.roles, info)
        return users

    @field_validator("anonymous")
    @classmethod
    def _has_known_roles(
        cls, value: AnonymousSettings | None, info: ValidationInfo
    ) -> AnonymousSettings | None:
        if value is not None:
            _check_roles("anonymous", value.roles, info)
        return value

    @field_validator("subprotocol_prefix")
    @classmethod
    def _is_a_protocol_name(cls, value: str | None) -> str | None:
        if value is not None and not _PROTOCOL_NAME.fullmatch(value):
            raise ValueError(
                "must be the beginning of a subprotocol's name: letters, digits, . _ ~ - and such"
            )
        return value

    @model_validator(mode="after")
    def _lets_somebody_in(self) -> Self:
        if not (self.static or self.users) and self.jwt is None and self.anonymous is None:
            raise ValueError(
                "nobody could connect: give static tokens, users, a jwt block or anonymous roles"
            )
        return self


def _need_extra(who: str, extra: str, *modules: str) -> None:
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError:
            raise ValueError(f"{who}: pip install 'kiwi-gw[{extra}]'") from None


def _check_roles(owner: str, roles: Iterable[str], info: ValidationInfo) -> None:
    known = info.data.get("roles")
    if known is None:  # the roles themselves are wrong, which is reported already
        return
    for role in roles:
        if role not in known:
            near = difflib.get_close_matches(role, known, 1)
            hint = f", did you mean {near[0]!r}?" if near else " (a role that grants nothing: `name: {}`)"
            raise ValueError(f"{owner} has the role {role!r}, which is not in roles{hint}")
