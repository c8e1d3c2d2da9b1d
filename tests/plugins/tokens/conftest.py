"""An issuer with keys of every kind, a key server on loopback, and ways to ask the plugin."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from kiwi_gw.api import HeadCredential, Identity, PluginContext, Refusal
from kiwi_gw.plugin_manager import PluginManager
from kiwi_tokens import TokensPlugin, TokensSettings

ISSUER = "https://issuer.example"
AUDIENCE = "kiwi"

_RSA, _OTHER_RSA = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
_EC = ec.generate_private_key(ec.SECP256R1())
_ED = ed25519.Ed25519PrivateKey.generate()

_KEYS: dict[str, tuple[Any, str]] = {
    "rsa": (_RSA, "RS256"),
    "ec": (_EC, "ES256"),
    "ed": (_ED, "EdDSA"),
    "stranger": (_OTHER_RSA, "RS256"),
}


class Issuer:
    """Signs tokens; knows how to forge them too. `published`: the kids in its key set."""

    def __init__(self) -> None:
        self.published = ["rsa", "ec", "ed"]
        self.name = ISSUER
        self.audience = AUDIENCE

    def private(self, kid: str) -> Any:
        return _KEYS[kid][0]

    def jwk(self, name: str, **changes: object) -> dict[str, Any]:
        key, algorithm = _KEYS[name]
        makers: dict[str, Callable[..., dict[str, Any]]] = {
            "RS256": RSAAlgorithm.to_jwk,
            "ES256": ECAlgorithm.to_jwk,
            "EdDSA": OKPAlgorithm.to_jwk,
        }
        public = makers[algorithm](key.public_key(), as_dict=True)
        public.pop("key_ops", None)
        return {**public, "kid": name, "use": "sig", "alg": algorithm, **changes}

    def key_set(self, *kids: str) -> bytes:
        return json.dumps({"keys": [self.jwk(kid) for kid in kids or self.published]}).encode()

    def claims(self, **changes: object) -> dict[str, object]:
        """Good claims with changes; a change to None takes the claim away."""
        now = int(time.time())
        claims: dict[str, object] = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "ada",
            "iat": now,
            "exp": now + 600,
            "roles": ["reader"],
        }
        return {name: value for name, value in (claims | changes).items() if value is not None}

    def token(self, kid: str = "rsa", header: Mapping[str, object] | None = None, **claims: object) -> str:
        key, algorithm = _KEYS[kid]
        return jwt.encode(self.claims(**claims), key, algorithm, {"kid": kid, **(header or {})})

    def sign(self, kid: str, header: object, payload: object) -> str:
        """A token with exactly this header and payload (JSON values, or the bytes themselves)."""
        key, algorithm = _KEYS[kid]
        head, body = (
            base64url(part if isinstance(part, bytes) else json.dumps(part).encode())
            for part in (header, payload)
        )
        signature = jwt.get_algorithm_by_name(algorithm).sign(f"{head}.{body}".encode(), key)
        return f"{head}.{body}.{base64url(signature)}"


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.fixture(name="base64url", scope="session")
def base64url_fixture() -> Callable[[bytes], str]:
    return base64url


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


class KeyServer:
    """Serves `document` with `status`; counts; with `gate` closed it does not answer."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.document = b""
        self.status = 200
        self.headers: dict[str, str] = {}
        self.requests = 0
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests += 1
                outer.asked.set()
                outer.gate.wait(30)
                try:
                    self.send_response(outer.status)
                    for name, value in outer.headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(outer.document)))
                    self.end_headers()
                    self.wfile.write(outer.document)
                except OSError:
                    pass  # the client has given up, which is what some tests are about

            def log_message(self, *_: object) -> None:
                return

        class Server(ThreadingHTTPServer):
            daemon_threads = False  # so that server_close waits for them

            def handle_error(self, *_: object) -> None:
                return  # a refused TLS handshake

        self._server = Server(("127.0.0.1", 0), Handler)
        scheme = "http"
        if tls is not None:
            scheme = "https"
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{scheme}://localhost:{self._server.server_address[1]}/keys?hint=s3cr3t-hint"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def key_server(issuer: Issuer) -> Iterator[KeyServer]:
    server = KeyServer()
    server.document = issuer.key_set()
    yield server
    server.close()


@pytest.fixture
def make_key_server() -> Iterator[Callable[[ssl.SSLContext | None], KeyServer]]:
    servers: list[KeyServer] = []

    def make(tls: ssl.SSLContext | None = None) -> KeyServer:
        servers.append(KeyServer(tls))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Gate:
    """The plugin as the gateway sees it: registered with pluggy, configured from a section."""

    def __init__(self) -> None:
        self.now = time.time()
        self.plugin = TokensPlugin(clock=lambda: self.now)
        self.manager = PluginManager()
        self.manager.register(self.plugin, "tokens")

    def configure(self, **section: object) -> None:
        settings = TokensSettings.model_validate(section)
        self.manager.hook.configure(context=PluginContext({"tokens": settings}))

    def ask(self, credential: object) -> Identity | Refusal:
        answer = self.manager.hook.authenticate(credential=credential)
        assert isinstance(answer, Identity | Refusal)
        return answer

    def bearer(self, token: str) -> Identity | Refusal:
        return self.ask(head(authorization=f"Bearer {token}"))


def head(*pairs: tuple[str, str], query: str = "", **headers: str) -> HeadCredential:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return HeadCredential(method="GET", path="/", query=query, headers=(*named, *pairs))


@pytest.fixture(name="head", scope="session")
def head_fixture() -> Callable[..., HeadCredential]:
    return head


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def jwt_gate(gate: Gate, issuer: Issuer, tmp_path: Path) -> Gate:
    """Configured for tokens of `issuer`, whose keys are in a file."""
    keys = tmp_path / "keys.json"
    keys.write_bytes(issuer.key_set())
    gate.configure(
        roles={"reader": {"sources": ["*"]}},
        jwt={"issuer": issuer.name, "audience": issuer.audience, "jwks_file": keys, "leeway_seconds": 30},
    )
    return gate
