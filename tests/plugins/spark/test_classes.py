"""The classes for Spark's JVM: compiled once, kept by what they are made of, and in every wheel."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import pytest
import trio
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from kiwi_spark.java import classes
from kiwi_spark.java.class_sources import JAR, PACKAGE, java_sources, made_of, pack, sources_digest
from kiwi_spark.java.classes import COMPILER, CompileFailed, classes_jar
from kiwi_spark.java.connector import CONNECTOR
from kiwi_spark.java.home import JavaNotFound
from kiwi_spark.java.jar_set import FetchFailed, JarSet, default_cache
from tests.plugins.spark.maven_server import MavenServer

ROOT = PACKAGE.parents[1]

SMALL = """package kiwigw.spark;

/** Names its Spark. */
public final class Small {
  public static String version(org.apache.spark.SparkContext context) {
    return context.version();
  }
}
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder like `kiwi_spark`, with one source that needs Spark, and no jar."""
    made = tmp_path / "package"
    (made / "jvm/kiwigw/spark").mkdir(parents=True)
    (made / "jvm/kiwigw/spark/Small.java").write_text(SMALL)
    (made / "java").mkdir()
    for lock in PACKAGE.glob("java/*.lock"):
        shutil.copy(lock, made / "java")
    return made


@pytest.fixture
def cache(maven: MavenServer, tmp_path: Path) -> Path:
    """A cache with the jars that `make jars` has put into the usual one. The repository has none."""
    own = tmp_path / "cache"
    for jars in (COMPILER, CONNECTOR):
        (own / jars.folder).mkdir(parents=True)
        for jar in jars.paths(default_cache()):
            (own / jars.folder / jar.name).symlink_to(jar)
    return own


def kept(cache: Path) -> list[str]:
    """What is in the cache's folders of classes."""
    return sorted(str(path.relative_to(folder)) for folder in folders(cache) for path in folder.rglob("*"))


def folders(cache: Path) -> list[Path]:
    return sorted(cache.glob("spark-classes-*"))


def a_jar(jar: Path, digest: str, content: bytes = b"a class") -> Path:
    (folder := jar.parent / "classes").mkdir(parents=True)
    (folder / "A.class").write_bytes(content)
    pack(folder, jar, digest)
    shutil.rmtree(folder)
    return jar


def digest_with(package: Path, file: str, text: str) -> str:
    (package / file).write_text(text)
    return sources_digest(package)


def no_java(cache: Path) -> Path:
    raise JavaNotFound("no Java")


def test_a_digest_changes_with_names_contents_compiler_and_spark(package: Path) -> None:
    small, locks = "jvm/kiwigw/spark/Small.java", sorted(package.glob("java/*.lock"))
    digests = [sources_digest(package), digest_with(package, small, SMALL + "\n")]
    (package / small).rename(package / "jvm/kiwigw/spark/Tall.java")
    digests.append(sources_digest(package))
    digests += [digest_with(package, f"java/{lock.name}", lock.read_text() + "\n") for lock in locks]
    assert len(set(digests)) == len(digests) == 5
    assert {len(bytes.fromhex(digest)) for digest in digests} == {16}


def test_a_jar_has_the_same_bytes_whenever_it_is_packed(tmp_path: Path) -> None:
    one, other = (a_jar(tmp_path / name / JAR, "ab" * 16) for name in ("one", "other"))
    os.utime(one, (0, 0))
    assert one.read_bytes() == other.read_bytes()
    assert made_of(one) == "ab" * 16
    with zipfile.ZipFile(one) as archive:
        assert archive.namelist() == ["META-INF/MANIFEST.MF", "A.class"]


def test_no_part_of_a_jar_is_taken_for_a_jar(tmp_path: Path) -> None:
    content = a_jar(tmp_path / JAR, "ab" * 16).read_bytes()
    for length in range(len(content)):
        (tmp_path / JAR).write_bytes(content[:length])
        assert made_of(tmp_path / JAR) == ""
    (tmp_path / JAR).write_bytes(content.replace(b"a class", b"a clasS", 1))
    assert made_of(tmp_path / JAR) == ""
    assert made_of(tmp_path / "none") == made_of(tmp_path) == ""


async def test_the_jar_beside_its_sources_is_taken_and_needs_neither_java_nor_network(
    package: Path, maven: MavenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classes, "java_home", no_java)
    shipped = a_jar(package / "java" / JAR, sources_digest(package))
    assert await classes_jar(tmp_path / "cache", package=package) == shipped
    assert not (tmp_path / "cache").exists()
    assert maven.paths == []


async def test_a_jar_of_other_sources_or_half_of_one_is_not_taken(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classes, "java_home", no_java)
    a_jar(package / "java" / JAR, "ab" * 16)
    half = a_jar(tmp_path / f"cache/spark-classes-{sources_digest(package)}" / JAR, sources_digest(package))
    assert await classes_jar(tmp_path / "cache", package=package) == half
    half.write_bytes(half.read_bytes()[:-30])
    with pytest.raises(JavaNotFound):  # as none of the two is taken
        await classes_jar(tmp_path / "cache", package=package)


