"""The attack matrix (ROBUSTNESS, S4; RFC 8725): every token here is refused, and nothing is raised."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kiwi_gw.api import Refusal, Token
from kiwi_tokens.plugin import CredentialOrigin
from tests.effort import examples

Forge = Callable[[Any], str]


def b64(data: bytes | object) -> str:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def unsigned(algorithm: object) -> Forge:
    return lambda issuer: f"{b64({'alg': algorithm, 'kid': 'rsa'})}.{b64(issuer.claims())}."


def hmac_with(secret: Callable[[Any], bytes], algorithm: str = "HS256", kid: str = "rsa") -> Forge:
    def forge(issuer: Any) -> str:
        body = f"{b64({'alg': algorithm, 'kid': kid, 'typ': 'JWT'})}.{b64(issuer.claims())}"
        return f"{body}.{b64(hmac.digest(secret(issuer), body.encode(), hashlib.sha256))}"

    return forge


def pem(issuer: Any) -> bytes:
    key = issuer.private("rsa").public_key()
    return bytes(
        key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def claims(**changes: object) -> Forge:
    return lambda issuer: issuer.token(**changes)


def header(kid: str = "rsa", **changes: object) -> Forge:
    """Good claims, a true signature by that key, and a header of the attacker's liking."""

    def forge(issuer: Any) -> str:
        algorithm = {"rsa": "RS256", "stranger": "RS256", "ec": "ES256", "ed": "EdDSA"}[kid]
        whole = {"alg": algorithm, "kid": kid, "typ": "JWT"} | changes
        return str(issuer.sign(kid, {k: v for k, v in whole.items() if v is not None}, issuer.claims()))

    return forge


def signed(kid: str, head: object) -> Forge:
    return lambda issuer: issuer.sign(kid, head, issuer.claims())


def claims_as_they_are(**changes: object) -> Forge:
    """Like `claims`, past the checks of the library that signs."""
    return lambda issuer: issuer.sign("rsa", {"alg": "RS256", "kid": "rsa"}, issuer.claims(**changes))


def payload(value: object) -> Forge:
    return lambda issuer: issuer.sign("rsa", {"alg": "RS256", "kid": "rsa"}, value)


def parts(change: Callable[[list[str]], list[str]], kid: str = "rsa") -> Forge:
    return lambda issuer: ".".join(change(issuer.token(kid).split(".")))


def with_own_key(issuer: Any) -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    names = {"kid": "rsa", "jwk": public, "jku": "https://evil.example/keys", "x5u": "https://evil.example/c"}
    return jwt.encode(issuer.claims(), key, "RS256", names)


def der_signature(issuer: Any) -> str:
    head, body, signature = issuer.token("ec").split(".")
    raw = jwt.utils.base64url_decode(signature)
    return f"{head}.{body}.{b64(jwt.utils.raw_to_der_signature(raw, issuer.private('ec').curve))}"


