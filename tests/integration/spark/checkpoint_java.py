"""Java of tests, and what it tests, compiled and started: no Spark, a JVM of its own."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pyspark
import pytest

import kiwi_spark
from kiwi_spark.java.home import java_home
from kiwi_spark.java.jar_set import default_cache

STOCK = "org.apache.hadoop.fs.local.LocalFs"
OURS = "kiwigw.spark.DirectLocalFs"

_ROOT = Path(__file__).parents[3]
_JARS = Path(pyspark.__file__).parent / "jars"
_SOURCES = (Path(kiwi_spark.__file__).parent / "jvm", Path(__file__).parent / "jvm")


def start(main: str, *arguments: object, folder: Path, within: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Starts a program of `jvm/kiwigw/tests`, with pipes; what it logs goes to a file in the folder.

    within: a command that starts it, and what comes before it there.
    """
    quiet = folder / "log4j.properties"
    quiet.write_text("rootLogger.level = off\n")
    options = [
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Xmx256m",
        f"-Dlog4j2.configurationFile={quiet}",
    ]
    class_path = os.pathsep.join([str(classes_of_tests()), str(_JARS / "*")])
    with (folder / "stderr").open("a") as log:
        return subprocess.Popen(
            [
                *within,
                str(_java()),
                *options,
                "-cp",
                class_path,
                f"kiwigw.tests.{main}",
                *map(str, arguments),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            text=True,
        )


def output(main: str, *arguments: object, folder: Path) -> list[str]:
    """The lines of a program that comes to its end."""
    with start(main, *arguments, folder=folder) as process:
        out, _ = process.communicate()
    assert process.returncode == 0, (folder / "stderr").read_text()[-4000:]
    return out.splitlines()


@cache
def _java() -> Path:
    return java_home() / "bin" / "java"


@cache
def classes_of_tests() -> Path:
    """A jar with the plugin's classes and those of tests."""
    if tuple(map(int, version("pyspark").split(".")[:2])) < (4, 2):
        pytest.skip("the tests of checkpoints look for Spark's classes where PySpark 4.2 has them")
    sources = sorted(file for folder in _SOURCES for file in folder.rglob("*.java"))
    content = hashlib.sha256(version("pyspark").encode())
    for file in sources:
        content.update(file.read_bytes())
    jar = _ROOT / "build" / f"classes-of-tests-{content.hexdigest()[:16]}.jar"
    if not jar.exists():
        jar.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=jar.parent) as work:
            _compile(Path(work) / "classes")
            _pack(Path(work) / "classes", Path(work) / "made.jar")
            (Path(work) / "made.jar").replace(jar)
    return jar


def _compile(into: Path) -> None:
    command = [_java(), "-jar", _compiler(), "-17", "-encoding", "UTF-8", "-warn:none"]
    class_path = os.pathsep.join(map(str, sorted(_JARS.glob("*.jar"))))
    done = subprocess.run(
        [*map(str, command), "-cp", class_path, "-d", str(into), *map(str, _SOURCES)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]


def _compiler() -> Path:
    """The Eclipse compiler: $KIWI_GW_ECJ, or in the cache."""
    named = os.environ.get("KIWI_GW_ECJ")
    found = [Path(named)] if named else sorted(default_cache().glob("*/ecj-*.jar"))
    if not found:
        pytest.skip("the Eclipse compiler is not there: KIWI_GW_ECJ names its jar")
    return found[-1]


def _pack(classes: Path, jar: Path) -> None:
    with zipfile.ZipFile(jar, "w") as file:
        for one in sorted(classes.rglob("*.class")):
            file.write(one, one.relative_to(classes))
