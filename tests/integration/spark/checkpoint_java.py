"""Java of tests, compiled and started with what it tests: no Spark, a JVM of its own."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pyspark
import trio

from kiwi_spark.java.class_sources import OPTIONS, pack
from kiwi_spark.java.classes import COMPILER, classes_jar
from kiwi_spark.java.home import java_home
from kiwi_spark.java.jar_set import default_cache

STOCK = "org.apache.hadoop.fs.local.LocalFs"
OURS = "kiwigw.spark.DirectLocalFs"

_ROOT = Path(__file__).parents[3]
_JARS = Path(pyspark.__file__).parent / "jars"
_SOURCES = Path(__file__).parent / "jvm"


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
    class_path = os.pathsep.join([str(classes_of_tests()), str(classes_of_plugin()), str(_JARS / "*")])
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
def classes_of_plugin() -> Path:
    """The jar with the plugin's classes, as a gateway uses it."""
    return trio.run(classes_jar)


@cache
def classes_of_tests() -> Path:
    """A jar with the classes of tests, which use the plugin's."""
    content = hashlib.sha256(classes_of_plugin().read_bytes())
    for file in _sources():
        content.update(file.read_bytes())
    jar = _ROOT / "build" / f"classes-of-tests-{content.hexdigest()[:16]}.jar"
    if not jar.exists():
        jar.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=jar.parent) as work:
            _compile(Path(work) / "classes")
            pack(Path(work) / "classes", Path(work) / "made.jar", content.hexdigest())
            (Path(work) / "made.jar").replace(jar)
    return jar


def _sources() -> list[Path]:
    """Java of tests."""
    return sorted(_SOURCES.rglob("*.java"))


def _compile(into: Path) -> None:
    (compiler,) = COMPILER.paths(default_cache())
    class_path = os.pathsep.join(map(str, [classes_of_plugin(), *sorted(_JARS.glob("*.jar"))]))
    words = [_java(), "-jar", compiler, *OPTIONS, "-cp", class_path, "-d", into, *_sources()]
    done = subprocess.run(
        [str(word) for word in words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