ATTACKS: dict[str, Forge] = {
    # no signature
    "alg none": unsigned("none"),
    "alg None": unsigned("None"),
    "alg NONE": unsigned("NONE"),
    "alg nOnE": unsigned("nOnE"),
    "alg empty": unsigned(""),
    "alg null": unsigned(None),
    "alg a list": unsigned(["RS256"]),
    "alg an object": unsigned({"RS256": 1}),
    "alg a number": unsigned(256),
    "alg missing": lambda issuer: f"{b64({'kid': 'rsa'})}.{b64(issuer.claims())}.",
    "alg RS256 without a signature": unsigned("RS256"),
    "signature stripped": parts(lambda p: [p[0], p[1], ""]),
    "signature cut": parts(lambda p: [p[0], p[1], p[2][:-8]]),
    "signature of another token": lambda issuer: ".".join(
        [*issuer.token(sub="eve").split(".")[:2], issuer.token().split(".")[2]]
    ),
    "signature all zero (ECDSA r = s = 0)": parts(lambda p: [p[0], p[1], b64(bytes(64))], "ec"),
    "signature all zero (EdDSA)": parts(lambda p: [p[0], p[1], b64(bytes(64))], "ed"),
    "signature as DER": der_signature,
    # the wrong key, or the right one in the wrong way
    "HS256 with the public PEM": hmac_with(pem),
    "HS256 with the public JWK": hmac_with(lambda issuer: json.dumps(issuer.jwk("rsa")).encode()),
    "HS256 with the modulus": hmac_with(lambda issuer: issuer.jwk("rsa")["n"].encode()),
    "HS256 with nothing": hmac_with(lambda _: b""),
    "HS256 of an unknown kid": hmac_with(lambda _: b"", kid="../../../dev/null"),
    "HMAC called RS256": hmac_with(pem, "RS256"),
    "signed by a stranger under a known kid": signed("stranger", {"alg": "RS256", "kid": "rsa"}),
    "key in the header": with_own_key,
    "RS256 for an EC key": signed("rsa", {"alg": "RS256", "kid": "ec"}),
    "ES256 for an RSA key": signed("ec", {"alg": "ES256", "kid": "rsa"}),
    "EdDSA for an EC key": signed("ed", {"alg": "EdDSA", "kid": "ec"}),
    "PS256 with a key for RS256": lambda issuer: jwt.encode(
        issuer.claims(), issuer.private("rsa"), "PS256", {"kid": "rsa"}
    ),
    "RS512 with a key for RS256": lambda issuer: jwt.encode(
        issuer.claims(), issuer.private("rsa"), "RS512", {"kid": "rsa"}
    ),
    "kid of nobody": header("stranger"),
    "kid a path": signed("rsa", {"alg": "RS256", "kid": "../../etc/passwd"}),
    "kid SQL": signed("rsa", {"alg": "RS256", "kid": "x' UNION SELECT 'key' --"}),
    "kid a command": signed("rsa", {"alg": "RS256", "kid": "| cat /etc/passwd"}),
    "kid with NUL": signed("rsa", {"alg": "RS256", "kid": "rsa\0"}),
    "kid empty": signed("rsa", {"alg": "RS256", "kid": ""}),
    "kid a number": signed("rsa", {"alg": "RS256", "kid": 1}),
    "kid null": signed("rsa", {"alg": "RS256", "kid": None}),
    "kid a list": signed("rsa", {"alg": "RS256", "kid": ["rsa"]}),
    "kid an address": signed("rsa", {"alg": "RS256", "kid": "https://evil.example/k"}),
    "kid very long": signed("rsa", {"alg": "RS256", "kid": "k" * 4000}),
    # extensions
    "crit unknown": header(crit=["exp"], exp=1),
    "crit b64": header(crit=["b64"], b64=True),
    "crit empty": header(crit=[]),
    "crit no list": header(crit="exp"),
    "crit null": signed("rsa", {"alg": "RS256", "kid": "rsa", "crit": None}),
    "b64 false": lambda i: i.sign("rsa", {"alg": "RS256", "kid": "rsa", "b64": False, "crit": ["b64"]}, b""),
    "b64 true": header(b64=True),
    "typ of a logout token": header(typ="logout+jwt"),
    "typ of an event": header(typ="secevent+jwt"),
    "typ a list": header(typ=["JWT"]),
    # claims
    "aud of another": claims(aud="other"),
    "aud longer": claims(aud="kiwi2"),
    "aud of others": claims(aud=["other", "another"]),
    "aud missing": claims(aud=None),
    "aud empty": claims(aud=[]),
    "aud an object": claims(aud={"kiwi": 1}),
    "aud a mixed list": claims(aud=["kiwi", 1]),
    "iss of another": claims_as_they_are(iss="https://evil.example"),
    "iss longer": claims(iss="https://issuer.example/"),
    "iss missing": claims(iss=None),
    "iss a list": claims_as_they_are(iss=["https://issuer.example"]),
    "nbf to come": claims(nbf=int(time.time()) + 3600),
    "nbf a text": claims(nbf="soon"),
    "iat to come": claims(iat=int(time.time()) + 3600),
    "iat a text": claims(iat="now"),
    "exp missing": claims(exp=None),
    "exp a text": claims(exp=str(int(time.time()) + 86_400)),
    "exp a list": claims(exp=[int(time.time()) + 86_400]),
    "exp infinite": payload(b'{"iss":"https://issuer.example","aud":"kiwi","sub":"a","exp":Infinity}'),
    "exp 1e400": payload(b'{"iss":"https://issuer.example","aud":"kiwi","sub":"a","exp":1e400}'),
    "exp not a number": payload(b'{"iss":"https://issuer.example","aud":"kiwi","sub":"a","exp":NaN}'),
    "exp of 5,000 digits": payload(
        b'{"iss":"https://issuer.example","aud":"kiwi","sub":"a","exp":' + b"9" * 5000 + b"}"
    ),
    "exp of 400 digits": payload(
        b'{"iss":"https://issuer.example","aud":"kiwi","sub":"a","exp":' + b"9" * 400 + b"}"
    ),
    "sub missing": claims(sub=None),
    "sub empty": claims(sub=""),
    "sub a number": claims_as_they_are(sub=1),
    "sub too long": claims(sub="a" * 257),
    # shape
    "payload a list": payload([1]),
    "payload a text": payload("claims"),
    "payload not JSON": payload(b"{"),
    "payload not UTF-8": payload(b'{"sub":"\xff"}'),
    "payload deep": payload(b"[" * 2500),
    "header a list": signed("rsa", ["RS256"]),
    "header not JSON": signed("rsa", b"{"),
    "header deep": signed("rsa", b"[" * 2000),
    "header twice": signed("rsa", b'{"alg":"RS256","kid":"rsa","alg":"none"}'),
    "one part": lambda i: i.token().split(".")[0],
    "two parts": parts(lambda p: p[:2]),
    "four parts": parts(lambda p: [*p, p[2]]),
    "five parts (JWE)": parts(lambda p: [*p, p[1], p[2]]),
    "only dots": lambda _: "..",
    "spaces inside": parts(lambda p: [p[0], p[1][:5] + " " + p[1][5:], p[2]]),
    "standard base64": parts(lambda p: [p[0], p[1], p[2][:-2] + "+/"]),
    "padding": parts(lambda p: [p[0], p[1], p[2] + "="]),
    "very long": claims(extra="x" * 8000),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_the_attack_is_refused(jwt_gate: Any, issuer: Any, name: str) -> None:
    token = ATTACKS[name](issuer)
    for answer in (jwt_gate.bearer(token), jwt_gate.ask(Token(token))):
        assert isinstance(answer, Refusal)
        assert (answer.code, answer.retry) == ("invalid_token", False)


def test_the_matrix_would_pass_if_it_were_not_for_the_attack(jwt_gate: Any, issuer: Any) -> None:
    for kid in ("rsa", "ec", "ed"):
        assert jwt_gate.bearer(header(kid)(issuer)).name == "ada"
    assert jwt_gate.bearer(payload(issuer.claims())(issuer)).name == "ada"
    assert len(claims(extra="x" * 5000)(issuer)) < 8192
    assert jwt_gate.bearer(claims(extra="x" * 5000)(issuer)).name == "ada"


@settings(
    max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(place=st.integers(0, 10_000), letter=st.sampled_from("ABCxyz019-_.=~+/"))
def test_no_letter_of_a_token_can_be_changed(jwt_gate: Any, issuer: Any, place: int, letter: str) -> None:
    token = issuer.token("ed", iat=1_700_000_000, exp=4_000_000_000)
    place %= len(token)
    changed = token[:place] + letter + token[place + 1 :]
    answer = jwt_gate.bearer(changed)
    assert changed == token or isinstance(answer, Refusal)


@settings(
    max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    token=st.one_of(
        st.text(), st.from_regex(r"[A-Za-z0-9_-]{0,80}\.[A-Za-z0-9_-]{0,80}\.[A-Za-z0-9_-]{0,80}")
    )
)
def test_nothing_is_raised_whatever_is_sent(jwt_gate: Any, token: str) -> None:
    assert isinstance(jwt_gate.ask(Token(token)), Refusal)


@settings(
    max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    extra=st.dictionaries(
        st.sampled_from(["exp", "nbf", "iat", "aud", "iss", "sub", "roles", "jti", "kiwi_tokens"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
            ),
            max_leaves=5,
        ),
    )
)
def test_nothing_is_raised_whatever_the_issuer_signs(
    jwt_gate: Any, issuer: Any, extra: dict[str, Any]
) -> None:
    token = issuer.sign("ed", {"alg": "EdDSA", "kid": "ed"}, issuer.claims() | extra)
    answer = jwt_gate.bearer(token)
    if not isinstance(answer, Refusal):
        assert isinstance(answer.name, str)
        assert isinstance(answer.claims["kiwi_tokens"], CredentialOrigin)
