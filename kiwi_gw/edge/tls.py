"""TLS for the listener: contexts, errors in words, and certificates that change while we run."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path
from typing import NamedTuple

import structlog
import trio

from kiwi_gw.config import LoadedConfig, TlsSettings
from kiwi_gw.errors import ConfigError, KiwiError, Problem

_log = structlog.get_logger(__name__)


class TlsError(KiwiError):
    """Certificate files that cannot be used. The message names the file and says what is wrong; key: which
    key of `server.tls` that is about."""

    def __init__(self, key: str, message: str) -> None:
        self.key = key
        super().__init__(message)


def check_certificates(loaded: LoadedConfig) -> None:
    """Raise ConfigError, with their lines, if files that `server.tls` names cannot be used."""
    tls = loaded.settings.server.tls
    if tls is None:
        return
    problems: list[Problem] = []
    for error in _mistakes(Certificates.of(tls)):
        path = ("server", "tls", error.key)
        file, line = loaded.places.of(path) if loaded.places is not None else (str(loaded.path), 0)
        problems.append(Problem(file, line, ".".join(path), str(error)))
    if problems:
        raise ConfigError(tuple(problems), unreadable=True)


def _mistakes(files: Certificates) -> list[TlsError]:
    """Find each file that is none of its kind; if all are, what keeps them from being used together."""
    found: list[TlsError] = []
    for name, file in files._asdict().items():
        if file is not None:
            try:
                _check_pem(name, file)
            except TlsError as error:
                found.append(error)
    if not found:
        try:
            server_context(*files)
        except TlsError as error:
            found.append(error)
    return found


def server_context(cert: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """Make a context for a server that speaks HTTP/1.1 over TLS 1.2 or later.

    cert: PEM, the server's certificate and then its intermediates. key: PEM, not encrypted.
    client_ca: PEM; clients must then show a certificate that one of these authorities signed.
    Raises TlsError.
    """
    _check_pem("cert", cert)
    _check_pem("key", key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    # All that is offered is strong, and clients know what is fast for them: AES-128 for browsers, a fifth
    # faster than AES-256, and ChaCha20 for a phone without AES.
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])

    def password() -> str:
        # Without this an encrypted key would make OpenSSL ask at the terminal.
        raise TlsError("key", f"{key}: the private key is encrypted; a key without a passphrase is needed")

    try:
        context.load_cert_chain(cert, key, password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsError(
                "key", f"{key}: the private key does not belong to the certificate in {cert}"
            ) from None
        words = f"{cert}, {key}: not a usable certificate and key ({_reason(error)})"
        raise TlsError("cert", words) from None
    if client_ca is not None:
        _check_pem("client_ca", client_ca)
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as error:
            raise TlsError("client_ca", f"{client_ca}: not usable certificates ({_reason(error)})") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class Certificates(NamedTuple):
    """Where the files are, all PEM."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    @classmethod
    def of(cls, tls: TlsSettings) -> Certificates:
        return cls(Path(tls.cert), Path(tls.key), Path(tls.client_ca) if tls.client_ca else None)


class TlsFiles:
    """Keeps a context for files that others replace (a renewed certificate, a mounted secret).

    `context` is always the last good one; connections that exist keep what they were made with.
    Making it raises TlsError if the files cannot be used from the start.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None = None) -> None:
        self._files = (cert, key, client_ca)
        self._digest = self._read_digest()
        self.context = server_context(*self._files)

    def refresh(self) -> bool:
        """Look at the files; True if a new context is in use. What is wrong is logged once per change.

        A certificate and its key are two files, so between their replacements they do not fit: the old
        context stays until the next look finds them fitting.
        """
        # Before the files are loaded: a change in between is then found by the next look.
        digest = self._read_digest()
        if digest == self._digest:
            return False
        self._digest = digest
        try:
            self.context = server_context(*self._files)
        except TlsError as error:
            _log.warning("tls_reload_failed", problem=str(error), effect="the old certificate stays in use")
            return False
        _log.info("tls_reloaded", cert=str(self._files[0]))
        return True

    def use(self, cert: Path, key: Path, client_ca: Path | None = None) -> None:
        """Look at other files from now on, at once; the old context stays while they cannot be used."""
        self._files = (cert, key, client_ca)
        self.refresh()

    async def watch(self, interval: float = 10.0) -> None:
        """Refresh for ever, every so many seconds."""
        while True:
            await trio.sleep(interval)
            self.refresh()

    def _read_digest(self) -> bytes:
        digest = hashlib.sha256()
        for file in self._files:
            if file is not None:
                try:
                    content = file.read_bytes()
                except OSError as error:
                    content = f"unreadable: {error}".encode()
                digest.update(hashlib.sha256(content).digest())
        return digest.digest()


_CERTIFICATE = (b"CERTIFICATE-----", "a certificate")


def _check_pem(name: str, file: Path) -> None:
    marker, what = (b"PRIVATE KEY-----", "a private key") if name == "key" else _CERTIFICATE
    try:
        content = file.read_bytes()
    except OSError as error:
        raise TlsError(name, f"{file}: cannot be read ({error.strerror or error})") from None
    if marker not in content:
        raise TlsError(name, f"{file}: there is not {what} in PEM form in this file")


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")
