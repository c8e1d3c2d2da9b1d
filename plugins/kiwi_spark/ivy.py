"""Sets of jars that are locked by hash: fetched once from where Ivy looks by default, then kept and checked.

Ivy comes inside pyspark. What it has to deliver is in a lock: every jar with its SHA-256, in the format of
`sha256sum`. A folder of the cache is only ever a whole, checked set of jars: a download that stops in the
middle is not seen by anyone, and goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import trio

from kiwi_gw.api import KiwiError
from kiwi_spark.java import java_home

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_LOCK_POLL = 0.2  # seconds; the lock is another process's, nothing here can be told when it is let go


class FetchFailed(KiwiError):  # noqa: N818  (it says what happened)
    """Jars are not there and could not be fetched, or are not the ones that are locked."""


@dataclass(frozen=True, slots=True)
class Module:
    """One module of a Maven repository. alone: without what it depends on."""

    organisation: str
    name: str
    version: str
    alone: bool = False


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that belong together.

    title: for people. folder: its name in the cache. modules: what is asked for; of what that brings,
    the jars of `lock` (name to SHA-256 in hex) are kept. megabytes: what a download comes to, for people.
    """

    title: str
    folder: str
    modules: tuple[Module, ...]
    lock: Mapping[str, str]
    megabytes: int

    def paths(self, cache: Path) -> list[Path]:
        """Where the jars are, or will be, in the lock's order."""
        return [cache / self.folder / name for name in self.lock]

    async def fetch(self, cache: Path, report: Callable[[str], None] = lambda line: None) -> list[Path]:
        """The jars, in the lock's order; fetched if they are not in `cache` yet.

        `report` is told about the progress of a download, in lines for people. With the jars there no
        network is needed. Two processes that need them at the same time fetch them once. Raises
        `FetchFailed`, `JavaNotFound`.
        """
        target = cache / self.folder
        if not differences(target, self.lock):
            return self.paths(cache)
        _make(cache, self.title)
        async with _only_one(cache / "fetch.lock"):
            if differences(target, self.lock):
                await _fetch_into(target, self, report)
        return self.paths(cache)


def read_lock(text: str) -> dict[str, str]:
    """Jar name -> SHA-256 in hex, of lines as `sha256sum` writes them."""
    pairs = (line.split() for line in text.splitlines() if line.strip())
    return {name: digest for digest, name in pairs}


def differences(folder: Path, lock: Mapping[str, str]) -> list[str]:
    """What is wrong with the jars in `folder`, one line per jar; empty if all are as locked."""
    wrong = []
    for name, digest in lock.items():
        try:
            with (folder / name).open("rb") as jar:
                found = hashlib.file_digest(jar, "sha256").hexdigest()
        except FileNotFoundError:
            wrong.append(f"{name} is missing")
            continue
        if found != digest:
            wrong.append(f"{name} is not the one that is locked (its SHA-256 is {found})")
    return wrong


def _make(cache: Path, title: str) -> None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FetchFailed(f"cannot keep {title} in {cache}: {error}; set KIWI_GW_CACHE") from error


async def _fetch_into(target: Path, jars: JarSet, report: Callable[[str], None]) -> None:
    cache = target.parent
    downloads = cache / "ivy"  # kept after a failure, so that the next try goes on from there
    report(f"fetching {jars.title}: {len(jars.lock)} jars, {jars.megabytes} MB, once, into {cache}")
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache) as work:
        fresh = Path(work) / "jars"
        await _run_ivy(jars, Path(work), fresh, downloads, report)
        wrong = differences(fresh, jars.lock)
        if wrong:
            shutil.rmtree(downloads, ignore_errors=True)
            raise FetchFailed("what was fetched is not what is locked:\n  " + "\n  ".join(wrong))
        _put_in_place(fresh, target, jars.lock, Path(work) / "old")
    shutil.rmtree(downloads, ignore_errors=True)
    report(f"{jars.title} is there")


