"""JSON Web Tokens (RFC 7519), checked as RFC 8725 advises. Needs the extra `jwt`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jwt

from kiwi_gw.api import Identity, Refusal
from kiwi_tokens.credentials import invalid
from kiwi_tokens.jwks import Keys, KeysUnavailable, SecretKey, VerifyingKey
from kiwi_tokens.key_sources import FileKeys, RemoteKeys
from kiwi_tokens.settings import JwtSettings

EXPIRED = Refusal("token_expired", "the token has expired", retry=True)
UNAVAILABLE = Refusal("keys_unavailable", "the token cannot be checked just now", retry=True)

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


class JwtTokens:
    """Checks the tokens of one issuer."""

    def __init__(self, settings: JwtSettings) -> None:
        self._algorithms = settings.allowed_algorithms
        self._issuer = settings.issuer
        self._audiences = settings.audiences
        self._leeway = settings.leeway_seconds
        self._roles_claim = settings.roles_claim
        self._name_claim = settings.name_claim
        self._keys = _keys(settings)

    @property
    def issuer(self) -> str:
        return self._issuer

    def check(self, token: str) -> Identity | Refusal:
        """Who it is. `expires_at` is `exp` plus the leeway: until then the same token is accepted again.

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
        return self._identity(claims)

    def _header(self, token: str) -> tuple[str, str | None]:
        """(`alg`, `kid`) of a token that may be looked at further. Every other way to name a key in a
        header (`jku`, `jwk`, `x5u`, `x5c`) is the sender's and is not looked at."""
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
        claims = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=self._audiences,
            issuer=self._issuer,
            leeway=self._leeway,
            options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
        )
        expiry = claims["exp"]
        if not isinstance(expiry, int | float) or isinstance(expiry, bool) or not math.isfinite(expiry):
            raise _Unacceptable("the token's exp is no number")
        return claims

    def _identity(self, claims: dict[str, Any]) -> Identity | Refusal:
        name = _claim(claims, self._name_claim)
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
            return invalid(f"the token's {self._name_claim} is not a short text")
        return Identity(
            name=name,
            roles=_roles(_claim(claims, self._roles_claim)),
            claims=claims,
            expires_at=float(claims["exp"]) + self._leeway,
        )


class _Unacceptable(Exception):  # noqa: N818
    """The token is refused; the message is for the client."""


def _keys(settings: JwtSettings) -> Keys:
    if settings.secret is not None:
        return SecretKey(settings.secret.get_secret_value())
    if settings.jwks_file is not None:
        return FileKeys(settings.jwks_file, settings.allowed_algorithms)
    if settings.jwks_url is not None:
        return RemoteKeys(settings.jwks_url, settings.allowed_algorithms, settings.jwks_ttl_seconds)
    raise AssertionError("the settings have checked that one of them is given")


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """The claim of that name; if there is none, what the dotted path leads to; else None."""
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
