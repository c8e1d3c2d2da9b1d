"""TLS with certificates that trustme makes, over memory streams and trio's TLS."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing
import trustme
from cryptography.hazmat.primitives import serialization
from structlog.testing import capture_logs

from kiwi_gw.edge.health import alive
from kiwi_gw.edge.http import serve_http
from kiwi_gw.edge.http_exchange import Closing, HttpLimits
from kiwi_gw.edge.plain_request import ConnectionEnds
from kiwi_gw.edge.request_head import HeadLimits, read_head
from kiwi_gw.edge.routing import Routes
from kiwi_gw.edge.tls import TlsError, TlsFiles, server_context


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


def write(folder: Path, cert: trustme.LeafCert) -> tuple[Path, Path]:
    """Put a certificate and its key where a server would find them."""
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(b"".join(blob.bytes() for blob in cert.cert_chain_pems))
    key_file.write_bytes(cert.private_key_pem.bytes())
    return cert_file, key_file


def client_context(ca: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


async def shake_hands(
    server: ssl.SSLContext, client: ssl.SSLContext
) -> trio.SSLStream[trio.StapledStream[trio.abc.SendStream, trio.abc.ReceiveStream]]:
    """The client's stream after a handshake and one byte each way."""
    near, far = trio.testing.memory_stream_pair()
    ours = trio.SSLStream(far, server, server_side=True)
    theirs = trio.SSLStream(near, client, server_hostname="gw.example")

    async def serve() -> None:
        await ours.send_all(await ours.receive_some(1))

    async with trio.open_nursery(strict_exception_groups=True) as nursery:
        nursery.start_soon(serve)
        await theirs.send_all(b"x")
        assert await theirs.receive_some(1) == b"x"
    return theirs  # type: ignore[return-value]


async def test_a_client_is_served_http_1_1_over_tls_1_3(ca: trustme.CA, tmp_path: Path) -> None:
    context = server_context(*write(tmp_path, ca.issue_cert("gw.example")))
    stream = await shake_hands(context, client_context(ca))
    assert stream.selected_alpn_protocol() == "http/1.1"
    assert stream.version() == "TLSv1.3"


async def test_old_versions_are_refused(ca: trustme.CA, tmp_path: Path) -> None:
    context = server_context(*write(tmp_path, ca.issue_cert("gw.example")))
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    old = client_context(ca)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert (await shake_hands(context, old)).version() == "TLSv1.2"


@pytest.mark.parametrize("first", ["AES128", "AES256", "CHACHA20"])
async def test_a_client_gets_the_cipher_that_it_likes_best(
    ca: trustme.CA, tmp_path: Path, first: str
) -> None:
    """Said by TLS 1.2, as Python cannot order the ciphers of TLS 1.3; the option is the same."""
    context = server_context(*write(tmp_path, ca.issue_cert("gw.example")))
    client = client_context(ca)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    client.set_ciphers(f"ECDHE+{first}:ECDHE+AESGCM:ECDHE+CHACHA20")
    cipher = (await shake_hands(context, client)).cipher()
    assert cipher is not None
    assert first in cipher[0]


async def test_clients_need_a_certificate_where_an_authority_is_named(ca: trustme.CA, tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(authority)
    context = server_context(*write(tmp_path, ca.issue_cert("gw.example")), authority)
    with pytest.RaisesGroup(trio.BrokenResourceError, flatten_subgroups=True):
        await shake_hands(context, client_context(ca))
    known = client_context(ca)
    ca.issue_cert("client.example").configure_cert(known)
    await shake_hands(context, known)
    stranger = client_context(ca)
    trustme.CA().issue_cert("client.example").configure_cert(stranger)
    with pytest.RaisesGroup(trio.BrokenResourceError, flatten_subgroups=True):
        await shake_hands(context, stranger)


Damage = Callable[[Path, Path], object]
NO_CERT = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def replace_key(cert: Path, key: Path) -> None:
    key.write_bytes(trustme.CA().issue_cert("gw.example").private_key_pem.bytes())


def encrypt(cert: Path, key: Path) -> None:
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"passphrase"),
        )
    )


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda cert, key: cert.unlink(), r"cert\.pem: cannot be read \(No such file or directory\)"),
        (lambda cert, key: key.unlink(), r"key\.pem: cannot be read \(No such file or directory\)"),
        (lambda cert, key: cert.write_bytes(b"hello"), r"cert\.pem: there is not a certificate in PEM form"),
        (lambda cert, key: key.write_bytes(b""), r"key\.pem: there is not a private key in PEM form"),
        (lambda cert, key: cert.write_bytes(NO_CERT), "not a usable certificate"),
        (replace_key, r"key\.pem: the private key does not belong to the certificate in .*cert\.pem"),
        (encrypt, "encrypted"),
    ],
)
def test_what_is_wrong_is_said_in_words(ca: trustme.CA, tmp_path: Path, damage: Damage, words: str) -> None:
    cert, key = write(tmp_path, ca.issue_cert("gw.example"))
    damage(cert, key)
    with pytest.raises(TlsError, match=words):
        server_context(cert, key)


