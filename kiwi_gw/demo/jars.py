"""The broker's own jars: Apache Kafka, fetched once from where Ivy looks by default, then kept and checked.

Ivy comes inside pyspark. What it has to deliver is locked: `broker-jars.sha256` names every jar with
its hash, in the format of `sha256sum`. A cache directory is only ever a whole, checked set of jars: a
download that stops in the middle is not seen by anyone, and goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import AsyncIterator, Callable
from functools import partial
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

import trio

from kiwi_gw.demo.java import JavaNotFound, find_java
from kiwi_gw.errors import KiwiError

KAFKA_VERSION = "4.1.0"
_SLF4J_VERSION = "1.7.36"  # the version of slf4j-api that Kafka depends on

# slf4j-simple writes the broker's log to stderr; without a binding Kafka would log nothing at all.
_IVY_FILE = f"""<ivy-module version="2.0">
  <info organisation="kiwi-gw" module="broker"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}" conf="default"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="{_SLF4J_VERSION}" conf="default"/>
  </dependencies>
</ivy-module>
"""

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_LOCK_POLL = 0.2  # seconds; the lock is another process's, nothing here can be told when it is let go


class FetchFailed(KiwiError):  # noqa: N818  (it says what happened)
    """The broker's jars are not there and could not be fetched, or are not the ones that are locked."""


def default_cache() -> Path:
    """`$KIWI_GW_CACHE`, else `$XDG_CACHE_HOME/kiwi-gw`, else `~/.cache/kiwi-gw`."""
    own = os.environ.get("KIWI_GW_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kiwi-gw"


def locked_jars() -> dict[str, str]:
    """Jar name -> SHA-256 in hex, as committed with this package."""
    text = resources.files("kiwi_gw.demo").joinpath("broker-jars.sha256").read_text()
    pairs = (line.split() for line in text.splitlines() if line.strip())
    return {name: digest for digest, name in pairs}


async def fetch_broker(
    cache_dir: Path | None = None, report: Callable[[str], None] = lambda line: None
) -> list[Path]:
    """The broker's jars, in the lock's order; fetched if they are not in `cache_dir` yet.

    `report` is told about the progress of a download, in lines for people. With the jars there no
    network is needed. Two processes that need them at the same time fetch them once. Raises `FetchFailed`.
    """
    cache = cache_dir or default_cache()
    lock = locked_jars()
    target = cache / f"kafka-{KAFKA_VERSION}"
    if not differences(target, lock):
        return [target / name for name in lock]
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FetchFailed(f"cannot keep the broker in {cache}: {error}; set KIWI_GW_CACHE") from error
    async with _only_one(cache / "fetch.lock"):
        if differences(target, lock):
            await _fetch_into(target, lock, report)
    return [target / name for name in lock]


def differences(folder: Path, lock: dict[str, str]) -> list[str]:
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


async def _fetch_into(target: Path, lock: dict[str, str], report: Callable[[str], None]) -> None:
    cache = target.parent
    downloads = cache / "ivy"  # kept after a failure, so that the next try goes on from there
    report(f"fetching Apache Kafka {KAFKA_VERSION}: {len(lock)} jars, 43 MB, once, into {cache}")
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache) as work:
        fresh = Path(work) / "jars"
        await _run_ivy(Path(work), fresh, downloads, report)
        wrong = differences(fresh, lock)
        if wrong:
            shutil.rmtree(downloads, ignore_errors=True)
            raise FetchFailed("what was fetched is not what is locked:\n  " + "\n  ".join(wrong))
        _put_in_place(fresh, target, lock, Path(work) / "old")
    shutil.rmtree(downloads, ignore_errors=True)
    report(f"Apache Kafka {KAFKA_VERSION} is there")


def _put_in_place(fresh: Path, target: Path, lock: dict[str, str], aside: Path) -> None:
    for extra in {jar.name for jar in fresh.iterdir()} - lock.keys():
        (fresh / extra).unlink()
    if target.exists():  # incomplete, or changed by someone
        target.rename(aside)
    fresh.rename(target)


async def _run_ivy(work: Path, into: Path, downloads: Path, report: Callable[[str], None]) -> None:
    ivy_file = work / "ivy.xml"
    ivy_file.write_text(_IVY_FILE)
    java = await trio.to_thread.run_sync(find_java)
    command: list[str] = [
        str(java),
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
            "the broker's jars could not be fetched (this is needed once, with a network; "
            "a proxy goes into JAVA_TOOL_OPTIONS, own certificates into SSL_CERT_FILE)." + detail
        )


def _ivy_jar() -> Path:
    spark = find_spec("pyspark")  # found, not imported
    if spark is None or spark.origin is None:
        raise FetchFailed("Ivy, which fetches the broker, comes with pyspark: pip install 'kiwi-gw[demo]'")
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


def main() -> None:
    """`python -m kiwi_gw.demo.jars`: has the jars ready, as the set-up does. Exit code 1 if that fails."""
    try:
        trio.run(fetch_broker, None, lambda line: print(line, file=sys.stderr, flush=True))
    except* (FetchFailed, JavaNotFound) as failures:
        sys.exit("\n".join(str(error) for error in failures.exceptions))


if __name__ == "__main__":
    main()
