"""JSON Web Tokens (RFC 7519), checked as RFC 8725 advises. Needs the extra `jwt`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jwt

from kiwi_gw.api import ANONYMOUS, Identity, Refusal, RefusalCode
from kiwi_tokens.credentials import invalid
from kiwi_tokens.jwks import KeySet, KeysUnavailable, SecretKey, VerifyingKey, thumbprint
from kiwi_tokens.key_sources import FileKeys, RemoteKeys
from kiwi_tokens.settings import JwtSettings

EXPIRED = Refusal(RefusalCode.TOKEN_EXPIRED, "the token has expired", retry=True)
WITHDRAWN = Refusal("key_withdrawn", "the key that signed the token is good no longer", retry=True)
TOO_OLD = Refusal(RefusalCode.TOKEN_EXPIRED, "the token is older than this gateway accepts", retry=True)
UNAVAILABLE = Refusal(RefusalCode.KEYS_UNAVAILABLE, "the token cannot be checked just now", retry=True)

_TYPES = (None, "jwt", "at+jwt", "application/at+jwt")
"""`typ` of tokens that are meant for access. Others of the same issuer (logout, events) are not."""
_LONGEST_NAME = 256

_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (jwt.InvalidSignatureError, "the token's signature is wrong"),
    (jwt.ImmatureSignatureError, "the token is not valid yet"),
    (jwt.InvalidAudienceError, "the token is for another audience"),
    (jwt.InvalidIssuerError, "the token is from another issuer"),
)
"""Fixed words for the client. A library's message may quote the token, so none is ever passed on."""


@dataclass(frozen=True, slots=True)
class SignedBy:
    """Hold what is kept of a token whose signature was good, beside its claims: by which key that was."""

    algorithm: str
    key: str


class JwtTokens:
    """Check the tokens of one issuer.

    before: the one of the configuration before this; where it had the same keys, they are shared.
    """

    def __init__(self, settings: JwtSettings, before: JwtTokens | None = None) -> None:
        self._algorithms = settings.allowed_algorithms
        self._issuer = settings.issuer
        self._audiences = settings.audiences
        self._leeway = settings.leeway_seconds
        self._max_lifetime = settings.max_lifetime_seconds
        self._roles_claim = settings.roles_claim
        self._name_claim = settings.name_claim
        self._origin = settings.keys_come_from
        same = before is not None and before._origin == self._origin
        self._keys: KeySet = before._keys if before is not None and same else _keys(settings)

    def check(self, token: str, now: float) -> tuple[Identity, SignedBy] | Refusal:
        """Return the client's identity, and what to `judge` it by later. now: seconds since the epoch.

        May block while keys are fetched; never raises for what is in the token.
        """
        try:
            algorithm, kid = self._header(token)
            key = self._keys.find(kid, algorithm)
            if key is None:
                return invalid("the token is signed with a key that is not known")
            claims = self._claims(token, key, algorithm)
        except jwt.ExpiredSignatureError:
            return EXPIRED
        except KeysUnavailable:
            return UNAVAILABLE
        except _Unacceptable as reason:
            return invalid(str(reason))
        except (jwt.PyJWTError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
            words = (text for kind, text in _WORDS if isinstance(error, kind))
            return invalid(next(words, "the token is not valid"))
        identity = self._identity(claims, now)
        return identity if isinstance(identity, Refusal) else (identity, SignedBy(algorithm, thumbprint(key)))

    def judge(self, identity: Identity, signed: SignedBy, now: float) -> Identity | Refusal:
        """Return the identity by the current rules and keys, at once; it never expires later than before."""
        if signed.algorithm not in self._algorithms or not self._keys.has(signed.key):
            return WITHDRAWN
        found = self._identity(identity.claims, now)
        if isinstance(found, Refusal):
            return found
        over = min(found.expires_at or now, identity.expires_at or now)
        return EXPIRED if over <= now else replace(found, expires_at=over)

    def keys_changed(self) -> bool:
        """Return whether every identity is to be judged again. Answers at once."""
        return self._keys.changed()

    def _header(self, token: str) -> tuple[str, str | None]:
        """Return (`alg`, `kid`) of a token that may be looked at further. The other ways to name a key in a
        header (`jku`, `jwk`, `x5u`, `x5c`) are the sender's and are not looked at."""
        if token.count(".") != 2:  # also: no JWE, which has five parts
            raise _Unacceptable("the token is not valid")
        header: Mapping[str, Any] = jwt.get_unverified_header(token)
        if "crit" in header or "b64" in header:  # RFC 7515, 4.1.11: none is understood here
            raise _Unacceptable("the token demands an extension that is not known")
        algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise _Unacceptable("the token's algorithm is not allowed")
        if (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
            raise _Unacceptable("the token is not one for access")
        return algorithm, kid

    def _claims(self, token: str, key: VerifyingKey, algorithm: str) -> dict[str, Any]:
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=self._audiences,
            issuer=self._issuer,
            leeway=self._leeway,
            options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
        )
        return claims

    def _identity(self, claims: Mapping[str, Any], now: float) -> Identity | Refusal:
        """Return the identity with these claims, if they are good here and now. `expires_at` is `exp`, or as
        long as a token may last, plus the leeway: until then the same token is accepted again."""
        if claims.get("iss") != self._issuer:
            return invalid("the token is from another issuer")
        audience = claims.get("aud")
        named = audience if isinstance(audience, list) else [audience]
        if not any(name in named for name in self._audiences):
            return invalid("the token is for another audience")
        times = [claims.get(name, now) for name in ("exp", "iat", "nbf")]
        if not all(map(_is_time, times)):
            return invalid("the token's exp, iat or nbf is not a time")
        expiry, issued, begins = map(float, times)
        if begins > now + self._leeway:
            return invalid("the token is not valid yet")
        over = min(expiry, min(issued, now) + self._max_lifetime) + self._leeway
        if over <= now:
            return EXPIRED if expiry + self._leeway <= now else TOO_OLD
        name = _claim(claims, self._name_claim)
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
            return invalid(f"the token's {self._name_claim} is not a short text")
        if name == ANONYMOUS.name:
            return invalid(f"the token's {self._name_claim} is the name of those who have none")
        return Identity(
            name=name, roles=_roles(_claim(claims, self._roles_claim)), claims=claims, expires_at=over
        )


class _Unacceptable(Exception):  # noqa: N818
    """Refuse the token; the message is for the client."""


def _is_time(value: object) -> bool:
    """Return whether a claim is a NumericDate (RFC 7519, 2). Python's JSON knows NaN and infinities, too."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def _keys(settings: JwtSettings) -> KeySet:
    if settings.secret is not None:
        return SecretKey(settings.secret.get_secret_value())
    if settings.jwks_file is not None:
        return FileKeys(settings.jwks_file, settings.allowed_algorithms)
    if settings.jwks_url is not None:
        return RemoteKeys(settings.jwks_url, settings.allowed_algorithms, settings.jwks_ttl_seconds)
    raise AssertionError("the settings have checked that one of them is given")


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """Return the claim of that name; if there is none, what the dotted path leads to; else None."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _roles(claim: object) -> frozenset[str]:
    if isinstance(claim, str):
        return frozenset(claim.split())
    if isinstance(claim, list):
        return frozenset(role for role in claim if isinstance(role, str))
    return frozenset()
