"""Sets of jars that are locked by hash: fetched once, then kept and checked.

A lock has a line for every jar: its SHA-256 in hex, its size in bytes, and its path in a Maven repository. A
jar gets its name in the cache when it is checked, so a fetch that ended early goes on with what is missing,
and two at the same time do no harm.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from kiwi_spark.java.maven import MIRROR, FetchFailed, Locked, Repository

_AT_ONCE = 3


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
        done = 0

        async def one(jar: Locked) -> None:
            nonlocal done
            async with free:
                try:
                    content = await repository.get(jar)
                    with _keeping(self.title, cache):
                        await trio.to_thread.run_sync(_keep, cache / self.folder / jar.name, content)
                except FetchFailed as error:
                    failures.append(error)
                    nursery.cancel_scope.cancel()
                    return
            done += 1
            report(f"  {done} of {len(missing)}: {jar.name}")

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