@pytest.mark.slow
async def test_it_is_compiled_once_by_two_at_a_time_without_a_network(
    package: Path, cache: Path, maven: MavenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(classes_jar, cache, said.append, package)
        nursery.start_soon(classes_jar, cache, said.append, package)
    (folder,) = folders(cache)
    assert said == [f"compiling the classes for Spark's JVM, once, into {folder}"] * 2
    assert kept(cache) == [JAR]
    with zipfile.ZipFile(folder / JAR) as archive:
        assert archive.namelist() == ["META-INF/MANIFEST.MF", "kiwigw/spark/Small.class"]
    monkeypatch.setattr(classes, "java_home", no_java)
    assert await classes_jar(cache, package=package) == folder / JAR
    assert made_of(folder / JAR) == sources_digest(package) == folder.name.removeprefix("spark-classes-")
    assert maven.paths == []


@pytest.mark.slow
async def test_a_compile_error_is_said_with_file_and_line_and_nothing_is_kept(
    package: Path, cache: Path
) -> None:
    source = package / "jvm/kiwigw/spark/Small.java"
    source.write_text(SMALL.replace("context.version()", "context.motto()"))
    with pytest.raises(CompileFailed) as caught:
        await classes_jar(cache, package=package)
    first, second = str(caught.value).splitlines()
    assert first == "the classes for Spark's JVM do not compile:"
    assert second.startswith(f"  {source}:6: error: The method motto() is undefined")
    assert kept(cache) == []


async def test_a_compilation_that_is_cancelled_leaves_nothing(
    package: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "home/bin/java"
    program.parent.mkdir(parents=True)
    started = tmp_path / "started"
    os.mkfifo(started)
    program.write_text(f"#!/bin/sh\necho yes > {started}\nexec sleep 100\n")
    program.chmod(0o755)
    monkeypatch.setattr(classes, "java_home", lambda cache: tmp_path / "home")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(classes_jar, cache, lambda line: None, package)
        assert await trio.to_thread.run_sync(started.read_text, abandon_on_cancel=True) == "yes\n"
        nursery.cancel_scope.cancel()
    assert kept(cache) == []


async def test_what_is_missing_for_it_is_said(
    package: Path, cache: Path, maven: MavenServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(classes, "java_home", lambda cache: tmp_path / "none")
    with pytest.raises(CompileFailed, match=r"cannot make .*none/bin/java.*; set KIWI_GW_CACHE"):
        await classes_jar(cache, package=package)
    assert kept(cache) == []
    monkeypatch.setattr(classes, "COMPILER", JarSet("The compiler", "other", COMPILER.jars))
    with pytest.raises(FetchFailed, match="The compiler could not be fetched"):
        await classes_jar(cache, package=package)
    monkeypatch.setattr(classes, "SPARK_VERSION", "9.0.0")
    with pytest.raises(CompileFailed, match=r"with pyspark 9\.0\.0, and there is .*pip install"):
        await classes_jar(cache, package=package)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheel is packed from, copied."""
    copy = tmp_path_factory.mktemp("project")
    for name in ("kiwi_gw", "plugins", "config"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.jar"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, copy)
    return copy


def wheel(project: Path, to: Path) -> Path:
    """Pack the wheel from the sdist, as whoever installs the project from that does."""
    (sdist,) = SdistBuilder(str(project)).build(directory=str(to), versions=["standard"])
    shutil.unpack_archive(sdist, to, filter="data")
    unpacked = to / Path(sdist).name.removesuffix(".tar.gz")
    (made,) = WheelBuilder(str(unpacked)).build(directory=str(to), versions=["standard"])
    return Path(made)


@pytest.mark.slow
async def test_the_wheel_has_the_classes_of_its_sources(project: Path, tmp_path: Path) -> None:
    shutil.copy(await classes_jar(), project / "plugins/kiwi_spark/java" / JAR)
    with zipfile.ZipFile(wheel(project, tmp_path)) as archive:
        archive.extractall(tmp_path / "installed")
    installed = tmp_path / "installed/kiwi_spark"
    assert await classes_jar(tmp_path / "cache", package=installed) == installed / "java" / JAR
    names = {path.relative_to(installed / "jvm") for path in java_sources(installed)}
    assert names == {path.relative_to(PACKAGE / "jvm") for path in java_sources()}
    with zipfile.ZipFile(installed / "java" / JAR) as archive:
        assert {str(name.with_suffix(".class")) for name in names} <= set(archive.namelist())


@pytest.mark.slow
def test_a_stale_jar_is_in_no_wheel(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "plugins/kiwi_spark/java" / JAR).unlink(missing_ok=True)
    a_jar(project / "plugins/kiwi_spark/java" / JAR, "ab" * 16)
    with zipfile.ZipFile(wheel(project, tmp_path)) as archive:
        assert [name for name in archive.namelist() if name.endswith(".jar")] == []
    assert "they are not compiled; see make wheel" in capsys.readouterr().err
