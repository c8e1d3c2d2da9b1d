"""Key sets from a file and from an address: when they are read, and what happens when they cannot be."""

from __future__ import annotations

import json
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from kiwi_tokens.jwks import MAX_DOCUMENT, KeysUnavailable, parse_key_set
from kiwi_tokens.key_sources import RETRY_PAUSE, UNKNOWN_KEY_PAUSE, FileKeys, RemoteKeys

ALGORITHMS = ("RS256", "ES256", "EdDSA")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def remote(key_server: Any, clock: Clock) -> RemoteKeys:
    return RemoteKeys(key_server.url, ALGORITHMS, 300, clock=clock)


# --- the document -------------------------------------------------------------------------------------


def test_a_key_is_found_under_its_name_and_algorithm_only(issuer: Any) -> None:
    table = parse_key_set(issuer.key_set(), ALGORITHMS)
    assert set(table) == {("rsa", "RS256"), ("ec", "ES256"), ("ed", "EdDSA")}


def _private(issuer: Any) -> dict[str, Any]:
    key: dict[str, Any] = json.loads(RSAAlgorithm.to_jwk(issuer.private("rsa")))
    return key | {"kid": "rsa"}


def _weak(issuer: Any) -> dict[str, Any]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)  # noqa: S505  (weak on purpose)
    return json.loads(RSAAlgorithm.to_jwk(key.public_key())) | {"kid": "rsa", "key_ops": ["verify"]}  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_private, "it is a PRIVATE key"),
        (_weak, "it is too short"),
        (
            lambda i: {"kty": "oct", "k": "c2VjcmV0", "kid": "x", "alg": "HS256"},
            "it is for no algorithm that is allowed",
        ),
        (lambda i: i.jwk("rsa", use="enc"), "it is not for signatures"),
        (lambda i: i.jwk("rsa", key_ops=["sign"]), "it is not for verifying"),
        (lambda i: i.jwk("rsa", key_ops="verify"), "it is not for verifying"),
        (lambda i: i.jwk("rsa", alg="RS512"), "it is for no algorithm that is allowed"),
        (lambda i: i.jwk("rsa", alg="ES256"), "it is for no algorithm that is allowed"),
        (lambda i: i.jwk("rsa", alg="HS256"), "it is for no algorithm that is allowed"),
        (lambda i: i.jwk("rsa", alg="none"), "it is for no algorithm that is allowed"),
        (lambda i: i.jwk("rsa", alg=["RS256"]), "it is for no algorithm that is allowed"),
        (lambda i: i.jwk("rsa", kid=1), "its kid is no text"),
        (lambda i: i.jwk("rsa", n="!"), "it is damaged"),
        (lambda i: i.jwk("rsa", n=1), "it is damaged"),
        (lambda i: i.jwk("rsa", e=None), "it is damaged"),
        (lambda i: i.jwk("ec", crv="P-384"), "it is for no algorithm that is allowed"),
        (lambda i: i.jwk("ec", x="AAAA"), "it is damaged"),
        (lambda i: i.jwk("ec", crv=["P-256"]), "it is for no algorithm that is allowed"),
        (lambda i: i.jwk("ed", x="AAAA"), "it is damaged"),
        (lambda i: {"kid": "x"}, "it is for no algorithm that is allowed"),
        (lambda i: "key", "it is no object"),
    ],
)
def test_an_unusable_key_is_left_out(
    issuer: Any, make: Callable[[Any], Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    table = parse_key_set(json.dumps({"keys": [make(issuer), issuer.jwk("ed")]}).encode(), ALGORITHMS)
    assert set(table) == {("ed", "EdDSA")}
    assert f"key 0 of the key set is not used: {reason}" in caplog.text


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b"", "it is not JSON"),
        (b"<html>", "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[]", "it has no list of keys"),
        (b'{"keys": {}}', "it has no list of keys"),
        (b"x" * (MAX_DOCUMENT + 1), "it is too large"),
    ],
)
def test_what_is_no_key_set_is_said_in_words(document: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_key_set(document, ALGORITHMS)


# --- a file -------------------------------------------------------------------------------------------


def test_a_file_is_read_when_it_is_needed_and_when_it_changes(
    issuer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "keys.json"
    keys = FileKeys(path, ALGORITHMS)
    for _ in range(3):
        with pytest.raises(KeysUnavailable):
            keys.find("rsa", "RS256")
    path.write_bytes(issuer.key_set("ec"))
    assert keys.find("rsa", "RS256") is None
    assert keys.find("ec", "ES256") is not None
    new = tmp_path / "new.json"
    new.write_bytes(issuer.key_set("rsa"))
    new.replace(path)
    assert keys.find("rsa", "RS256") is not None
    assert keys.find("ec", "ES256") is None
    path.write_bytes(b"{")
    for _ in range(3):
        assert keys.find("rsa", "RS256") is not None  # the last good one
    path.unlink()
    assert keys.find("rsa", "RS256") is not None
    lines = [record.message for record in caplog.records]
    assert [line.rpartition(str(path))[2] for line in lines] == [
        " cannot be used: FileNotFoundError: No such file or directory; no JWT can be checked",
        "",
        "",
        " cannot be used: it is not JSON; the last good one is used",
        " cannot be used: FileNotFoundError: No such file or directory; the last good one is used",
    ]


def test_a_swapped_symlink_is_a_change(issuer: Any, tmp_path: Path) -> None:
    for name, kid in (("one", "ec"), ("two", "ed")):
        (tmp_path / name).write_bytes(issuer.key_set(kid))
    link = tmp_path / "keys.json"
    link.symlink_to("one")
    keys = FileKeys(link, ALGORITHMS)
    assert keys.find("ec", "ES256") is not None
    os.symlink("two", tmp_path / "next")
    (tmp_path / "next").replace(link)
    assert keys.find("ed", "EdDSA") is not None


# --- an address ---------------------------------------------------------------------------------------


def test_keys_are_fetched_once_and_again_when_they_are_old(
    remote: RemoteKeys, key_server: Any, clock: Clock
) -> None:
    assert key_server.requests == 0
    for _ in range(5):
        assert remote.find("rsa", "RS256") is not None
    assert key_server.requests == 1
    clock.now += 299
    remote.find("rsa", "RS256")
    assert key_server.requests == 1
    clock.now += 2
    remote.find("rsa", "RS256")
    assert key_server.requests == 2


def test_a_new_key_is_fetched_when_a_token_names_it(remote: RemoteKeys, key_server: Any, issuer: Any) -> None:
    remote.find("rsa", "RS256")
    key_server.document = issuer.key_set("stranger")
    assert remote.find("stranger", "RS256") is not None
    assert key_server.requests == 2


def test_what_no_fetch_could_change_causes_none(remote: RemoteKeys, key_server: Any) -> None:
    assert remote.find("rsa", "ES256") is None  # a known key, and the wrong algorithm
    assert remote.find(None, "PS256") is None
    assert remote.find(None, "RS256") is not None
    assert key_server.requests == 1


def test_unknown_keys_cause_one_fetch_in_thirty_seconds(
    remote: RemoteKeys, key_server: Any, clock: Clock
) -> None:
    remote.find("rsa", "RS256")
    assert remote.find("nobody", "RS256") is None
    assert key_server.requests == 2
    for number in range(50):
        with pytest.raises(KeysUnavailable):  # no fetch, so no certainty: it may be a new key
            remote.find(f"nobody-{number}", "RS256")
    assert key_server.requests == 2
    clock.now += UNKNOWN_KEY_PAUSE
    assert remote.find("nobody", "RS256") is None
    assert key_server.requests == 3


def _status(server: Any) -> None:
    server.status = 500


def _redirect(server: Any) -> None:
    server.status, server.headers = 302, {"Location": server.url + "&again=1"}


def _garbage(server: Any) -> None:
    server.document = b"<html>"


def _empty(server: Any) -> None:
    server.document = b""


def _large(server: Any) -> None:
    server.document = b"x" * (MAX_DOCUMENT + 1)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (_status, "HTTP status 500"),
        (_redirect, "HTTP status 302"),
        (_garbage, "it is not JSON"),
        (_empty, "it is empty"),
        (_large, "it is too large"),
    ],
)
def test_the_last_good_keys_outlive_a_failure(
    remote: RemoteKeys,
    key_server: Any,
    clock: Clock,
    harm: Callable[[Any], None],
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    remote.find("rsa", "RS256")
    harm(key_server)
    clock.now += 301
    for _ in range(5):
        assert remote.find("rsa", "RS256") is not None
    assert key_server.requests == 2
    (record,) = caplog.records
    assert record.message.endswith(f"/keys cannot be used: {words}; the last good one is used")
    assert "s3cr3t-hint" not in caplog.text
    key_server.status, key_server.document = 200, b'{"keys":[]}'
    clock.now += UNKNOWN_KEY_PAUSE
    remote.find("rsa", "RS256")
    assert key_server.requests == 3


def test_without_any_keys_it_tries_again_soon(
    closed_port: int, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    remote = RemoteKeys(f"http://127.0.0.1:{closed_port}/keys", ALGORITHMS, 300, clock=clock)
    for _ in range(5):
        with pytest.raises(KeysUnavailable):
            remote.find("rsa", "RS256")
    assert len(caplog.records) == 1
    assert "Connection refused" in caplog.text
    clock.now += RETRY_PAUSE
    with pytest.raises(KeysUnavailable):
        remote.find("rsa", "RS256")
    assert len(caplog.records) == 2


def test_a_server_that_does_not_answer_costs_the_deadline_once(
    key_server: Any, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    remote = RemoteKeys(key_server.url, ALGORITHMS, 300, deadline=20, clock=clock)
    assert remote.find("rsa", "RS256") is not None
    remote._deadline = 0.3  # that one was to be answered in time
    key_server.gate.clear()
    clock.now += 301
    began = time.monotonic()
    assert remote.find("rsa", "RS256") is not None
    assert 0.25 < time.monotonic() - began < 1.5
    fetching = [thread for thread in threading.enumerate() if thread.name == "kiwi_tokens fetch"]
    for thread in fetching:  # broken off, not left behind
        thread.join(5)
        assert not thread.is_alive()
    remote._deadline = 20  # it is not waited for again
    began = time.monotonic()
    assert remote.find("rsa", "RS256") is not None
    assert time.monotonic() - began < 10
    assert key_server.requests == 2


def test_a_server_that_drips_is_broken_off_too() -> None:
    class Dripping(threading.Thread):
        def __init__(self) -> None:
            super().__init__()
            self.listener = socket.create_server(("127.0.0.1", 0))

        def run(self) -> None:
            connection, _ = self.listener.accept()
            with connection, self.listener:
                connection.recv(4096)
                try:
                    while True:
                        connection.sendall(b"H")  # never a whole line, and never a pause
                        time.sleep(0.02)
                except OSError:
                    return

    server = Dripping()
    server.start()
    port = server.listener.getsockname()[1]
    remote = RemoteKeys(f"http://127.0.0.1:{port}/", ALGORITHMS, 300, deadline=0.3)
    began = time.monotonic()
    with pytest.raises(KeysUnavailable):
        remote.find("rsa", "RS256")
    assert time.monotonic() - began < 1.5
    server.join(5)
    assert not server.is_alive()
    for thread in threading.enumerate():
        if thread.name == "kiwi_tokens fetch":
            thread.join(5)


def test_many_clients_at_once_cause_one_fetch(remote: RemoteKeys, key_server: Any) -> None:
    key_server.gate.clear()
    with ThreadPoolExecutor(20) as pool:
        answers = [pool.submit(remote.find, "rsa", "RS256") for _ in range(20)]
        assert key_server.asked.wait(5)
        key_server.gate.set()
        assert all(answer.result(5) is not None for answer in answers)
    assert key_server.requests == 1


def test_https_needs_an_authority_that_is_trusted(
    issuer: Any,
    make_key_server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    server = make_key_server(context)
    server.document = issuer.key_set()
    with pytest.raises(KeysUnavailable):
        RemoteKeys(server.url, ALGORITHMS, 300).find("rsa", "RS256")
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    assert RemoteKeys(server.url, ALGORITHMS, 300).find("rsa", "RS256") is not None


# --- through the plugin -------------------------------------------------------------------------------


def test_the_plugin_says_that_it_cannot_tell_just_now(gate: Any, issuer: Any, closed_port: int) -> None:
    url = f"http://127.0.0.1:{closed_port}/keys"
    gate.configure(jwt={"issuer": issuer.name, "audience": issuer.audience, "jwks_url": url})
    answer = gate.bearer(issuer.token())
    assert (answer.code, answer.retry) == ("keys_unavailable", True)


def test_a_reload_keeps_the_fetched_keys_unless_they_come_from_elsewhere(
    gate: Any, issuer: Any, key_server: Any
) -> None:
    block = {"issuer": issuer.name, "audience": issuer.audience, "jwks_url": key_server.url}
    gate.configure(jwt=block)
    assert gate.bearer(issuer.token()).name == "ada"
    gate.configure(jwt=block, anonymous={}, static=[{"name": "ci", "token": "0123456789-abcdefghij"}])
    assert gate.bearer(issuer.token()).name == "ada"
    assert key_server.requests == 1
    gate.configure(jwt=block | {"leeway_seconds": 5, "audience": ["another", issuer.audience]})
    assert gate.bearer(issuer.token()).name == "ada"
    assert key_server.requests == 1
    gate.configure(jwt=block | {"jwks_url": f"{key_server.url}&another"})
    assert gate.bearer(issuer.token()).name == "ada"
    assert key_server.requests == 2


def test_configuring_does_no_io(gate: Any, issuer: Any, key_server: Any) -> None:
    gate.configure(jwt={"issuer": issuer.name, "audience": issuer.audience, "jwks_url": key_server.url})
    assert key_server.requests == 0