def test_a_bad_authority_is_said_in_words(ca: trustme.CA, tmp_path: Path) -> None:
    cert, key = write(tmp_path, ca.issue_cert("gw.example"))
    with pytest.raises(TlsError, match=r"nowhere\.pem: cannot be read"):
        server_context(cert, key, tmp_path / "nowhere.pem")
    (tmp_path / "bad.pem").write_bytes(NO_CERT)
    with pytest.raises(TlsError, match=r"bad\.pem: not usable"):
        server_context(cert, key, tmp_path / "bad.pem")


async def test_plain_http_is_served_over_tls(
    ca: trustme.CA, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """To its end: our goodbye (close_notify) comes, and a client that ignores it holds nobody up."""
    routes = Routes()
    routes.add_http("GET", "/health", alive)
    context = server_context(*write(tmp_path, ca.issue_cert("gw.example")))
    near, far = trio.testing.memory_stream_pair()
    ours = trio.SSLStream(far, context, server_side=True)
    theirs = trio.SSLStream(near, client_context(ca), server_hostname="gw.example", https_compatible=True)

    async def serve() -> None:
        found = await read_head(ours, HeadLimits())
        assert found is not None
        await serve_http(ours, found, routes, HttpLimits(), Closing(), ConnectionEnds(secure=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        await theirs.send_all(b"GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        received = b""
        while data := await theirs.receive_some():
            received += data
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert received.endswith(b"OK\n")


# --- replaced files ----------------------------------------------------------------------------


async def test_replaced_files_are_taken_and_open_connections_stay(ca: trustme.CA, tmp_path: Path) -> None:
    files = TlsFiles(*write(tmp_path, ca.issue_cert("gw.example")))
    first = files.context
    stream = await shake_hands(first, client_context(ca))
    serial = stream.getpeercert()["serialNumber"]
    assert not files.refresh()
    write(tmp_path, ca.issue_cert("gw.example"))
    with capture_logs() as logs:
        assert files.refresh()
    assert [entry["event"] for entry in logs] == ["tls_reloaded"]
    assert files.context is not first
    renewed = await shake_hands(files.context, client_context(ca))
    assert renewed.getpeercert()["serialNumber"] != serial


def test_files_that_do_not_fit_yet_change_nothing(ca: trustme.CA, tmp_path: Path) -> None:
    files = TlsFiles(*write(tmp_path, ca.issue_cert("gw.example")))
    first = files.context
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    new = ca.issue_cert("gw.example")
    with capture_logs() as logs:
        cert.write_bytes(new.cert_chain_pems[0].bytes())
        assert not files.refresh()
        assert not files.refresh()  # is not logged again
    assert [entry["event"] for entry in logs] == ["tls_reload_failed"]
    assert "does not belong" in logs[0]["problem"]
    assert files.context is first
    key.write_bytes(new.private_key_pem.bytes())
    assert files.refresh()
    key.unlink()
    assert not files.refresh()


def test_unusable_files_are_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(TlsError):
        TlsFiles(tmp_path / "cert.pem", tmp_path / "key.pem")


async def test_watch_looks_again_and_again(
    ca: trustme.CA, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    files = TlsFiles(*write(tmp_path, ca.issue_cert("gw.example")))
    first = files.context
    async with trio.open_nursery() as nursery:
        nursery.start_soon(files.watch, 10.0)
        await trio.sleep(25)
        assert files.context is first
        write(tmp_path, ca.issue_cert("gw.example"))
        await trio.sleep(10)
        assert files.context is not first
        nursery.cancel_scope.cancel()
