"""JSON Web Key Sets (RFC 7517): which key checks which token. Needs the extra `jwt`."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

log = logging.getLogger("kiwi_tokens")

MAX_DOCUMENT = 1 << 20
"""Bytes of a key set. Real ones have a few thousand."""

VerifyingKey = jwt.PyJWK | bytes
"""A public key that is bound to one algorithm, or the secret of the one HS algorithm in use."""

KeyTable = Mapping[tuple[str | None, str], jwt.PyJWK]
"""(`kid`, algorithm) -> key. A key is found only under the one algorithm that it is bound to."""

_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA", "Ed448": "EdDSA"}


_DAMAGED = (jwt.PyJWTError, UnsupportedAlgorithm, ValueError, TypeError, AttributeError, OverflowError)
"""What PyJWT and cryptography raise for a value that is not a key, whatever its members hold."""


class KeysUnavailable(Exception):  # noqa: N818  (it says what is the case)
    """Report that it cannot be known now whether there is such a key. It may be known later."""


class KeySet(Protocol):
    def find(self, kid: str | None, algorithm: str) -> VerifyingKey | None:
        """Return the key for such a token, or None. May block for as long as a fetch may take.

        Raises KeysUnavailable.
        """

    def has(self, thumbprint: str) -> bool:
        """Return whether the key with this thumbprint is still good; also true where that is not known now.
        Answers at once."""

    def changed(self) -> bool:
        """Return whether other keys are good than when this was asked last. Answers at once; a file or an
        address is read again in a thread."""


def thumbprint(key: VerifyingKey) -> str:
    """Hash a key with the algorithm that it is bound to, equally in all workers. (To guess a secret no
    thumbprint is needed: any token will do.)"""
    if isinstance(key, bytes):
        material = b"secret " + key
    else:
        public = key.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        material = f"{key.algorithm_name} ".encode() + public
    return hashlib.sha256(material).hexdigest()


def thumbprints(table: KeyTable) -> frozenset[str]:
    """Return those of all its keys."""
    return frozenset(map(thumbprint, table.values()))


class SecretKey:
    """Hold one secret, shared with the issuer."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self._thumbprint = thumbprint(self._secret)

    def find(self, kid: str | None, algorithm: str) -> VerifyingKey | None:
        return self._secret

    def has(self, thumbprint: str) -> bool:
        return thumbprint == self._thumbprint

    def changed(self) -> bool:
        return False


def parse_key_set(document: bytes, algorithms: Sequence[str]) -> KeyTable:
    """Read the usable signature keys of a JWKS document.

    A key is left out, with a line in the log, if it cannot be used: private, symmetric, weak, damaged, for
    another use or for none of `algorithms`. No key may be left: so an issuer withdraws them all. Raises
    ValueError if the document is not a key set, in words that quote nothing of it.
    """
    if len(document) > MAX_DOCUMENT:
        raise ValueError("it is too large")
    try:
        data = json.loads(document)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    entries = data.get("keys") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        raise ValueError("it has no list of keys")  # noqa: TRY004  (a wrong document, not a wrong argument)
    table: dict[tuple[str | None, str], jwt.PyJWK] = {}
    for index, entry in enumerate(entries):
        try:
            kid, key = _key(entry, algorithms)
        except ValueError as reason:
            log.info("key %d of the key set is not used: %s", index, reason)
            continue
        table.setdefault((kid, key.algorithm_name), key)
    if not table:
        log.warning("the key set has no key that can be used: no JWT is accepted")
    return table


def find_key(table: KeyTable, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
    """Return the key of that name. A token may leave `kid` out if only one key fits (RFC 7515, 4.1.4)."""
    if kid is not None:
        return table.get((kid, algorithm))
    fitting = [key for (_, bound), key in table.items() if bound == algorithm]
    return fitting[0] if len(fitting) == 1 else None


def is_conclusive(table: KeyTable, kid: str | None) -> bool:
    """Return whether a newer key set could make no difference to a token that names this key. So it is if the
    key is there (the token has the wrong algorithm), or the token names none."""
    return kid is None or any(kid == known for known, _ in table)


def _key(entry: object, algorithms: Sequence[str]) -> tuple[str | None, jwt.PyJWK]:
    if not isinstance(entry, dict):
        raise ValueError("it is no object")  # noqa: TRY004  (as above)
    kid = entry.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise ValueError("its kid is no text")
    if "d" in entry:
        raise ValueError("it is a PRIVATE key, which everybody can read now: replace it")
    if entry.get("use") not in (None, "sig"):
        raise ValueError("it is not for signatures")
    operations = entry.get("key_ops")
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        raise ValueError("it is not for verifying")
    algorithm = _bound_algorithm(entry, algorithms)
    try:
        key = jwt.PyJWK(entry, algorithm)
        weakness = key.Algorithm.check_key_length(key.key)
    except _DAMAGED as error:
        # Not the message: PyJWT quotes the key in it.
        raise ValueError(f"it is damaged or not a key for {algorithm} ({type(error).__name__})") from None
    if weakness is not None:
        raise ValueError("it is too short")
    return kid, key


def _bound_algorithm(entry: Mapping[str, Any], algorithms: Sequence[str]) -> str:
    """Return the one algorithm that this key is used with, whatever a token says. ValueError if there is
    none."""
    kty, named = entry.get("kty"), entry.get("alg")
    fitting: list[str] = []
    if kty == "RSA":
        fitting = [name for name in algorithms if name[:2] in ("RS", "PS")]
    elif kty in ("EC", "OKP"):
        fitting = [name for name in algorithms if name == _CURVES.get(str(entry.get("crv")))]
    if named is not None:
        fitting = [name for name in fitting if name == named]
    if not fitting:
        raise ValueError("it is for no algorithm that is allowed")
    return fitting[0]
