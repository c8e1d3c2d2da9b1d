"""One file of a Maven repository: what is taken, what is tried again, what is refused, and what is said."""

from __future__ import annotations

import hashlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trustme

from kiwi_spark.java.jar_set import CENTRAL, FetchFailed, Locked, Repository
from tests.plugins.spark.maven_server import (
    Behaviour,
    MavenServer,
    dripping,
    endless,
    first,
    half,
    silent,
    status,
    stuck,
)

CONTENT = bytes(range(256)) * 1_000  # several chunks
FILE = Locked("org/example/a/1/a-1.jar", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture(autouse=True)
def _held(maven: MavenServer) -> None:
    maven.holds((FILE, CONTENT))


async def get() -> bytes:
    with trio.fail_after(10):
        return await Repository.chosen().get(FILE)


async def refusal() -> str:
    with pytest.raises(FetchFailed) as caught:
        await get()
    return str(caught.value)


async def test_a_file_is_fetched_from_its_path(maven: MavenServer) -> None:
    assert await get() == CONTENT
    assert maven.paths == ["/m2/org/example/a/1/a-1.jar"]
    assert maven.authorizations == [None]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (status(404), "HTTP status 404"),
        (status(401), "HTTP status 401"),
        (endless, f"it is larger than the {len(CONTENT)} bytes of the locked one"),
    ],
)
async def test_what_no_other_try_would_mend_is_refused_at_once(
    maven: MavenServer, told: Behaviour, words: str
) -> None:
    maven.told["a-1.jar"] = told
    assert await refusal() == f"a-1.jar from {maven.address}/{FILE.path}: {words}"
    assert maven.asked["a-1.jar"] == 1


async def test_another_hash_is_refused_with_both(maven: MavenServer) -> None:
    other = CONTENT[:-1] + b"!"
    maven.holds((FILE, other))
    said = await refusal()
    assert f"it is not the locked one: its SHA-256 is {hashlib.sha256(other).hexdigest()}" in said
    assert FILE.sha256 in said
    assert maven.asked["a-1.jar"] == 1


async def test_another_length_is_refused_before_it_is_read(maven: MavenServer) -> None:
    maven.holds((FILE, b"<html>sign in</html>"))
    assert "it has 20 bytes, the locked one 256000" in await refusal()
    assert maven.asked["a-1.jar"] == 1


@pytest.mark.parametrize("told", [half, status(503), status(429)])
async def test_what_may_pass_is_tried_three_times(maven: MavenServer, told: Behaviour) -> None:
    maven.told["a-1.jar"] = first(2, told)
    assert await get() == CONTENT
    assert maven.asked["a-1.jar"] == 3
    maven.told["a-1.jar"] = told
    said = await refusal()
    assert "it was cut short, after 128000 of 256000 bytes" in said or "HTTP status" in said
    assert maven.asked["a-1.jar"] == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("told", "silence", "in_all", "words"),
    [
        (silent, 0.2, 20.2, "nothing more came for 0.2 s"),
        (stuck, 0.2, 20.2, "nothing more came for 0.2 s"),
        (dripping, 0.5, 0.6, "it was not there within 0.6 s"),
    ],
)
async def test_what_makes_no_progress_is_given_up(
    maven: MavenServer,
    told: Behaviour,
    silence: float,
    in_all: float,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kiwi_spark.java.jar_set._SILENCE", silence)
    monkeypatch.setattr("kiwi_spark.java.jar_set._SLOWEST", len(CONTENT) / (in_all - silence))
    maven.told["a-1.jar"] = told
    assert (await refusal()).endswith(words)
    assert maven.asked["a-1.jar"] == 3


async def test_nobody_there_is_said_with_the_address(maven: MavenServer) -> None:
    maven.shutdown()
    maven.socket.close()
    said = await refusal()
    assert said.startswith(f"a-1.jar from {maven.address}/{FILE.path}: ")
    assert "Connection refused" in said


async def test_a_cancel_does_not_wait_for_the_server(maven: MavenServer) -> None:
    asked = threading.Event()

    def told(handler: object, content: bytes) -> None:
        asked.set()
        maven.ending.wait()

    maven.told["a-1.jar"] = told
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Repository.chosen().get, FILE)
            await trio.to_thread.run_sync(asked.wait)
            nursery.cancel_scope.cancel()


def test_without_a_mirror_it_is_maven_central(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIWI_GW_MAVEN", "")
    assert Repository.chosen().address == CENTRAL
    monkeypatch.delenv("KIWI_GW_MAVEN")
    assert Repository.chosen().address == CENTRAL == "https://repo1.maven.org/maven2"


@pytest.mark.parametrize(
    "value", ["repo.example/m2", "ftp://repo.example", "http://", "http://u:secret@h:port/", "file:///tmp"]
)
def test_a_mirror_that_is_no_address_is_refused_without_showing_it(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIWI_GW_MAVEN", value)
    with pytest.raises(FetchFailed) as caught:
        Repository.chosen()
    assert str(caught.value) == f"KIWI_GW_MAVEN must be an address like {CENTRAL}"


async def test_a_password_goes_to_the_mirror_and_into_no_message(
    maven: MavenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIWI_GW_MAVEN", f"http://me:p%40ss@127.0.0.1:{maven.server_port}/m2/")
    assert await get() == CONTENT
    maven.told["a-1.jar"] = status(403)
    said = await refusal()
    assert f"{maven.address}/{FILE.path}" in said
    assert "p%40ss" not in said
    assert maven.authorizations == ["Basic bWU6cEBzcw=="] * 2


async def test_a_redirect_is_followed_without_the_password(
    maven: MavenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIWI_GW_MAVEN", f"http://me:pass@127.0.0.1:{maven.server_port}/m2")
    maven.files["elsewhere"] = CONTENT
    maven.told["a-1.jar"] = status(302, Location=f"{maven.address}/elsewhere")
    assert await get() == CONTENT
    assert maven.authorizations == ["Basic bWU6cGFzcw==", None]


async def test_a_proxy_of_the_environment_is_used(
    maven: MavenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{maven.server_port}")
    monkeypatch.setenv("KIWI_GW_MAVEN", "http://maven.invalid/m2")
    maven.files[f"http://maven.invalid/m2/{FILE.path}"] = CONTENT
    assert await get() == CONTENT


@pytest.fixture
def authority(maven: MavenServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[trustme.CA]:
    """Makes the repository one that speaks TLS."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with context.wrap_socket(maven.socket, server_side=True) as maven.socket:
        monkeypatch.setenv("KIWI_GW_MAVEN", maven.address.replace("http:", "https:"))
        yield authority


async def test_certificates_are_checked_against_ssl_cert_file(
    authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    assert await get() == CONTENT
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    # A second try would come too late.
    monkeypatch.setattr("kiwi_spark.java.jar_set._PAUSES", (60.0, 60.0))
    assert "CERTIFICATE_VERIFY_FAILED" in await refusal()
