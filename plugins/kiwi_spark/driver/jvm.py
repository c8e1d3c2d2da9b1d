"""The JVM of this process: a child of it, without which it can do nothing."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

_NOTICED_SECONDS: Final = 2.0
"""A connection to a JVM that was killed breaks a moment before the process is seen to have ended."""


def process() -> subprocess.Popen[bytes] | None:
    """Return its process; None before there is one, and where Spark is somewhere else (Spark Connect)."""
    found: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return found


def watch(ended: Callable[[int], None]) -> None:
    """Have `ended` called with the exit code of the JVM, in a thread of its own, once it has one."""
    child = process()
    if child is not None:
        threading.Thread(target=lambda: ended(child.wait()), name="jvm", daemon=True).start()


def is_why(error: BaseException) -> bool:
    """Return whether an error is only what the end of the JVM looks like from here."""
    child = process()
    if child is None:
        return False
    broken = isinstance(error, OSError | Py4JError) and not isinstance(error, Py4JJavaError)
    try:
        child.wait(_NOTICED_SECONDS if broken else 0)
    except subprocess.TimeoutExpired:
        return False
    return True
