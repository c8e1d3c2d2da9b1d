"""Fetches files of a Maven repository whose size and SHA-256 are known: from Maven Central, or a mirror."""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Self
from urllib.parse import unquote, urlsplit

import trio

from kiwi_gw.api import KiwiError

CENTRAL: Final = "https://repo1.maven.org/maven2"
MIRROR: Final = "KIWI_GW_MAVEN"
"""The environment variable that names another repository with the same paths."""

_SILENCE = 30.0
"""Seconds in which the connection must be there, and something more must come."""

_SLOWEST = 50_000.0
"""Bytes a second that a file may come in: one that would take longer is given up."""

_PAUSES = (1.0, 3.0)
"""Seconds before another try."""

_CHUNK = 65_536


class FetchFailed(KiwiError):  # noqa: N818  (it says what happened)
    """A file could not be fetched or kept, or is not the one that is locked."""


class _MayPass(Exception):  # noqa: N818  (it says what happened)
    """A try failed by something that may be over at the next."""


@dataclass(frozen=True, slots=True)
class Locked:
    """A file as it must be. path: below the address of a repository. size: bytes. sha256: in hex."""

    path: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name


@dataclass(frozen=True, slots=True)
class Repository:
    """Where files come from.

    address: without a slash at its end, and without the user and the password that it may have had: fit to be
    shown. authorization: what is sent in their place, or empty. opener: follows redirects, takes proxies
    from the environment and trusted authorities from the system (`SSL_CERT_FILE`).
    """

    address: str
    authorization: str
    opener: urllib.request.OpenerDirector

    @classmethod
    def chosen(cls) -> Self:
        """Take `$KIWI_GW_MAVEN`, else Maven Central. FetchFailed: that is no address."""
        try:
            parts = urlsplit(os.environ.get(MIRROR) or CENTRAL)
            host, _ = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https"):
            raise FetchFailed(f"{MIRROR} must be an address like {CENTRAL}")  # its value may hold a password
        login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()
        https = urllib.request.HTTPSHandler(context=ssl.create_default_context())
        return cls(
            address=f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}",
            authorization=f"Basic {base64.b64encode(login).decode()}" if parts.username else "",
            opener=urllib.request.build_opener(https),
        )

    async def get(self, file: Locked) -> bytes:
        """Return the content of `file`, as it is locked. FetchFailed: which file, from where, and why not.

        What may pass is tried three times. A cancel leaves a thread behind that ends by itself.
        """
        url = f"{self.address}/{file.path}"
        try:
            for pause in _PAUSES:
                try:
                    return await self._try(file, url)
                except _MayPass:
                    await trio.sleep(pause)
            return await self._try(file, url)
        except (_MayPass, FetchFailed) as error:
            raise FetchFailed(f"{file.name} from {url}: {error}") from error

    async def _try(self, file: Locked, url: str) -> bytes:
        # Resolving a name, and what comes byte by byte, knows no other deadline.
        seconds = _SILENCE + file.size / _SLOWEST
        with trio.move_on_after(seconds):
            return await trio.to_thread.run_sync(self._get, file, url, abandon_on_cancel=True)
        raise _MayPass(f"it was not there within {seconds:.3g} s")

    def _get(self, file: Locked, url: str) -> bytes:
        request = urllib.request.Request(url, headers={"User-Agent": "kiwi-gw"})  # noqa: S310  (see `chosen`)
        if self.authorization:
            request.add_unredirected_header("Authorization", self.authorization)
        try:
            with self.opener.open(request, timeout=_SILENCE) as response:
                if response.length is not None and response.length != file.size:
                    raise FetchFailed(f"it has {response.length} bytes, the locked one {file.size}")
                content = _read(response, file.size)
        except urllib.error.HTTPError as error:
            error.close()
            passing = error.code in (408, 429) or error.code >= 500
            raise (_MayPass if passing else FetchFailed)(f"HTTP status {error.code}") from error
        except http.client.InvalidURL as error:
            raise FetchFailed(str(error)) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise _MayPass(f"nothing more came for {_SILENCE:g} s") from error
            kind = FetchFailed if isinstance(reason, ssl.SSLCertVerificationError) else _MayPass
            raise kind(str(reason) or type(reason).__name__) from error
        if (found := hashlib.sha256(content).hexdigest()) != file.sha256:
            raise FetchFailed(f"it is not the locked one: its SHA-256 is {found}, not {file.sha256}")
        return content


def _read(response: http.client.HTTPResponse, size: int) -> bytes:
    content = bytearray()
    while chunk := response.read1(_CHUNK):
        content += chunk
        if len(content) > size:
            raise FetchFailed(f"it is larger than the {size} bytes of the locked one")
        trio.from_thread.check_cancelled()
    if len(content) < size:
        raise _MayPass(f"it was cut short, after {len(content)} of {size} bytes")
    return bytes(content)
