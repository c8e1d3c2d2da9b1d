"""Sets of jars that are locked by hash: fetched once, then kept and checked.

A lock has a line for every jar: its SHA-256 in hex, its size in bytes, and its path in a Maven repository. A
jar gets its name in the cache when it is checked, so a fetch that ended early goes on with what is missing,
and two at the same time do no harm. What is missing comes from Maven Central, or a mirror.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import os
import ssl
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
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

_AT_ONCE = 3

_QUIET = 2.0
"""Seconds between two lines about the progress."""


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


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that belong together. title: for people. folder: its name in the cache."""

    title: str
    folder: str
    jars: tuple[Locked, ...]

    def paths(self, cache: Path) -> list[Path]:
        """Name where the jars are, or will be, in the lock's order."""
        return [cache / self.folder / jar.name for jar in self.jars]

    def missing(self, cache: Path) -> list[Locked]:
        """Find the jars that are not in `cache`, or not as locked. Reads them all: not for the event loop."""
        return [jar for jar in self.jars if _digest(cache / self.folder / jar.name) != jar.sha256]

    async def fetch(self, cache: Path, report: Callable[[str], None] = lambda line: None) -> list[Path]:
        """Return the jars, in the lock's order; those that are not in `cache` yet are fetched.

        `report` is called with the progress, in lines for people. With the jars there no network is needed.
        Raises `FetchFailed`.
        """
        if missing := await trio.to_thread.run_sync(self.missing, cache):
            with _keeping(self.title, cache):
                (cache / self.folder).mkdir(parents=True, exist_ok=True)
            await self._fetch(missing, cache, report)
        return self.paths(cache)

    async def _fetch(self, missing: Sequence[Locked], cache: Path, report: Callable[[str], None]) -> None:
        repository = await trio.to_thread.run_sync(Repository.chosen)
        megabytes = sum(jar.size for jar in missing) / 1e6
        report(
            f"fetching {self.title}: {len(missing)} jars, {megabytes:.1f} MB, once, "
            f"from {repository.address} into {cache}"
        )
        free = trio.Semaphore(_AT_ONCE)
        failures: list[FetchFailed] = []
        done, come, said = 0, 0, trio.current_time()

        async def one(jar: Locked) -> None:
            nonlocal done, come, said
            async with free:
                try:
                    content = await repository.get(jar)
                    with _keeping(self.title, cache):
                        await trio.to_thread.run_sync(_keep, cache / self.folder / jar.name, content)
                except FetchFailed as error:
                    failures.append(error)
                    nursery.cancel_scope.cancel()
                    return
            done, come = done + 1, come + jar.size
            if trio.current_time() - said >= _QUIET:
                said = trio.current_time()
                report(
                    f"  {self.title}: {come / 1e6:.1f} of {megabytes:.1f} MB, {done} of {len(missing)} jars"
                )

        async with trio.open_nursery() as nursery:
            for jar in missing:
                nursery.start_soon(one, jar)
        if failures:
            raise FetchFailed(
                f"{self.title} could not be fetched: {failures[0]}\n"
                f"  This is needed once, with a network. {MIRROR} names a mirror of Maven Central, "
                "HTTPS_PROXY a proxy, SSL_CERT_FILE a file of trusted certificates."
            ) from failures[0]
        report(f"{self.title} is there")


def read_lock(text: str) -> tuple[Locked, ...]:
    """Read the jars of a lock; lines that begin with # are comments."""
    rows = (line.split() for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return tuple(Locked(path, int(size), sha256) for sha256, size, path in rows)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""


def _keep(path: Path, content: bytes) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as work:
        part = Path(work) / path.name
        part.write_bytes(content)
        part.replace(path)


@contextlib.contextmanager
def _keeping(title: str, cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FetchFailed(f"cannot keep {title} in {cache}: {error}; set KIWI_GW_CACHE") from error


def default_cache() -> Path:
    """Return where what is fetched or made once is kept, outside of any clone: `$KIWI_GW_CACHE`, else
    `$XDG_CACHE_HOME/kiwi-gw`, else `~/.cache/kiwi-gw`."""
    own = os.environ.get("KIWI_GW_CACHE")
    if own:
        return Path(own).absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (base / "kiwi-gw").absolute()