def _put_in_place(fresh: Path, target: Path, lock: Mapping[str, str], aside: Path) -> None:
    for extra in {jar.name for jar in fresh.iterdir()} - lock.keys():
        (fresh / extra).unlink()
    if target.exists():  # incomplete, or changed by someone
        target.rename(aside)
    fresh.rename(target)


def _ivy_file(modules: Iterable[Module]) -> str:
    lines = [
        f'    <dependency org="{one.organisation}" name="{one.name}" rev="{one.version}" conf="default"'
        + (' transitive="false"/>' if one.alone else "/>")
        for one in modules
    ]
    return "\n".join(
        (
            '<ivy-module version="2.0">',
            '  <info organisation="kiwi-gw" module="jars"/>',
            "  <dependencies>",
            *lines,
            "  </dependencies>",
            "</ivy-module>",
            "",
        )
    )


async def _run_ivy(
    jars: JarSet, work: Path, into: Path, downloads: Path, report: Callable[[str], None]
) -> None:
    ivy_file = work / "ivy.xml"
    ivy_file.write_text(_ivy_file(jars.modules))
    home = await trio.to_thread.run_sync(java_home, downloads.parent)
    command: list[str] = [
        str(home / "bin" / "java"),
        *_trust_options(work),
        *("-jar", str(_ivy_jar()), "-cache", str(downloads), "-ivy", str(ivy_file), "-confs", "default"),
        *("-retrieve", str(into / "[artifact]-[revision](-[classifier]).[ext]")),
    ]
    said: list[str] = []
    found = fetched = 0
    async with trio.open_nursery() as nursery:  # leaving it by a cancel kills the process
        process = await nursery.start(
            partial(trio.run_process, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        )
        pending = b""
        async for chunk in process.stdout:
            *lines, pending = (pending + chunk).split(b"\n")
            for line in (raw.decode(errors="replace").strip() for raw in lines):
                said.append(line)
                if line.startswith("found "):
                    found += 1
                    if found % 10 == 0:
                        report(f"  {found} modules found")
                elif "[SUCCESSFUL ]" in line:
                    fetched += 1
                    jar = line.split("!")[-1].split("(")[0].strip()
                    report(f"  {fetched}: {jar}")
    if process.returncode != 0:
        failures = [line for line in said if "error" in line.lower() or "not found" in line.lower()]
        detail = "".join(f"\n    {line}" for line in (failures or said)[:8])
        raise FetchFailed(
            f"{jars.title} could not be fetched (this is needed once, with a network; "
            "a proxy goes into JAVA_TOOL_OPTIONS, own certificates into SSL_CERT_FILE)." + detail
        )


def _ivy_jar() -> Path:
    spark = find_spec("pyspark")  # found, not imported
    if spark is None or spark.origin is None:
        raise FetchFailed("Ivy, which fetches jars, comes with pyspark: pip install 'kiwi-gw[spark]'")
    found = sorted((Path(spark.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise FetchFailed(f"there is no ivy-*.jar in pyspark's folder {Path(spark.origin).parent / 'jars'}")
    return found[-1]


def _trust_options(work: Path) -> list[str]:
    """Java knows nothing of SSL_CERT_FILE: where it is set, its certificates become Java's trust store."""
    bundle = os.environ.get("SSL_CERT_FILE")
    if not bundle or not Path(bundle).is_file() or find_spec("cryptography") is None:
        return []
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
    from cryptography.utils import CryptographyDeprecationWarning

    entries = []
    for number, pem in enumerate(_PEM.findall(Path(bundle).read_bytes())):
        with contextlib.suppress(ValueError), warnings.catch_warnings():
            # Every system's bundle has a few old certificates that a strict parser does not like.
            warnings.simplefilter("ignore", CryptographyDeprecationWarning)
            entries.append(
                pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(pem), f"ca-{number}".encode())
            )
    store = work / "trust.p12"
    store.write_bytes(pkcs12.serialize_java_truststore(entries, BestAvailableEncryption(b"changeit")))
    return [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStorePassword=changeit"]


@contextlib.asynccontextmanager
async def _only_one(path: Path) -> AsyncIterator[None]:
    with path.open("w") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await trio.sleep(_LOCK_POLL)
        yield
