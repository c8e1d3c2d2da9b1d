"""The jar with this plugin's own classes for Spark's JVM: shipped with a wheel, else compiled once.

No JDK is needed: the compiler, Eclipse's, is a jar that is locked like the others.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata, resources
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import trio

from kiwi_gw.api import KiwiError
from kiwi_spark.java.class_sources import JAR, OPTIONS, PACKAGE, java_sources, made_of, pack, sources_digest
from kiwi_spark.java.connector import SPARK_VERSION, connector_conf, fetch_connector
from kiwi_spark.java.home import java_home
from kiwi_spark.java.jar_set import JarSet, default_cache, read_lock

_LOCKED = read_lock(resources.files("kiwi_spark.java").joinpath("compiler-jar.lock").read_text())

COMPILER: Final = JarSet(
    title="Eclipse's compiler for Java",
    folder=_LOCKED[0].name.removesuffix(".jar"),
    jars=_LOCKED,
)

_LONGEST = 300.0
"""Seconds that a compilation may take; 2 are usual."""

_AT_MOST = 10
"""Errors that are shown."""


class CompileFailed(KiwiError):  # noqa: N818  (it says what happened)
    """The classes could not be compiled, or their jar not be kept. The message has file and line."""


async def classes_jar(
    cache_dir: Path | None = None,
    report: Callable[[str], None] = lambda line: None,
    package: Path = PACKAGE,
) -> Path:
    """Return the jar: the one that lies in `package`, if it is made of the sources that lie there, for the
    Spark that is locked there; else one in the cache, made if need be.

    Where there is one, this only reads files. Else it needs Java, pyspark's jars, and once a network.
    `report` is called with the progress, in lines for people. Raises `JavaNotFound`, `FetchFailed` (the
    compiler, the connector) and `CompileFailed`. Several who make one at the same time do no harm.
    """
    cache = (cache_dir or default_cache()).absolute()
    digest = await trio.to_thread.run_sync(sources_digest, package)
    kept = cache / f"spark-classes-{digest}" / JAR
    for jar in (package / "java" / JAR, kept):
        if await trio.to_thread.run_sync(made_of, jar) == digest:
            return jar
    java = await trio.to_thread.run_sync(java_home, cache)
    class_path = [*spark_jars(), *await fetch_connector(cache, report)]
    compiler = await COMPILER.fetch(cache, report)
    report(f"compiling the classes for Spark's JVM, once, into {kept.parent}")
    try:
        await _make(
            kept, digest, [str(java / "bin" / "java"), "-jar", *map(str, compiler)], class_path, package
        )
    except OSError as error:
        raise CompileFailed(f"cannot make {kept}: {error}; set KIWI_GW_CACHE") from error
    return kept


def jars_conf(given: Mapping[str, str] | None = None, cache_dir: Path | None = None) -> dict[str, str]:
    """Return what a session's configuration needs so that Spark has the connector and our classes:
    `spark.jars`. They are those of `fetch_connector` and `classes_jar`. given: as in `connector_conf`."""
    user = given or {}
    digest = sources_digest(PACKAGE)
    kept = (cache_dir or default_cache()).absolute() / f"spark-classes-{digest}" / JAR
    beside = PACKAGE / "java" / JAR
    jars = connector_conf(user, cache_dir).get("spark.jars", user.get("spark.jars", ""))
    return {"spark.jars": ",".join(filter(None, (jars, str(beside if made_of(beside) == digest else kept))))}


async def _make(
    kept: Path, digest: str, compiler: Sequence[str], class_path: Sequence[Path], package: Path
) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as work:
        classes, fresh = Path(work) / "classes", Path(work) / JAR
        sources = [str(path) for path in java_sources(package)]
        path = os.pathsep.join(map(str, class_path))
        await _run([*compiler, *OPTIONS, "-Xemacs", "-cp", path, "-d", str(classes), *sources])
        await trio.to_thread.run_sync(pack, classes, fresh, digest)
        fresh.replace(kept)  # others see all of it or nothing


async def _run(command: list[str]) -> None:
    with trio.move_on_after(_LONGEST):
        ran = await trio.run_process(command, capture_stdout=True, stderr=subprocess.STDOUT, check=False)
        if ran.returncode != 0:
            raise CompileFailed(_in_words(ran.returncode, ran.stdout.decode(errors="replace")))
        return
    raise CompileFailed(f"the classes for Spark's JVM were not compiled within {_LONGEST:g} s")


def _in_words(code: int, said: str) -> str:
    """Return the compiler's errors, `FILE.java:LINE: error: ...` each, or the end of all that it said."""
    errors = re.findall(r"^.+\.java:\d+: error: .+$", said, re.MULTILINE)
    lines = errors[:_AT_MOST] or said.strip().splitlines()[-_AT_MOST:] or [f"it ended with {code}"]
    more = [f"and {len(errors) - _AT_MOST} more"] if len(errors) > _AT_MOST else []
    return "\n  ".join(["the classes for Spark's JVM do not compile:", *lines, *more])


def spark_jars() -> list[Path]:
    """Find the jars of the installed pyspark, sorted. CompileFailed: it is not there, or another version."""
    found = find_spec("pyspark")  # without importing it
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        version = "none"
    if found is None or found.origin is None or version != SPARK_VERSION:
        raise CompileFailed(
            f"the classes for Spark's JVM are compiled with pyspark {SPARK_VERSION}, and there is {version}: "
            "pip install 'kiwi-gw[spark]'"
        )
    return sorted(Path(found.origin).parent.joinpath("jars").glob("*.jar"))


def main() -> None:
    """Put the jar where the wheel is packed from (`make wheel`). Exit code 1 if that fails."""
    beside = PACKAGE / "java" / JAR
    try:
        jar = trio.run(classes_jar, None, lambda line: print(line, file=sys.stderr, flush=True))
    except KiwiError as failure:
        sys.exit(str(failure))
    if jar != beside:
        with tempfile.TemporaryDirectory(dir=beside.parent) as work:
            (Path(work) / JAR).write_bytes(jar.read_bytes())
            (Path(work) / JAR).replace(beside)


if __name__ == "__main__":
    main()
