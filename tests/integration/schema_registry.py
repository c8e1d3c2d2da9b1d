"""A real schema registry: Apicurio Registry with what it keeps in memory, by Confluent's REST API.

It is another implementation than Confluent's, whose jars are not in Maven Central. The first use fetches it
(142 MB), from there or from the mirror that `KIWI_GW_MAVEN` names.
"""

from __future__ import annotations

import json
import tarfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import trio

from kiwi_demo.loopback import HOST, free_ports
from kiwi_demo.process import Child, tail
from kiwi_spark.java.home import java_home
from kiwi_spark.java.jar_set import JarSet, Locked, default_cache
from tests.plugins.kafka.registry_server import registry_server

_VERSION: Final = "2.6.13.Final"
_NAME: Final = f"apicurio-registry-app-{_VERSION}"
_REGISTRY: Final = JarSet(
    title=f"Apicurio Registry {_VERSION}",
    folder=_NAME,
    jars=(
        Locked(
            f"io/apicurio/apicurio-registry-app/{_VERSION}/{_NAME}-all.tar.gz",
            142_198_683,
            "3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba",
        ),
    ),
)
APICURIO: Final = (pytest.mark.extended, pytest.mark.timeout(900))
"""Marks of tests with it: the first of them may have to fetch it."""

_STARTS_WITHIN: Final = 90.0
_LOOK_SECONDS: Final = 0.2


@asynccontextmanager
async def apicurio(folder: Path) -> AsyncIterator[str]:
    """Run a registry in which new versions of a subject must be able to read the last one (BACKWARD). Yields
    the address of its API."""
    (archive,) = await _REGISTRY.fetch(default_cache())
    home = folder / "registry"
    await trio.to_thread.run_sync(_unpack, archive, home)
    (port,) = free_ports(1)
    java = await trio.to_thread.run_sync(java_home) / "bin" / "java"
    options = f"-Dquarkus.http.host={HOST}", f"-Dquarkus.http.port={port}", "-XX:TieredStopAtLevel=1"
    log = folder / "registry.log"
    child = await Child.start([java, "-Xmx512m", *options, "-jar", home / f"{_NAME}-runner.jar"], log)
    url = f"http://{HOST}:{port}/apis/ccompat/v7"
    try:
        await _ready(url, child, log)
        yield url
    finally:
        await child.kill()


def _unpack(archive: Path, home: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(home, filter="data")


async def _ready(url: str, child: Child, log: Path) -> None:
    with trio.fail_after(_STARTS_WITHIN):
        while not await trio.to_thread.run_sync(_set_rule, url):
            if child.returncode is not None:
                raise AssertionError(f"the registry has ended: {tail(log)}")
            await trio.sleep(_LOOK_SECONDS)


def _set_rule(url: str) -> bool:
    """Set the rule for all subjects; whether it answers."""
    body = json.dumps({"compatibility": "BACKWARD"}).encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(f"{url}/config", body, headers, method="PUT")  # noqa: S310  (it is ours)
    try:
        with urllib.request.urlopen(request, timeout=10):  # noqa: S310
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except OSError:
        return False


@pytest.fixture(params=["stand-in", pytest.param("Apicurio", marks=APICURIO)])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Run both, one after the other: the stand-in, and the real one. Yields the address."""
    if request.param == "stand-in":
        with registry_server() as server:
            yield server.url
    else:
        async with apicurio(tmp_path) as address:
            yield address
